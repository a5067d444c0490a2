//! The expansion; `lib.rs` shows it.
//!
//! Generated tokens are *located* at the user's text that they come from, so that the compiler points
//! there. They are *resolved* as the macro's own (`mixed_site`): locals cannot clash with the user's, and
//! lints treat them as generated.

mod call;
mod fallback;
mod key;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, GenericArgument, Meta, Path, PathArguments, Type, token};

use self::call::call;
use self::fallback::{fail, fallbacks};
use crate::args::Args;
use crate::check::check;
use crate::errors::Errors;
use crate::function::Function;
use crate::plan::{Fallback, Keys, LockKindArg, Plan};

/// Expands the attribute. After a mistake, the function is kept beside the messages. Otherwise every call
/// of it would be one more error.
pub(crate) fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            // Without a function, the options do not matter.
            let mut tokens = error.into_compile_error();
            tokens.extend(item);
            return tokens;
        }
    };
    let mut errors = Errors::default();
    let attributes = std::iter::once(args)
        .chain(take_further(&mut function))
        .map(|args| Args::parse(args, &mut errors))
        .collect();
    let plans = check(attributes, &mut function, &mut errors);
    let mut tokens = TokenStream::new();
    match errors.finish(plans) {
        Ok(plans) => {
            let boxed = function.boxed();
            let (brace, inner) = match &boxed {
                None => (function.brace, &function.body),
                Some(boxed) => (boxed.brace, &boxed.body),
            };
            let body = plans.iter().rev().fold(inner.clone(), |body, plan| {
                locked(plan, &function, brace, &body)
            });
            let body = match boxed {
                Some(boxed) => boxed.with_body(&body),
                None if function.blocking => {
                    let here = Span::mixed_site();
                    let krate = plans.first().and_then(|plan| plan.krate.as_ref());
                    let private = private(krate, here);
                    quote_spanned!(here=> #private::BlockOn::block_on(async move { #body }))
                }
                None => body,
            };
            function.with_body(&body, &mut tokens);
        }
        Err(errors) => {
            tokens.extend(errors.into_compile_error());
            // A parameter that only the key uses must not cause a warning.
            tokens.extend(quote!(#[allow(unused_variables, unused_mut)]));
            function.with_body(&function.body, &mut tokens);
        }
    }
    tokens
}

/// Takes the options of the attributes below this one from the function. Otherwise the compiler would
/// expand those later, around this one, and so take the locks in reverse order.
fn take_further(function: &mut Function) -> Vec<TokenStream> {
    let is_ours = |attr: &mut Attribute| {
        attr.path()
            .segments
            .last()
            .is_some_and(|name| name.ident == "distributed_lock")
    };
    let options = |attr: Attribute| match attr.meta {
        Meta::List(list) => list.tokens,
        Meta::Path(_) | Meta::NameValue(_) => TokenStream::new(),
    };
    function
        .attrs
        .extract_if(.., is_ours)
        .map(options)
        .collect()
}

/// The values that are constant in an expansion.
struct ExpansionNames {
    /// The path of the module that expanded code calls.
    private: TokenStream,
    /// The return type, as far as it can be named.
    returns: Type,
    at_returns: Span,
}

/// The code that runs `body` under the lock of `plan`.
fn locked(
    plan: &Plan,
    function: &Function,
    brace: token::Brace,
    body: &TokenStream,
) -> TokenStream {
    let here = Span::mixed_site();
    let names = ExpansionNames {
        private: private(plan.krate.as_ref(), here),
        returns: erase_impl_trait(plan.returns.clone()),
        at_returns: here.located_at(plan.returns.span()),
    };
    let private = &names.private;
    let entering = entering(plan, function, &names);
    let fail = fail(plan, &names);
    let hint = hint(&names);
    // The type of an async block that is awaited in a box is inferred too.
    let outer_hint = match function.sig.asyncness {
        Some(_) => TokenStream::new(),
        None => hint.clone(),
    };
    let bindings = bindings(plan, &names);
    // In the user's braces: a lint would report a second pair as unnecessary.
    let mut block = TokenStream::new();
    brace.surround(&mut block, |tokens| {
        tokens.extend([&hint, &bindings, body].map(TokenStream::clone));
    });
    let once = once(plan, &names, quote_spanned!(here=> async move #block));
    let (fires, body) = &once;
    let run = quote_spanned! {here=>
        let body = #body;
        let (output, body) = #private::Output::of(body);
        let place = {
            use #private::{Sendable as _, Unsendable as _};
            (&output).place()
        };
    };
    let is_error = |fallback: &Fallback| matches!(fallback, Fallback::Error);
    let falls_back = !is_error(&plan.on_timeout) || !is_error(&plan.on_unavailable);
    if !falls_back && bindings.is_empty() {
        return quote_spanned! {here=>
            #outer_hint
            let entering = #entering;
            #run
            entering.run(place, #fail, body).await
        };
    }
    let fallbacks = fallbacks(plan, function, &names);
    let held = match bindings.is_empty() {
        true => TokenStream::new(),
        false => quote_spanned!(here=> let held = session.held();),
    };
    // The body takes the parameters, which a fallback may use. So the body is made only when it will run.
    // Values that the options borrow are dropped before the first await, since they may not be `Send`.
    quote_spanned! {here=>
        #outer_hint
        #fires
        let entering = #entering;
        let session = match entering.await {
            #private::core::result::Result::Ok(session) => session,
            #private::core::result::Result::Err(error) => { #fallbacks }
        };
        #held
        #run
        session.run(place, #fail, body).await
    }
}

/// The requirements of a function that runs once on its return type, and the body that marks a successful
/// fire: the release that follows tells Redis.
fn once(plan: &Plan, names: &ExpansionNames, body: TokenStream) -> (TokenStream, TokenStream) {
    let (here, private, returns) = (Span::mixed_site(), &names.private, &names.returns);
    if plan.once.is_none() {
        return (TokenStream::new(), body);
    }
    let there = relocated(private, names.at_returns);
    let fires =
        quote_spanned!(names.at_returns=> let (nothing, is_done) = #there::fires::<#returns>(););
    let body = quote_spanned! {here=>
        {
            let fire = session.held();
            async move {
                let value: #returns = (#body).await;
                fire.marks(is_done(&value));
                value
            }
        }
    };
    (fires, body)
}

/// The output type of an async block is inferred from its first `return`. So this makes the declared type
/// the first: a value of another type is reported at the user's text.
fn hint(names: &ExpansionNames) -> TokenStream {
    let ExpansionNames {
        private,
        returns,
        at_returns,
    } = names;
    // No `#[allow]`, here and elsewhere: a crate may forbid that.
    quote_spanned! {*at_returns=>
        if false {
            let fake_return = #private::never::<#returns>();
            return fake_return;
        }
    }
}

/// The code that acquires the lock, or none.
fn entering(plan: &Plan, function: &Function, names: &ExpansionNames) -> TokenStream {
    let here = Span::mixed_site();
    let private = &names.private;
    let call = call(plan, function, names);
    let Some(when) = &plan.when else {
        return call;
    };
    let at_when = here.located_at(when.span());
    let bool = relocated(&quote!(#private::core::primitive::bool), at_when);
    let condition = quote_spanned!(at_when=> let when: #bool = #when;);
    quote_spanned! {here=>
        {
            #condition
            if when { #call } else { #private::AttributeCall::without() }
        }
    }
}

/// The bindings of the guard in the body.
fn bindings(plan: &Plan, names: &ExpansionNames) -> TokenStream {
    let here = Span::mixed_site();
    let private = &names.private;
    let kind = match (&plan.keys, &plan.kind) {
        _ if plan.once.is_some() => quote_spanned!(here=> once),
        (Keys::Each(..) | Keys::List(_), _) => quote_spanned!(here=> multi),
        (_, LockKindArg::Reentrant) => quote_spanned!(here=> reentrant),
        (_, LockKindArg::Fair) => quote_spanned!(here=> fair),
        (_, LockKindArg::Read) => quote_spanned!(here=> read),
        (_, LockKindArg::Write) => quote_spanned!(here=> write),
        (_, LockKindArg::Fenced) => quote_spanned!(here=> fenced),
        (_, LockKindArg::Spin) => quote_spanned!(here=> spin),
        (_, LockKindArg::Semaphore { .. }) => quote_spanned!(here=> permit),
    };
    let guard = plan
        .guard
        .as_ref()
        .map(|guard| quote_spanned!(here=> let #guard = held.#kind();));
    let token = plan.token.as_ref().map(|token| {
        quote_spanned! {here=>
            let #token: #private::core::primitive::u64 = held.#kind().token();
        }
    });
    quote_spanned!(here=> #guard #token)
}

fn private(krate: Option<&Path>, here: Span) -> TokenStream {
    match krate {
        Some(krate) => quote_spanned!(here=> #krate::__private),
        None => quote_spanned!(here=> ::redlock_rt::__private),
    }
}

/// The same tokens, located at `place`, since the compiler locates an expression by its first token.
fn relocated(tokens: &TokenStream, place: Span) -> TokenStream {
    let moved = |mut token: TokenTree| {
        token.set_span(token.span().located_at(place));
        token
    };
    tokens.clone().into_iter().map(moved).collect()
}

/// `impl Trait` cannot be named in a body; `_` stands for the type.
fn erase_impl_trait(mut ty: Type) -> Type {
    erase_in(&mut ty);
    ty
}

fn erase_in(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = syn::parse_quote!(_),
        Type::Group(ty) => erase_in(&mut ty.elem),
        Type::Paren(ty) => erase_in(&mut ty.elem),
        Type::Reference(ty) => erase_in(&mut ty.elem),
        Type::Array(ty) => erase_in(&mut ty.elem),
        Type::Slice(ty) => erase_in(&mut ty.elem),
        Type::Tuple(ty) => ty.elems.iter_mut().for_each(erase_in),
        Type::Path(ty) => {
            for segment in &mut ty.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            erase_in(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
