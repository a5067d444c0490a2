//! The option that says which lock is taken: its key or keys.

use proc_macro2::Ident;
use syn::Expr;
use syn::spanned::Spanned as _;

use super::Spanned;
use super::value::{bare, is_open, string};
use crate::errors::Errors;
use crate::template::{self, TemplateSegment};

/// One key. A string literal is always a template.
#[derive(Debug)]
pub(crate) enum KeyArg {
    Template(Vec<TemplateSegment>),
    Expr(Expr),
}

impl KeyArg {
    /// Whether these are certainly the same key. Two calls may return different keys.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Template(one), Self::Template(other)) => one == other,
            (Self::Expr(one), Self::Expr(other)) => {
                matches!(one, Expr::Path(_) | Expr::Field(_)) && one == other
            }
            _ => false,
        }
    }
}

/// Several keys.
#[derive(Debug)]
pub(crate) enum KeysArg {
    /// At least one was written. Keys that are invalid alone are left out.
    Each(Vec<Spanned<KeyArg>>),
    List(Expr),
}

pub(super) fn key(_: &Ident, value: Expr, errors: &mut Errors) -> Option<KeyArg> {
    if let Expr::Array(_) = value {
        errors.on(&value, "several keys are `keys`: write `keys = [..]`");
        return None;
    }
    one(value, errors, |value, errors| {
        errors.on(
            value,
            "`key` is a template in quotes, whose placeholders are parameters: \
             `key = \"order:<user_id>\"`, or an expression that makes a string",
        );
    })
}

pub(super) fn keys(_: &Ident, value: Expr, errors: &mut Errors) -> Option<KeysArg> {
    const FORM: &str = "`keys` is a list: `keys = [\"account:<from>\", \"account:<to>\"]`";
    let array = match value {
        Expr::Array(array) => array,
        list if is_open(&list) => return Some(KeysArg::List(list)),
        other => {
            match string(&other) {
                Some(key) => errors.on(
                    &other,
                    format_args!("one key is `key`: write `key = {:?}`", key.value()),
                ),
                None => errors.on(
                    &other,
                    format_args!("{FORM}, or an expression that iterates over strings"),
                ),
            }
            return None;
        }
    };
    if array.elems.is_empty() {
        errors.on(
            &array,
            format_args!("`keys` is empty, so nothing would be locked; {FORM}"),
        );
        return None;
    }
    let mut keys = Vec::new();
    for element in array.elems {
        let span = element.span();
        let key = one(bare(element), errors, |value, errors| {
            errors.on(
                value,
                "each of the `keys` is a template in quotes or an expression that makes a string: \
                 `keys = [\"account:<from>\", \"account:<to>\"]`",
            );
        });
        keys.extend(key.map(|value| Spanned { value, span }));
    }
    Some(KeysArg::Each(keys))
}

fn one(
    value: Expr,
    errors: &mut Errors,
    refuse: impl FnOnce(&Expr, &mut Errors),
) -> Option<KeyArg> {
    let Some(literal) = string(&value) else {
        if is_open(&value) {
            return Some(KeyArg::Expr(value));
        }
        refuse(&value, errors);
        return None;
    };
    match template::parse(&literal.value()) {
        Ok(segments) => Some(KeyArg::Template(segments)),
        Err(mistakes) => {
            for mistake in mistakes {
                errors.at(literal.span(), mistake);
            }
            None
        }
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
