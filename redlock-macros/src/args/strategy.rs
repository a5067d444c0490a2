//! The options for the cases that the lock is not acquired, or is lost.

use proc_macro2::Ident;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprCall};

use super::value::{bare, string, word};
use crate::errors::Errors;
use crate::messages::{code, did_you_mean, meant, nearest, simple};
use crate::plan::{Fallback, OnLostArg};

const FALLBACKS: [&str; 4] = ["error", "skip", "value", "call"];
const FORMS: &str = "`error`, `skip`, `value(expr)` or `call(path)`";

/// The names of strategies in other libraries, in lower case and as one word. For hints only.
const FOREIGN: [(&str, &str); 19] = [
    ("throw", "error"),
    ("throwing", "error"),
    ("raise", "error"),
    ("fail", "error"),
    ("failfast", "error"),
    ("exception", "error"),
    ("err", "error"),
    ("panic", "error"),
    ("ignore", "skip"),
    ("default", "skip"),
    ("none", "skip"),
    ("returndefault", "skip"),
    ("skipimmediately", "skip"),
    ("return", "value(expr)"),
    ("fallback", "call(path)"),
    ("custom", "call(path)"),
    ("handler", "call(path)"),
    ("handle", "call(path)"),
    ("function", "call(path)"),
];

/// Names of strategies that we do not have.
const UNLOCKED: [&str; 12] = [
    "rununlocked",
    "unlocked",
    "run",
    "runanyway",
    "proceed",
    "continue",
    "goon",
    "bypass",
    "failopen",
    "open",
    "nooperation",
    "noop",
];

pub(super) fn fallback(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Fallback> {
    let (strategy, call) = match &value {
        Expr::Call(call) => (&*call.func, Some(call)),
        other => (other, None),
    };
    let Some(text) = text(strategy) else {
        match &value {
            Expr::Path(path) => errors.on(
                &value,
                format_args!(
                    "`{name}` is {FORMS}; did you mean `call({})`?",
                    code(&path.path)
                ),
            ),
            _ => errors.on(&value, format_args!("`{name}` is {FORMS}")),
        }
        return None;
    };
    if string(strategy).is_some() && FALLBACKS.contains(&text.as_str()) {
        let form = form(&text);
        errors.on(
            &value,
            format_args!("a strategy is written without quotes: `{name} = {form}`"),
        );
        return None;
    }
    match (text.as_str(), call) {
        ("error", None) => Some(Fallback::Error),
        ("skip", None) => Some(Fallback::Skip(value.span())),
        ("error" | "skip", Some(call)) => {
            errors.on(
                call,
                format_args!(
                    "`{text}` takes no arguments: write `{name} = {text}`, or `value(expr)` to \
                     return something else"
                ),
            );
            None
        }
        ("value", _) => only_argument(call)
            .or_else(|| {
                errors.on(
                    &value,
                    format_args!(
                        "`value` needs one expression, what the function returns then: \
                         `{name} = value(Ok(None))`"
                    ),
                );
                None
            })
            .map(Fallback::Value),
        ("call", _) => match only_argument(call) {
            Some(Expr::Path(path)) => Some(Fallback::Call(path)),
            _ => {
                errors.on(
                    &value,
                    format_args!(
                        "`call` needs one path, of an async function that takes the same \
                         parameters: `{name} = call(Self::busy)`"
                    ),
                );
                None
            }
        },
        _ => {
            errors.push(unknown(name, &value, strategy, &text, call));
            None
        }
    }
}

/// A strategy as it was written: a word, a word in quotes, or one that is a keyword.
fn text(strategy: &Expr) -> Option<String> {
    match strategy {
        Expr::Continue(_) => Some("continue".to_owned()),
        Expr::Return(_) => Some("return".to_owned()),
        other => match string(other) {
            Some(text) => Some(text.value()),
            None => word(other).map(ToString::to_string),
        },
    }
}

/// How a strategy is written.
fn form(strategy: &str) -> &str {
    match strategy {
        "value" => "value(expr)",
        "call" => "call(path)",
        word => word,
    }
}

fn only_argument(call: Option<&ExprCall>) -> Option<Expr> {
    let arguments = &call?.args;
    match arguments.len() {
        1 => arguments.first().cloned().map(bare),
        _ => None,
    }
}

fn unknown(
    name: &Ident,
    value: &Expr,
    strategy: &Expr,
    text: &str,
    call: Option<&ExprCall>,
) -> syn::Error {
    let simple = simple(text);
    if UNLOCKED.contains(&simple.as_str()) {
        return syn::Error::new_spanned(
            value,
            format_args!(
                "`{text}`: the body never runs without its lock, or what the lock guards would be \
                 broken just when there is trouble; `{name}` is {FORMS}"
            ),
        );
    }
    let meant = match meant(text, &FOREIGN, &FALLBACKS) {
        // `Ok(None)`, `Err(AppError::Busy)`
        _ if call.is_some() && text.starts_with(char::is_uppercase) => {
            Some(format!("value({})", code(value)))
        }
        Some(meant) => Some(form(meant).to_owned()),
        // `busy(user_id)`
        None => call.map(|_| format!("call({text})")),
    };
    let hint = match simple.as_str() {
        "retry" | "wait" | "keepacquire" | "block" if name == "on_timeout" => {
            "to wait longer, set a longer `wait`; ".to_owned()
        }
        _ => did_you_mean(meant),
    };
    syn::Error::new_spanned(
        strategy,
        format_args!("unknown strategy `{text}`; {hint}`{name}` is {FORMS}"),
    )
}

pub(super) fn on_lost(_: &Ident, value: Expr, errors: &mut Errors) -> Option<OnLostArg> {
    const STRATEGIES: [(&str, OnLostArg); 3] = [
        ("cancel", OnLostArg::Cancel),
        ("finish", OnLostArg::Finish),
        ("error_after", OnLostArg::ErrorAfter),
    ];
    const LIST: &str = "`on_lost` is `cancel` (the body is dropped), `finish` (it runs to its end \
                        and keeps its value) or `error_after` (it runs to its end, then the loss \
                        is returned)";
    let strategy = match &value {
        Expr::Call(call) => &*call.func,
        other => other,
    };
    let Some(text) = text(strategy) else {
        errors.on(&value, LIST);
        return None;
    };
    if let Some((_, strategy)) = STRATEGIES.iter().find(|(word, _)| *word == text) {
        if word(&value).is_some() {
            return Some(*strategy);
        }
        errors.on(
            &value,
            format_args!("`{text}` is a word, without quotes or arguments: `on_lost = {text}`"),
        );
        return None;
    }
    let meant = match simple(&text).as_str() {
        "ignore" | "continue" | "run" | "goon" | "log" | "noop" | "nooperation" => Some("finish"),
        "abort" | "drop" | "stop" | "kill" | "interrupt" | "failfast" => Some("cancel"),
        "error" | "throw" | "fail" | "raise" | "throwafter" => Some("error_after"),
        _ => nearest(&text, STRATEGIES.map(|(word, _)| word)),
    };
    let hint = did_you_mean(meant);
    errors.on(
        strategy,
        format_args!("unknown strategy `{text}`; {hint}{LIST}"),
    );
    None
}

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod tests;
