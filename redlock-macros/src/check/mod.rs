//! Rules that concern several options, or the function. The result is a [`Plan`].

mod options;
mod parameters;
mod placeholder;
mod returns;
mod texts;

use proc_macro2::Span;
use syn::Type;

use crate::args::{Args, KeyArg, KeysArg, OptionSlot, Spanned};
use crate::errors::Errors;
use crate::function::Function;
use crate::plan::{Fallback, KeyPart, KeyWhat, Keys, LockedKey, Plan};
use crate::template::TemplateSegment;

/// Checks the options of each attribute on `function` against each other and against it.
pub(crate) fn check(
    attributes: Vec<Args>,
    function: &mut Function,
    errors: &mut Errors,
) -> Vec<Plan> {
    let blocks = |args: &Args| args.blocking.get().is_some_and(|blocking| blocking.value);
    function.blocking = attributes.iter().any(blocks);
    let function = &*function;
    returns::qualifiers(function, errors);
    let returns = returns::return_type(function, errors);
    parameters::bound_twice(&attributes, errors);
    attributes
        .into_iter()
        .filter_map(|args| plan(args, function, returns.as_ref(), errors))
        .collect()
}

fn plan(
    args: Args,
    function: &Function,
    returns: Option<&Type>,
    errors: &mut Errors,
) -> Option<Plan> {
    options::check(&args, errors);
    parameters::check(&args, function, errors);
    let keys = keys(args.key, args.keys, function, errors);
    let otherwise = match args.once {
        OptionSlot::Unset => Fallback::default(),
        _ => Fallback::NotRun,
    };
    Some(Plan {
        keys: keys?,
        kind: args.kind.value().unwrap_or_default(),
        once: args.once.value(),
        wait: args.wait.value(),
        lease: args.lease.value(),
        renew: args.renew.value(),
        max_hold: args.max_hold.value(),
        min_hold: args.min_hold.value(),
        replica_ack: args.replica_ack.value(),
        fsync: args.fsync.value(),
        client: args.client.value(),
        owner: args.owner.value(),
        on_timeout: args.on_timeout.value().unwrap_or(otherwise),
        on_unavailable: args.on_unavailable.value().unwrap_or_default(),
        on_lost: args.on_lost.value().unwrap_or_default(),
        map_err: args.map_err.value(),
        when: args.when.value(),
        guard: args.guard.value(),
        token: args.token.value(),
        name: args.name.value(),
        krate: args.krate.value(),
        returns: returns?.clone(),
    })
}

fn keys(
    key: OptionSlot<KeyArg>,
    keys: OptionSlot<KeysArg>,
    function: &Function,
    errors: &mut Errors,
) -> Option<Keys> {
    if key.is_unset() && keys.is_unset() {
        errors.at(
            Span::call_site(),
            "missing `key`: name what is locked, e.g. `key = \"order:<user_id>\"`",
        );
    }
    if let Some(key) = key.set() {
        return Some(Keys::One(self::key(key, function, errors)));
    }
    let keys = keys.set()?;
    Some(match keys.value {
        KeysArg::Each(each) => {
            let each = each.into_iter().map(|key| self::key(key, function, errors));
            Keys::Each(each.collect(), keys.span)
        }
        KeysArg::List(list) => Keys::List(list),
    })
}

fn key(key: Spanned<KeyArg>, function: &Function, errors: &mut Errors) -> LockedKey {
    let span = key.span;
    let what = match key.value {
        KeyArg::Template(segments) => {
            let parts = parts(segments, span, function, errors);
            let warning = texts::ambiguous(&parts, function);
            KeyWhat::Template { parts, warning }
        }
        KeyArg::Expr(expr) => KeyWhat::Expr(expr),
    };
    LockedKey { what, span }
}

fn parts(
    segments: Vec<TemplateSegment>,
    span: Span,
    function: &Function,
    errors: &mut Errors,
) -> Vec<KeyPart> {
    let mut parts = Vec::new();
    for segment in segments {
        match segment {
            TemplateSegment::Text(text) => {
                if let Some(error) = placeholder::foreign(&text, span, function) {
                    errors.push(error);
                }
                parts.push(KeyPart::Text(text));
            }
            TemplateSegment::Placeholder(placeholder) => {
                match placeholder::value(placeholder, span, function) {
                    Ok(part) => parts.push(part),
                    Err(error) => errors.push(error),
                }
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests;
