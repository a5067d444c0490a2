//! The option for the kind of lock.

use proc_macro2::Ident;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprCall, Lit};

use super::value::{bare, is_open, literal, string, word};
use crate::errors::Errors;
use crate::messages::{code, did_you_mean, meant, nearest, simple};
use crate::plan::LockKindArg;

const KINDS: [&str; 7] = [
    "reentrant",
    "fair",
    "read",
    "write",
    "fenced",
    "spin",
    "semaphore",
];

const LIST: &str = "the kinds are `reentrant`, `fair`, `read`, `write`, `fenced`, `spin`, \
                    `semaphore(limit = ..)`";

/// The names of kinds in other libraries, in lower case and as one word. For hints only.
const FOREIGN: [(&str, &str); 28] = [
    ("exclusive", "reentrant"),
    ("mutex", "reentrant"),
    ("lock", "reentrant"),
    ("rlock", "reentrant"),
    ("default", "reentrant"),
    ("fairlock", "fair"),
    ("rfairlock", "fair"),
    ("fifo", "fair"),
    ("queue", "fair"),
    ("shared", "read"),
    ("reader", "read"),
    ("readlock", "read"),
    ("writer", "write"),
    ("writelock", "write"),
    ("rw", "write"),
    ("rwlock", "write"),
    ("readwrite", "write"),
    ("readwritelock", "write"),
    ("fence", "fenced"),
    ("fencing", "fenced"),
    ("token", "fenced"),
    ("fencedlock", "fenced"),
    ("spinlock", "spin"),
    ("rspinlock", "spin"),
    ("permit", "semaphore(limit = ..)"),
    ("permits", "semaphore(limit = ..)"),
    ("rsemaphore", "semaphore(limit = ..)"),
    ("counting", "semaphore(limit = ..)"),
];

const SEMAPHORE: &str = "`kind = semaphore(limit = 10)`";

pub(super) fn kind(_: &Ident, value: Expr, errors: &mut Errors) -> Option<LockKindArg> {
    if let Expr::Call(call) = &value
        && let Some(name) = word(&call.func)
    {
        return match name.to_string().as_str() {
            "semaphore" => semaphore(call, errors),
            text => {
                match KINDS.contains(&text) {
                    true => errors.on(
                        call,
                        format_args!("`{text}` takes no arguments: write `kind = {text}`"),
                    ),
                    false => errors.push(unknown(name, text)),
                }
                None
            }
        };
    }
    if let Some(text) = string(&value) {
        let text = text.value();
        match KINDS.contains(&text.as_str()) {
            true => {
                let limit = if text == "semaphore" {
                    "(limit = 10)"
                } else {
                    ""
                };
                errors.on(
                    &value,
                    format_args!("a kind is a word, without quotes: `kind = {text}{limit}`"),
                );
            }
            false => errors.push(unknown(&value, &text)),
        }
        return None;
    }
    let Some(name) = word(&value) else {
        errors.on(&value, format_args!("`kind` is the lock to take; {LIST}"));
        return None;
    };
    Some(match name.to_string().as_str() {
        "reentrant" => LockKindArg::Reentrant,
        "fair" => LockKindArg::Fair,
        "read" => LockKindArg::Read,
        "write" => LockKindArg::Write,
        "fenced" => LockKindArg::Fenced,
        "spin" => LockKindArg::Spin,
        "semaphore" => {
            errors.on(
                name,
                format_args!("a semaphore needs its number of permits: {SEMAPHORE}"),
            );
            return None;
        }
        text => {
            errors.push(unknown(name, text));
            return None;
        }
    })
}

fn unknown(at: impl quote::ToTokens, text: &str) -> syn::Error {
    let hint = match simple(text).as_str() {
        "multi" | "multilock" => "several keys are locked together with `keys = [..]`; ".to_owned(),
        _ => did_you_mean(meant(text, &FOREIGN, &KINDS)),
    };
    syn::Error::new_spanned(at, format_args!("unknown kind `{text}`; {hint}{LIST}"))
}

/// `semaphore(limit = 10, take = 2)`
fn semaphore(call: &ExprCall, errors: &mut Errors) -> Option<LockKindArg> {
    const FORM: &str = "`kind = semaphore(limit = 10, take = 1)`";
    let (mut limit, mut take) = (None, None);
    let mut is_valid = true;
    for argument in &call.args {
        let Expr::Assign(argument) = argument else {
            errors.on(
                argument,
                format_args!("what a semaphore is set to has names: {FORM}"),
            );
            is_valid = false;
            continue;
        };
        let name = match word(&argument.left) {
            Some(name) if name == "limit" || name == "take" => name,
            _ => {
                errors.push(unknown_argument(&argument.left));
                is_valid = false;
                continue;
            }
        };
        let slot = if name == "limit" {
            &mut limit
        } else {
            &mut take
        };
        if slot.is_some() {
            errors.at(
                name.span(),
                format_args!("`{name}` is set twice: leave one of them out"),
            );
            is_valid = false;
            continue;
        }
        let value = bare(Expr::clone(&argument.right));
        is_valid &= is_count(name, &value, errors);
        *slot = Some(value);
    }
    if limit.is_none() && is_valid {
        errors.on(
            call,
            format_args!("a semaphore needs its number of permits: {SEMAPHORE}"),
        );
    }
    let limit = limit.filter(|_| is_valid)?;
    if let (Some(limit), Some(taken)) = (count(&limit), take.as_ref().and_then(count))
        && taken > limit
    {
        errors.at(
            take.span(),
            format_args!(
                "`take` is more than `limit`: nobody could ever have {taken} of {limit} permits; \
                 take at most {limit}"
            ),
        );
        return None;
    }
    Some(LockKindArg::Semaphore { limit, take })
}

fn unknown_argument(name: &Expr) -> syn::Error {
    let text = code(name);
    let foreign = match text.as_str() {
        "permits" | "max" | "max_permits" | "size" | "total" | "n" => Some("limit"),
        "count" | "acquire" | "permits_to_take" | "k" => Some("take"),
        _ => None,
    };
    let hint = did_you_mean(foreign.or_else(|| nearest(&text, ["limit", "take"])));
    syn::Error::new_spanned(
        name,
        format_args!("unknown `{text}` of a semaphore; {hint}it has `limit` and `take`"),
    )
}

/// The number of a literal.
fn count(value: &Expr) -> Option<u32> {
    match value {
        Expr::Lit(value) => match &value.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn is_count(name: &Ident, value: &Expr, errors: &mut Errors) -> bool {
    if is_open(value) {
        return true;
    }
    // As in `sync/counted.rs` and `sync/permits.rs`.
    let (most, nothing) = if name == "limit" {
        (i32::MAX.unsigned_abs(), "nobody could ever have a permit")
    } else {
        (1000, "that would lock nothing")
    };
    match (count(value).filter(|count| *count <= most), literal(value)) {
        (Some(0), _) => errors.on(
            value,
            format_args!("`{name}` cannot be zero: {nothing}; write at least 1"),
        ),
        (Some(_), Some(Lit::Int(number))) if matches!(number.suffix(), "" | "u32") => return true,
        _ => errors.on(
            value,
            format_args!("`{name}` is a number of permits, from 1 to {most}: `{name} = 1`"),
        ),
    }
    false
}

#[cfg(test)]
#[path = "kind_tests.rs"]
mod tests;
