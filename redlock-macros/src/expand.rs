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
use crate::check::check;
use crate::errors::Errors;
use crate::function::Function;
use crate::plan::{Key, KeyWhat, Keys, Part, Plan, Renew, Step, Time, Wait};

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
    let attributes = std::iter::once(args)
        .chain(take_further(&mut function))
        .map(|args| Args::parse(args, &mut errors))
        .collect();
    let plans = check(attributes, &function, &mut errors);
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
    let client = client(plan, &private);
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
        let client = #client;
        match #private::locked(client, key, #options, async move {
            #returns_hint
            #block
        })
        .await
        {
            #private::core::result::Result::Ok(value) => value,
            #private::core::result::Result::Err(error) => #from_lock_error(error),
        }
    }
}

fn private(krate: Option<&Path>, here: Span) -> TokenStream {
    match krate {
        Some(krate) => quote_spanned!(here=> #krate::__private),
        None => quote_spanned!(here=> ::redlock_rt::__private),
    }
}

fn key(plan: &Plan, private: &TokenStream) -> TokenStream {
    let Keys::One(Key {
        what: KeyWhat::Template(parts),
        span,
    }) = &plan.keys
    else {
        return quote!(::core::compile_error!("not expanded yet"));
    };
    let here = Span::mixed_site().located_at(*span);
    let mut tokens = quote_spanned!(here=> #private::Key::new());
    for part in parts {
        tokens.extend(match part {
            Part::Text(text) => {
                let text = LitStr::new(text, here);
                quote_spanned!(here=> .literal(#text))
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
                    .part(#placeholder, #private::core::format_args!(#format, #value))
                }
            }
        });
    }
    tokens
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
    let mut tokens = quote_spanned! {here=>
        #private::Options::new(#core::concat!(#core::module_path!(), #name))
    };
    let wait = match &plan.wait {
        Some(Wait::Literal(wait)) => Some(*wait),
        Some(Wait::Forever | Wait::Expr(_)) | None => None,
    };
    let literal = |time: &Option<Time>| match time {
        Some(Time::Literal(time)) => Some(*time),
        Some(Time::Expr(_)) | None => None,
    };
    for (setter, duration) in [
        ("wait", wait),
        ("lease", literal(&plan.lease)),
        ("max_hold", literal(&plan.max_hold)),
    ] {
        let Some(duration) = duration else { continue };
        let setter = Ident::new(setter, here);
        // A duration was made of milliseconds that fit.
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        tokens.extend(quote_spanned! {here=>
            .#setter(#core::time::Duration::from_millis(#millis))
        });
    }
    if let Some(Renew::Bool(renew)) = plan.renew {
        tokens.extend(quote_spanned!(here=> .renew(#renew)));
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
