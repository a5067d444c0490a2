//! Values that several options have, and options that consist of such a value.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Expr, ExprLit, ExprUnary, Lit, LitStr, Path, UnOp};

use super::names::Example;
use crate::errors::Errors;
use crate::messages::{did_you_mean, meant};

/// Removes brackets without a meaning: parentheses, and the invisible brackets around the value of a
/// `macro_rules!` variable.
pub(super) fn bare(mut value: Expr) -> Expr {
    loop {
        value = match value {
            Expr::Group(group) => *group.expr,
            Expr::Paren(paren) => *paren.expr,
            other => return other,
        };
    }
}

pub(super) fn string(value: &Expr) -> Option<&LitStr> {
    match literal(value)? {
        Lit::Str(literal) if literal.suffix().is_empty() => Some(literal),
        _ => None,
    }
}

/// Whether this is a literal, including `-1`, which is not a literal for the compiler.
pub(super) fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        Expr::Unary(ExprUnary {
            op: UnOp::Neg(_),
            expr,
            ..
        }) => literal(expr),
        _ => None,
    }
}

/// The word, if the value is a single word: `forever`.
pub(super) fn word(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// The words that an option accepts.
pub(super) struct OptionWords {
    pub(super) option: &'static str,
    pub(super) words: &'static [&'static str],
    /// The words of other libraries, in lower case and as one word. For hints only.
    pub(super) foreign: &'static [(&'static str, &'static str)],
    /// All values of the option.
    pub(super) list: &'static str,
}

impl OptionWords {
    /// Reports a value that the option does not accept.
    pub(super) fn refuse(&self, value: &Expr, errors: &mut Errors) {
        let Self { option, list, .. } = self;
        let text = match literal(value) {
            Some(Lit::Str(text)) => text.value(),
            Some(Lit::Bool(switch)) => switch.value.to_string(),
            _ => match word(value) {
                Some(word) => word.to_string(),
                None => return errors.on(value, list),
            },
        };
        if self.words.contains(&text.as_str()) {
            errors.on(
                value,
                format_args!("`{text}` is a word, without quotes: `{option} = {text}`"),
            );
            return;
        }
        let meant = meant(&text, self.foreign, self.words);
        let hint = did_you_mean(meant);
        errors.on(value, format_args!("unknown `{text}`; {hint}{list}"));
    }
}

/// Whether this may have any type: a name, a call, a block. Only the compiler knows its type.
pub(super) fn is_open(value: &Expr) -> bool {
    literal(value).is_none()
        && !matches!(
            value,
            Expr::Array(_)
                | Expr::Assign(_)
                | Expr::Break(_)
                | Expr::Closure(_)
                | Expr::Continue(_)
                | Expr::ForLoop(_)
                | Expr::Infer(_)
                | Expr::Let(_)
                | Expr::Range(_)
                | Expr::Repeat(_)
                | Expr::Return(_)
                | Expr::Tuple(_)
                | Expr::While(_)
        )
}

/// The place of an `.await` in an option that is evaluated before the wait for the lock.
pub(super) fn awaits(name: &Ident, value: &Expr) -> Option<Span> {
    match name.unraw().to_string().as_str() {
        // Evaluated instead of the body, or in a separate function.
        "on_timeout" | "on_unavailable" | "map_err" => None,
        _ => awaited(value.to_token_stream()),
    }
}

fn awaited(tokens: TokenStream) -> Option<Span> {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(at) = awaited(group.stream()) {
                    return Some(at);
                }
            }
            TokenTree::Ident(word) if word == "await" => return Some(word.span()),
            // The awaits in an async block or an async closure do not run here.
            TokenTree::Ident(word) if word == "async" => {
                let block = tokens.find(|token| !matches!(token, TokenTree::Ident(_)));
                if !matches!(block, Some(TokenTree::Group(_))) {
                    return None;
                }
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
    None
}

pub(super) fn any(_: &Ident, value: Expr, _: &mut Errors) -> Option<Expr> {
    Some(value)
}

pub(super) fn owner(_: &Ident, value: Expr, errors: &mut Errors) -> Option<Expr> {
    if is_open(&value) {
        return Some(value);
    }
    errors.on(
        &value,
        "`owner` is an expression of type `Owner`, such as a field: `owner = self.owner`",
    );
    None
}

pub(super) fn fire(_: &Ident, value: Expr, errors: &mut Errors) -> Option<Expr> {
    if is_open(&value) {
        return Some(value);
    }
    errors.on(
        &value,
        "`once` is the nominal time for which the function runs, an expression without quotes, such as \
         a parameter: `once = fire_time`",
    );
    None
}

pub(super) fn condition(_: &Ident, value: Expr, errors: &mut Errors) -> Option<Expr> {
    if is_open(&value) || matches!(literal(&value), Some(Lit::Bool(_))) {
        return Some(value);
    }
    match string(&value).and_then(|text| text.parse::<TokenStream>().ok()) {
        Some(condition) if !condition.is_empty() => errors.on(
            &value,
            format_args!("`when` is a condition without quotes: `when = {condition}`"),
        ),
        _ => errors.on(
            &value,
            "`when` is a condition, an expression of type `bool`: `when = amount > 0`",
        ),
    }
    None
}

pub(super) fn function(_: &Ident, value: Expr, errors: &mut Errors) -> Option<Expr> {
    if matches!(value, Expr::Path(_) | Expr::Closure(_)) {
        return Some(value);
    }
    errors.on(
        &value,
        "`map_err` is what makes your error from a `redlock_rt::Error`: a path, \
         `map_err = AppError::Lock`, or a closure, `map_err = |error| AppError::Lock(error)`",
    );
    None
}

pub(super) fn binding(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Ident> {
    match word(&value) {
        Some(word) if syn::parse2::<Ident>(word.to_token_stream()).is_ok() => Some(word.clone()),
        _ => {
            errors.on(
                &value,
                format_args!(
                    "`{name}` is the name that the {} gets in the body: {}",
                    if name.unraw() == "guard" {
                        "guard"
                    } else {
                        "fencing token"
                    },
                    Example(name)
                ),
            );
            None
        }
    }
}

pub(super) fn label(name: &Ident, value: Expr, errors: &mut Errors) -> Option<LitStr> {
    match string(&value) {
        Some(text) if !text.value().trim().is_empty() => return Some(text.clone()),
        Some(_) => errors.on(
            &value,
            "`name` is blank: logs and hooks could not tell the function; leave it out for the \
             function's path",
        ),
        None => errors.on(
            &value,
            format_args!(
                "`name` is text in quotes, what logs and hooks call the function: {}",
                Example(name)
            ),
        ),
    }
    None
}

pub(super) fn switch(name: &Ident, value: Expr, errors: &mut Errors) -> Option<bool> {
    if let Some(Lit::Bool(switch)) = literal(&value) {
        return Some(switch.value);
    }
    errors.on(
        &value,
        format_args!("`{name}` is `true` or `false`: {}", Example(name)),
    );
    None
}

pub(super) fn path(_: &Ident, value: Expr, errors: &mut Errors) -> Option<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Some(path.path),
        other => {
            errors.on(
                &other,
                "`crate` is the path of redlock_rt, without quotes: `crate = ::redlock_rt`",
            );
            None
        }
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
