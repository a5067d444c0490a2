//! The expansion; `lib.rs` shows it.
//!
//! Generated tokens are *located* where the user wrote what they come from, so that the compiler
//! points there, but *resolved* as the macro's own (`mixed_site`): locals cannot clash with the
//! user's, and lints treat them as generated.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Expr, ExprField, ExprMethodCall, GenericArgument, Index, LitStr, Member, Meta, Path,
    PathArguments, Type, token,
};

use crate::args::Args;
use crate::check::{Part, Plan, Step, check};
use crate::errors::Errors;
use crate::function::Function;

/// The whole of the attribute. With a mistake, the function stays as it was next to the messages:
/// else every call of it would be one more error.
pub(crate) fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            // On something else than a function, the options do not matter.
            let mut tokens = Errors::from(error).into_compile_error();
            tokens.extend(item);
            return tokens;
        }
    };
    let mut errors = Errors::default();
    let mut plans = Vec::new();
    for args in std::iter::once(args).chain(take_further(&mut function)) {
        let args = Args::parse(args, &mut errors);
        plans.extend(check(args, &function, &mut errors));
    }
    let mut tokens = TokenStream::new();
    match errors.finish(plans) {
        Ok(plans) => {
            let body = plans
                .iter()
                .rev()
                .fold(function.body.clone(), |body, plan| {
                    locked_body(plan, &function, &body)
                });
            function.with_body(&body, &mut tokens);
        }
        Err(errors) => {
            tokens.extend(errors.into_compile_error());
            // A parameter that only the key uses is not what is wrong.
            tokens.extend(quote!(#[allow(unused_variables, unused_mut)]));
            function.with_body(&function.body, &mut tokens);
        }
    }
    tokens
}

/// Takes the options of the attributes below this one from the function. The compiler would expand
/// them later, so around this one, and take the locks in the opposite order of how they are read.
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

fn locked_body(plan: &Plan, function: &Function, body: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let private = private(plan.krate.as_ref(), here);
    let key = key(plan, &private);
    let options = options(plan, &function.sig.ident, &private);
    let returns = erase_impl_trait(plan.returns.clone());
    let at_returns = here.located_at(plan.returns.span());
    // The type of an async block is not declared but inferred, by what it returns first. So this
    // makes the declared type the first: what does not fit is reported where the user wrote it.
    let returns_hint = quote_spanned! {at_returns=>
        #[allow(
            unknown_lints,
            unreachable_code,
            clippy::diverging_sub_expression,
            clippy::empty_loop,
            clippy::let_unit_value,
            clippy::let_with_type_underscore,
            clippy::needless_return,
            clippy::unreachable
        )]
        if false {
            let fake_return: #returns = loop {};
            return fake_return;
        }
    };
    let from_lock_error = quote_spanned! {at_returns=>
        <#returns as #private::FromLockError>::from_lock_error
    };
    let mut block = TokenStream::new();
    function
        .brace
        .surround(&mut block, |tokens| body.to_tokens(tokens));
    quote_spanned! {here=>
        let key = #key;
        let entering = #options.enter(#private::Kind::Reentrant);
        let body = async move {
            #returns_hint
            #block
        };
        let place = {
            #[allow(unused_imports)]
            use #private::{Sendable as _, Unsendable as _};
            (&#private::Output::of(&body)).place()
        };
        entering.run(place, #from_lock_error, body).await
    }
}

fn private(krate: Option<&Path>, here: Span) -> TokenStream {
    match krate {
        Some(krate) => quote_spanned!(here=> #krate::__private),
        None => quote_spanned!(here=> ::redlock_rt::__private),
    }
}

fn key(plan: &Plan, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site().located_at(plan.key_span);
    let segments = plan.key.iter().map(|part| match part {
        Part::Text(text) => {
            let text = LitStr::new(text, here);
            quote_spanned!(here=> #private::Segment::Text(#text))
        }
        Part::Value {
            placeholder,
            root,
            accesses,
            spec,
        } => {
            let placeholder = LitStr::new(placeholder, here);
            let colon = if spec.is_empty() { "" } else { ":" };
            let format = LitStr::new(&format!("{{{colon}{spec}}}"), here);
            let value = value(root, accesses, here);
            quote_spanned! {here=>
                #private::Segment::Value(
                    #placeholder,
                    #private::core::format_args!(#format, #value),
                )
            }
        }
    });
    quote_spanned!(here=> #private::key(&[#(#segments),*]))
}

/// `user.id()`
fn value(root: &Ident, accesses: &[Step], here: Span) -> Expr {
    let root: Expr = syn::parse_quote!(#root);
    accesses.iter().fold(root, |base, access| {
        let field = |base, member| {
            Expr::Field(ExprField {
                attrs: Vec::new(),
                base: Box::new(base),
                dot_token: token::Dot(here),
                member,
            })
        };
        match access {
            Step::Field(name) => field(base, Member::Named(name.clone())),
            Step::Index(index) => field(
                base,
                Member::Unnamed(Index {
                    index: *index,
                    span: here,
                }),
            ),
            Step::Method(name) => Expr::MethodCall(ExprMethodCall {
                attrs: Vec::new(),
                receiver: Box::new(base),
                dot_token: token::Dot(here),
                method: name.clone(),
                turbofish: None,
                paren_token: token::Paren(here),
                args: Punctuated::new(),
            }),
        }
    })
}

/// Whatever dereferences to a client will do: `Client`, `Arc<Client>`, a static `LazyLock<Client>`.
/// The block ends what the expression borrows and keeps, before anything is awaited.
fn client(plan: &Plan, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let option = quote_spanned!(here=> #private::core::option::Option);
    let Some(client) = &plan.client else {
        return quote_spanned!(here=> #private::client(#option::None));
    };
    let at_client = here.located_at(client.span());
    let reference = quote_spanned!(at_client=> &#client);
    let krate = match &plan.krate {
        Some(krate) => quote_spanned!(here=> #krate),
        None => quote_spanned!(here=> ::redlock_rt),
    };
    quote_spanned! {here=>
        {
            let client: &#krate::Client = #reference;
            #private::client(#option::Some(client))
        }
    }
}

fn options(plan: &Plan, function: &Ident, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let core = quote_spanned!(here=> #private::core);
    let name = LitStr::new(&format!("::{}", function.unraw()), here);
    let client = client(plan, private);
    let mut tokens = quote_spanned! {here=>
        #private::Call::new(#core::concat!(#core::module_path!(), #name), key, #client)
    };
    for (name, duration) in [
        ("wait", plan.wait),
        ("lease", plan.lease),
        ("max_hold", plan.max_hold),
    ] {
        let Some(duration) = duration else { continue };
        let setter = Ident::new(name, here);
        // A duration was made of milliseconds that fit.
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let duration = quote_spanned!(here=> #core::time::Duration::from_millis(#millis));
        tokens.extend(match name {
            "wait" => quote_spanned!(here=> .wait(#core::option::Option::Some(#duration))),
            _ => quote_spanned!(here=> .#setter(#duration)),
        });
    }
    if let Some(renew) = plan.renew {
        tokens.extend(quote_spanned!(here=> .renew(#private::renew(#renew))));
    }
    tokens
}

/// `impl Trait` cannot be named in a body; `_` stands for whatever it is.
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
#[path = "expand_tests.rs"]
mod tests;
