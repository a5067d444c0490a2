//! Rules that concern several options, or the function. What passes here is a [`Plan`].

use std::time::Duration;

use proc_macro2::{Ident, Span};
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Expr, GenericArgument, Pat, Path, PathArguments, ReturnType, Type, TypeParamBound};

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::messages::{Names, nearest};
use crate::template::{Access, Placeholder, Segment};

/// What is to be expanded; nothing in it can be wrong any more, except for the compiler to say.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) key: Vec<Part>,
    /// Where the key was written: what the compiler says about a placeholder is said there.
    pub(crate) key_span: Span,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) renew: Option<bool>,
    pub(crate) client: Option<Expr>,
    pub(crate) krate: Option<Path>,
    pub(crate) returns: Type,
}

/// A [`Segment`] whose names are identifiers.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Value {
        placeholder: String,
        root: Ident,
        accesses: Vec<Step>,
        spec: String,
    },
}

/// An [`Access`] whose name is an identifier.
#[derive(Debug)]
pub(crate) enum Step {
    Field(Ident),
    Index(u32),
    Method(Ident),
}

/// Checks the options against each other and against the function.
pub(crate) fn check(args: Args, function: &Function, errors: &mut Errors) -> Option<Plan> {
    qualifiers(function, errors);
    durations(&args, errors);
    let returns = return_type(function, errors);
    if args.key.is_unset() {
        errors.at(
            Span::call_site(),
            "missing `key`: name what is locked, e.g. `key = \"order:<user_id>\"`",
        );
    }
    let key_span = args.key.get().map(|key| key.span)?;
    let segments = args.key.value()?;
    let mut key = Vec::new();
    for segment in segments {
        match segment {
            Segment::Text(text) => key.push(Part::Text(text)),
            Segment::Placeholder(placeholder) => match value(placeholder, key_span, function) {
                Ok(part) => key.push(part),
                Err(error) => errors.push(error),
            },
        }
    }
    Some(Plan {
        key,
        key_span,
        wait: args.wait.value(),
        lease: args.lease.value(),
        max_hold: args.max_hold.value(),
        renew: args.renew.value(),
        client: args.client.value(),
        krate: args.krate.value(),
        returns: returns?,
    })
}

fn durations(args: &Args, errors: &mut Errors) {
    if let (Some(lease), Some(max_hold)) = (args.lease.get(), args.max_hold.get())
        && max_hold.value < lease.value
    {
        errors.at(
            max_hold.span,
            "`max_hold` is shorter than `lease`: the lock would outlive it; make `lease` at most \
             `max_hold`",
        );
    }
}

fn qualifiers(function: &Function, errors: &mut Errors) {
    let sig = &function.sig;
    if let Some(constness) = &sig.constness {
        errors.at(
            constness.span(),
            "a `const fn` may run in the compiler, where there is no Redis to lock in; make it an \
             `async fn`",
        );
    } else if let Some(abi) = &sig.abi {
        errors.on(
            abi,
            "an `extern` function is called by code that cannot await a lock; put the attribute \
             on an `async fn` that it calls",
        );
    } else if sig.asyncness.is_none() {
        let message = match &sig.output {
            ReturnType::Type(_, ty) if lazy(ty).is_some() => {
                "this function returns before its work is done, so the lock would be released \
                 before it began; make it an `async fn` that awaits the work"
            }
            _ => {
                "`#[distributed_lock]` needs an `async fn`: a lock is waited for, and that would \
                 block the thread here. (If another attribute has taken the `async` away, such as \
                 `#[tokio::test]`, put that one below this one.)"
            }
        };
        errors.at(sig.fn_token.span, message);
    }
}

/// The return type, unless it is plain that it cannot carry a lock error. Aliases are left to the
/// compiler, which knows what they stand for.
fn return_type(function: &Function, errors: &mut Errors) -> Option<Type> {
    const FIX: &str = "return `Result<T, E>` with `E: From<redlock_rt::Error>`";
    // A function that is not async has its message already.
    function.sig.asyncness?;
    let ReturnType::Type(_, ty) = &function.sig.output else {
        errors.at(
            function.sig.ident.span(),
            format_args!(
                "`{}` returns nothing, so its caller would never learn that the lock was not \
                 taken and nothing was done; {FIX}",
                function.sig.ident
            ),
        );
        return None;
    };
    let inner = ungrouped(ty);
    if let Some(kind) = lazy(inner).or_else(|| first_argument(inner).and_then(lazy)) {
        errors.on(
            ty,
            format_args!(
                "the {kind} returned here does its work later, when the lock has been released; \
                 await or collect it in the body and return the outcome"
            ),
        );
        return None;
    }
    if matches!(
        inner,
        Type::Tuple(_)
            | Type::Reference(_)
            | Type::Array(_)
            | Type::Slice(_)
            | Type::Never(_)
            | Type::Ptr(_)
            | Type::FnPtr(_)
            | Type::ImplTrait(_)
            | Type::TraitObject(_)
    ) {
        errors.on(
            ty,
            format_args!("this type cannot say that the lock was not taken; {FIX}"),
        );
        return None;
    }
    Some(Type::clone(ty))
}

/// What a type is that works only after it was returned. Recognised by its name, so a hint for
/// those who would else lock nothing, and no proof.
fn lazy(ty: &Type) -> Option<&'static str> {
    match ungrouped(ty) {
        Type::ImplTrait(ty) => ty.bounds.iter().find_map(lazy_bound),
        Type::TraitObject(ty) => ty.bounds.iter().find_map(lazy_bound),
        Type::Path(ty) => {
            let name = ty.path.segments.last()?.ident.to_string();
            match name.as_str() {
                "Pin" | "Box" => first_argument(&Type::Path(ty.clone())).and_then(lazy),
                "BoxFuture" | "LocalBoxFuture" => Some("future"),
                "BoxStream" | "LocalBoxStream" => Some("stream"),
                _ => None,
            }
        }
        _ => None,
    }
}

fn lazy_bound(bound: &TypeParamBound) -> Option<&'static str> {
    let TypeParamBound::Trait(bound) = bound else {
        return None;
    };
    match bound.path.segments.last()?.ident.to_string().as_str() {
        "Future" | "IntoFuture" => Some("future"),
        "Stream" | "TryStream" => Some("stream"),
        "Iterator" => Some("iterator"),
        _ => None,
    }
}

/// `T` of `Result<T, E>`.
fn first_argument(ty: &Type) -> Option<&Type> {
    let Type::Path(ty) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &ty.path.segments.last()?.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn ungrouped(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        };
    }
}

fn value(placeholder: Placeholder, span: Span, function: &Function) -> syn::Result<Part> {
    let Placeholder {
        text,
        root,
        accesses,
        spec,
    } = placeholder;
    let root = if root == "self" {
        receiver(&text, span, function)?
    } else {
        parameter(&root, span, function)?
    };
    let accesses = accesses
        .into_iter()
        .map(|access| {
            Ok(match access {
                Access::Field(name) => Step::Field(identifier(&name, &text, span)?),
                Access::Index(index) => Step::Index(index),
                Access::Method(name) => Step::Method(identifier(&name, &text, span)?),
            })
        })
        .collect::<syn::Result<_>>()?;
    Ok(Part::Value {
        placeholder: text,
        root,
        accesses,
        spec,
    })
}

/// `self`, resolved as the receiver is, shown where the key is.
fn receiver(text: &str, span: Span, function: &Function) -> syn::Result<Ident> {
    match function.sig.receiver() {
        Some(receiver) => Ok(Ident::new(
            "self",
            receiver.self_token.span.located_at(span),
        )),
        None => Err(syn::Error::new(
            span,
            format_args!(
                "`<{text}>` needs a method, and `{}` has no `self`; {}",
                function.sig.ident,
                parameters(function)
            ),
        )),
    }
}

/// The parameter called `name`, resolved as it is, shown where the key is.
fn parameter(name: &str, span: Span, function: &Function) -> syn::Result<Ident> {
    let bindings = function.bindings();
    let is_called = |binding: &&Ident| syn::ext::IdentExt::unraw(*binding) == name;
    if let Some(binding) = bindings.iter().find(is_called) {
        let mut root = binding.clone();
        root.set_span(binding.span().located_at(span));
        return Ok(root);
    }
    let mut message = format!("no parameter `{name}` to put into the key; ");
    let names: Vec<String> = names(function);
    if let Some(meant) = nearest(name, names.iter().map(String::as_str)) {
        message += &format!("did you mean `{meant}`? ");
    }
    message += &parameters(function);
    for parameter in function.unnamed_parameters() {
        let pattern = parameter.pat.to_token_stream();
        let ty = parameter.ty.to_token_stream();
        let apart = match &*parameter.pat {
            Pat::Wild(_) => "",
            _ => " and take it apart in the body",
        };
        message += &format!(
            "\n`{pattern}: {ty}` has no name: to use it as a whole, write `{name}: {ty}`{apart}"
        );
    }
    Err(syn::Error::new(span, message))
}

fn names(function: &Function) -> Vec<String> {
    let receiver = function.sig.receiver().map(|_| "self".to_owned());
    let bindings = function.bindings().into_iter().map(|name| name.to_string());
    receiver.into_iter().chain(bindings).collect()
}

fn parameters(function: &Function) -> String {
    match names(function).as_slice() {
        [] => format!("`{}` has no parameters", function.sig.ident),
        names => format!("the parameters are {}", Names(names)),
    }
}

/// A field or a method; raw if its name is a keyword.
fn identifier(name: &str, text: &str, span: Span) -> syn::Result<Ident> {
    let wrong = || {
        syn::Error::new(
            span,
            format_args!("`{name}` in placeholder `<{text}>` is no name"),
        )
    };
    if name == "await" {
        return Err(syn::Error::new(
            span,
            format_args!("`<{text}>` cannot await: a key is made before the lock is waited for"),
        ));
    }
    if let Ok(ident) = syn::parse_str::<Ident>(name) {
        return Ok(Ident::new(&ident.to_string(), span));
    }
    let keyword = syn::parse::Parser::parse_str(<Ident as syn::ext::IdentExt>::parse_any, name);
    match name {
        "self" | "Self" | "super" | "crate" => Err(wrong()),
        _ => keyword
            .map(|_| Ident::new_raw(name, span))
            .map_err(|_| wrong()),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
