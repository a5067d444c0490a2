//! The code for the return value if the body does not run.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{FnArg, Pat};

use super::{ExpansionNames, relocated};
use crate::function::Function;
use crate::plan::{Fallback, Plan};

/// The code that turns an error into the return value.
pub(super) fn fail(plan: &Plan, names: &ExpansionNames) -> TokenStream {
    let ExpansionNames {
        private,
        returns,
        at_returns,
    } = names;
    match &plan.map_err {
        // A closure, since otherwise the compiler would check the function's own type once more.
        None => quote_spanned! {*at_returns=>
            |error| <#returns as #private::FromLockError>::from_lock_error(error)
        },
        Some(map_err) => {
            let here = Span::mixed_site();
            let at_map = here.located_at(map_err.span());
            // Passed, not called: the type of a closure's parameter comes from the function to
            // which it is passed.
            let there = relocated(private, at_map);
            let mapped = quote_spanned!(at_map=> #there::map_err(error, #map_err));
            quote_spanned!(here=> |error| #private::core::result::Result::Err(#mapped))
        }
    }
}

/// A `return` from the function with the value for `error`.
pub(super) fn fallbacks(plan: &Plan, function: &Function, names: &ExpansionNames) -> TokenStream {
    let here = Span::mixed_site();
    let private = &names.private;
    let timeout = fallback(&plan.on_timeout, plan, function, names);
    let unavailable = fallback(&plan.on_unavailable, plan, function, names);
    let other = fallback(&Fallback::Error, plan, function, names);
    quote_spanned! {here=>
        return match #private::refusal_kind(&error) {
            #private::RefusalKind::Timeout => #timeout,
            #private::RefusalKind::Unavailable => #unavailable,
            #private::RefusalKind::Other => #other,
        };
    }
}

fn fallback(
    fallback: &Fallback,
    plan: &Plan,
    function: &Function,
    names: &ExpansionNames,
) -> TokenStream {
    let here = Span::mixed_site();
    let ExpansionNames {
        private, returns, ..
    } = names;
    let value = match fallback {
        Fallback::Error => {
            let fail = fail(plan, names);
            return quote_spanned!(here=> (#fail)(error));
        }
        Fallback::Skip(span) => {
            let at_skip = here.located_at(*span);
            let there = relocated(private, at_skip);
            quote_spanned!(at_skip=> #there::skip())
        }
        Fallback::NotRun => quote_spanned!(here=> nothing()),
        Fallback::Value(value) => quote_spanned!(here=> #value),
        Fallback::Call(path) => {
            let at_path = here.located_at(path.span());
            let arguments = arguments(function);
            quote_spanned!(at_path=> #path(#(#arguments),*).await)
        }
    };
    quote_spanned! {here=>
        {
            #private::skipped(&error);
            let value: #returns = #value;
            value
        }
    }
}

/// The parameters, as arguments; each has a name.
fn arguments(function: &Function) -> impl Iterator<Item = TokenStream> {
    function.sig.inputs.iter().map(|input| match input {
        FnArg::Receiver(receiver) => {
            let this = receiver.self_token;
            quote!(#this)
        }
        FnArg::Typed(parameter) => {
            // A parameter that is compiled out cannot be passed.
            let cfgs = parameter
                .attrs
                .iter()
                .filter(|attr| attr.path().is_ident("cfg"));
            match &*parameter.pat {
                Pat::Ident(pattern) => {
                    let name: &Ident = &pattern.ident;
                    quote!(#(#cfgs)* #name)
                }
                other => quote!(#(#cfgs)* #other),
            }
        }
    })
}
