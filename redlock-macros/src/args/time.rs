//! The options that are durations.

use std::time::Duration;

use proc_macro2::Ident;
use syn::{Expr, Lit};

use super::value::{is_open, literal, string, word};
use crate::duration;
use crate::errors::Errors;
use crate::plan::{RenewArg, TimeArg, Wait};

pub(super) fn wait(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Wait> {
    match word(&value).map(ToString::to_string).as_deref() {
        Some("forever") => return Some(Wait::Forever),
        Some("none" | "None") => {
            errors.on(
                &value,
                "`wait` is not `none`: write `wait = forever` for no limit, `wait = \"0s\"` to try \
                 once, or leave it out for the client's default",
            );
            return None;
        }
        _ => {}
    }
    match string(&value) {
        Some(text) if text.value() == "forever" => {
            errors.on(
                &value,
                "`forever` is a word, without quotes: `wait = forever`",
            );
            None
        }
        Some(_) => duration(name, &value, errors).map(Wait::Literal),
        None => expression(name, value, errors).map(Wait::Expr),
    }
}

pub(super) fn lease(name: &Ident, value: Expr, errors: &mut Errors) -> Option<TimeArg> {
    let unbounded = "a lock without `lease` would outlive a process that has died; leave it out \
                     for the client's lease, which is renewed while the body runs";
    let zero =
        "that would be a lock that is free again at once; leave it out for the client's lease";
    time(name, value, (unbounded, zero), errors)
}

pub(super) fn max_hold(name: &Ident, value: Expr, errors: &mut Errors) -> Option<TimeArg> {
    let unbounded = "`max_hold` is a duration: leave it out for no limit";
    let zero = "that would be a lock that is never held; leave it out for no limit";
    time(name, value, (unbounded, zero), errors)
}

pub(super) fn min_hold(name: &Ident, value: Expr, errors: &mut Errors) -> Option<TimeArg> {
    let absent = "leave it out for a lock that is free as soon as the body has ended";
    let unbounded = format!("`min_hold` is a duration, `min_hold = \"10s\"`; {absent}");
    time(name, value, (&unbounded, absent), errors)
}

pub(super) fn renew(name: &Ident, value: Expr, errors: &mut Errors) -> Option<RenewArg> {
    const FORM: &str = "`renew` is `true`, `false`, or how often: `renew = \"3s\"`";
    match literal(&value) {
        Some(Lit::Bool(value)) => return Some(RenewArg::Bool(value.value)),
        Some(Lit::Str(text)) if text.suffix().is_empty() => {}
        None if is_open(&value) => match word(&value).map(ToString::to_string).as_deref() {
            Some(word @ ("none" | "None" | "never")) => {
                errors.on(
                    &value,
                    format_args!("`renew` is not `{word}`: write `renew = false` for no renewal"),
                );
                return None;
            }
            _ => return Some(RenewArg::Expr(value)),
        },
        _ => {
            errors.on(&value, FORM);
            return None;
        }
    }
    let text = string(&value)?.value();
    if let "true" | "false" = text.as_str() {
        errors.on(
            &value,
            format_args!("`{text}` is a word, without quotes: `renew = {text}`"),
        );
        return None;
    }
    if !text.contains(|c: char| c.is_ascii_digit()) {
        errors.on(&value, FORM);
        return None;
    }
    let zero = "that would be a renewal without pause; write `renew = false` for none";
    positive(name, &value, zero, errors).map(RenewArg::Every)
}

/// `unbounded` and `zero` say what is wrong with such a time.
fn time(
    name: &Ident,
    value: Expr,
    (unbounded, zero): (&str, &str),
    errors: &mut Errors,
) -> Option<TimeArg> {
    let word = word(&value).map(ToString::to_string);
    if let Some("forever" | "none" | "None") = word.as_deref() {
        errors.on(&value, unbounded);
        return None;
    }
    match string(&value) {
        Some(_) => positive(name, &value, zero, errors).map(TimeArg::Literal),
        None => expression(name, value, errors).map(TimeArg::Expr),
    }
}

fn positive(name: &Ident, value: &Expr, zero: &str, errors: &mut Errors) -> Option<Duration> {
    let time = duration(name, value, errors)?;
    if time.is_zero() {
        errors.on(value, format_args!("`{name}` cannot be zero: {zero}"));
        return None;
    }
    Some(time)
}

fn duration(name: &Ident, value: &Expr, errors: &mut Errors) -> Option<Duration> {
    let literal = string(value)?;
    duration::parse(&literal.value())
        .map_err(|error| errors.at(literal.span(), format_args!("`{name}`: {error}")))
        .ok()
}

/// An expression of type `Duration`: not a number, which would have no unit.
fn expression(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Expr> {
    if is_open(&value) {
        return Some(value);
    }
    let digits = match literal(&value) {
        Some(Lit::Int(number)) => number.to_string(),
        _ => String::new(),
    };
    // `wait = 1s` is one token, a number with a suffix: only the quotes are missing.
    let example = match duration::parse(&digits) {
        Ok(_) => digits,
        Err(_) => "1s".to_owned(),
    };
    errors.on(
        &value,
        format_args!("`{name}` is a duration in quotes, with a unit: `{name} = {example:?}`"),
    );
    None
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
