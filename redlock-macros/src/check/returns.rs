//! Checks by the return type whether a lock can be taken around the function.

use syn::spanned::Spanned as _;
use syn::{ReturnType, Type, TypeParamBound};

use crate::errors::Errors;
use crate::form::{first_argument, name, ungrouped};
use crate::function::Function;

pub(super) fn qualifiers(function: &Function, errors: &mut Errors) {
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
    } else if function.blocking {
        if let Some(asyncness) = &sig.asyncness {
            errors.at(
                asyncness.span,
                "`blocking = true` is for a function that is not async; leave it out: this one awaits the lock",
            );
        }
    } else if sig.asyncness.is_none() && function.boxed().is_none() {
        let message = match &sig.output {
            ReturnType::Type(_, ty) if function.output().is_some() || lazy(ty).is_some() => {
                "this function returns before its work is done, so the lock would be released \
                 before it began; make it an `async fn` that awaits the work, or let its body end \
                 in `Box::pin(async move { .. })` and return nothing else, as `#[async_trait]` does"
            }
            _ => {
                "`#[distributed_lock]` needs an `async fn`: a lock is waited for, and that would \
                 block the thread here. If that is meant, write `blocking = true`. (If another attribute has taken the `async` away, such as \
                 `#[tokio::test]`, put that one below this one.)"
            }
        };
        errors.at(sig.fn_token.span, message);
    }
}

/// The output type of the work, unless that type certainly cannot carry a lock error. Aliases are
/// left to the compiler, which can resolve them.
pub(super) fn return_type(function: &Function, errors: &mut Errors) -> Option<Type> {
    const FIX: &str = "return `Result<T, E>` with `E: From<redlock_rt::Error>`";
    if function.sig.asyncness.is_none() && !function.blocking && function.boxed().is_none() {
        // This mistake is already reported.
        return None;
    }
    let is_unit =
        |ty: &&Type| matches!(ungrouped(ty), Type::Tuple(tuple) if tuple.elems.is_empty());
    // `#[async_trait]` writes the unit type out, with a span of its own.
    let spelled_out = function.sig.asyncness.is_none();
    let Some(ty) = function.output().filter(|ty| !(spelled_out && is_unit(ty))) else {
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

/// Describes a type whose work is done only after it was returned, so that the lock would not cover
/// the work. Recognised by its name, so this is only a hint.
fn lazy(ty: &Type) -> Option<&'static str> {
    match ungrouped(ty) {
        Type::ImplTrait(ty) => ty.bounds.iter().find_map(lazy_bound),
        Type::TraitObject(ty) => ty.bounds.iter().find_map(lazy_bound),
        ty => match name(ty)?.as_str() {
            "Pin" | "Box" => first_argument(ty).and_then(lazy),
            "BoxFuture" | "LocalBoxFuture" => Some("future"),
            "BoxStream" | "LocalBoxStream" => Some("stream"),
            _ => None,
        },
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
