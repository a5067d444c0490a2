//! The options of the attribute, each by itself: what it is called, what it may be set to.
//! Rules that concern several of them, or the function, are in `check`.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, Lit, LitStr, Path, Token};

use crate::duration;
use crate::errors::Errors;
use crate::messages::{Names, nearest};
use crate::template::{self, Segment};

/// Every option, in the order in which messages list them.
const OPTIONS: [&str; 7] = [
    "key", "wait", "lease", "max_hold", "renew", "client", "crate",
];

/// What other libraries call our options. For a hint only: none of them is accepted.
const FOREIGN: [(&str, &str); 12] = [
    ("acquire_timeout", "wait"),
    ("timeout", "wait"),
    ("wait_time", "wait"),
    ("waitTime", "wait"),
    ("expire", "lease"),
    ("lease_time", "lease"),
    ("leaseTime", "lease"),
    ("ttl", "lease"),
    ("at_most", "max_hold"),
    ("lock_at_most_for", "max_hold"),
    ("auto_renew", "renew"),
    ("watchdog", "renew"),
];

/// A value and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    /// Of the first token, if there are several.
    pub(crate) span: Span,
}

/// The options as they were set.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) key: Slot<Vec<Segment>>,
    pub(crate) wait: Slot<Duration>,
    pub(crate) lease: Slot<Duration>,
    pub(crate) max_hold: Slot<Duration>,
    pub(crate) renew: Slot<bool>,
    pub(crate) client: Slot<Expr>,
    pub(crate) krate: Slot<Path>,
}

/// The place of one option.
#[derive(Debug)]
pub(crate) enum Slot<T> {
    Unset,
    /// Set to something that was reported as a mistake: not missing, and a second one is one too
    /// many all the same.
    Invalid,
    Set(Spanned<T>),
}

// Derived, it would ask for `T: Default`.
#[allow(clippy::derivable_impls)]
impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::Unset
    }
}

impl<T> Slot<T> {
    pub(crate) fn get(&self) -> Option<&Spanned<T>> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unset | Self::Invalid => None,
        }
    }

    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Set(value) => Some(value.value),
            Self::Unset | Self::Invalid => None,
        }
    }

    pub(crate) fn is_unset(&self) -> bool {
        matches!(self, Self::Unset)
    }

    /// Sets the option called `name`, unless it has been set before.
    fn set_once(
        &mut self,
        name: &Ident,
        value: Expr,
        errors: &mut Errors,
        read: impl FnOnce(Expr, &mut Errors) -> Option<T>,
    ) {
        if !self.is_unset() {
            errors.at(name.span(), format_args!("`{name}` is set twice"));
            return;
        }
        let span = value.span();
        *self = match read(ungrouped(value), errors) {
            Some(value) => Self::Set(Spanned { value, span }),
            None => Self::Invalid,
        };
    }
}

impl Args {
    /// Reads what stands between the parentheses, as far as it can be read.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.parse_option(input, errors) {
                    errors.push(error);
                    skip_to_comma(input);
                }
                if !input.is_empty()
                    && let Err(error) = input.parse::<Token![,]>()
                {
                    errors.push(error);
                    skip_to_comma(input);
                    let _ = input.parse::<Token![,]>();
                }
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    /// `name = value`
    fn parse_option(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(LitStr) {
            let key: LitStr = input.parse()?;
            let message = format!("options have names: write `key = {:?}`", key.value());
            // One mistake, one message: the key is there, it only lacks its name.
            self.key = Slot::Invalid;
            return Err(syn::Error::new(key.span(), message));
        }
        let name = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            let error = self.without_value(&name);
            skip_to_comma(input);
            return Err(error);
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(self.without_value(&name));
        }
        let value = input.parse()?;
        self.set(&name, value, errors);
        Ok(())
    }

    fn without_value(&mut self, name: &Ident) -> syn::Error {
        let text = name.to_string();
        if text == "key" {
            self.key = Slot::Invalid;
        }
        let example = match text.as_str() {
            "key" => "\"order:<user_id>\"",
            "wait" => "\"1s\"",
            "lease" => "\"30s\"",
            "max_hold" => "\"5m\"",
            "renew" => "true",
            "client" => "self.locks",
            "crate" => "::redlock_rt",
            _ => return unknown(name),
        };
        syn::Error::new(
            name.span(),
            format_args!("`{name}` needs a value: `{name} = {example}`"),
        )
    }

    /// Sets one option. To add another: a field, a line here, its name in `OPTIONS`.
    fn set(&mut self, name: &Ident, value: Expr, errors: &mut Errors) {
        match name.to_string().as_str() {
            "key" => self.key.set_once(name, value, errors, key),
            "wait" => self
                .wait
                .set_once(name, value, errors, |v, e| time(name, v, e)),
            "lease" => self
                .lease
                .set_once(name, value, errors, |v, e| positive(name, v, e)),
            "max_hold" => self
                .max_hold
                .set_once(name, value, errors, |v, e| positive(name, v, e)),
            "renew" => self
                .renew
                .set_once(name, value, errors, |v, e| boolean(name, v, e)),
            "client" => self
                .client
                .set_once(name, value, errors, |value, _| Some(value)),
            "crate" => self.krate.set_once(name, value, errors, path),
            _ => errors.push(unknown(name)),
        }
    }
}

fn unknown(name: &Ident) -> syn::Error {
    let text = name.unraw().to_string();
    let foreign = FOREIGN
        .iter()
        .find(|(foreign, _)| *foreign == text)
        .map(|(_, ours)| *ours);
    let hint = match foreign.or_else(|| nearest(&text, OPTIONS)) {
        Some(meant) => format!("did you mean `{meant}`? "),
        None => String::new(),
    };
    let options = OPTIONS.map(str::to_owned);
    syn::Error::new(
        name.span(),
        format_args!(
            "unknown option `{text}`; {hint}the options are {}",
            Names(&options)
        ),
    )
}

fn key(value: Expr, errors: &mut Errors) -> Option<Vec<Segment>> {
    let Some(literal) = string(&value) else {
        errors.on(
            &value,
            "`key` is a template in quotes, whose placeholders are parameters: \
             `key = \"order:<user_id>\"`",
        );
        return None;
    };
    match template::parse(&literal.value()) {
        Ok(segments) => Some(segments),
        Err(mistakes) => {
            for mistake in mistakes {
                errors.at(literal.span(), mistake);
            }
            None
        }
    }
}

fn time(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Duration> {
    let Some(literal) = string(&value) else {
        let digits = match &value {
            Expr::Lit(ExprLit {
                lit: Lit::Int(number),
                ..
            }) => number.to_string(),
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
        return None;
    };
    duration::parse(&literal.value())
        .map_err(|error| errors.at(literal.span(), format_args!("`{name}`: {error}")))
        .ok()
}

fn positive(name: &Ident, value: Expr, errors: &mut Errors) -> Option<Duration> {
    let span = value.span();
    let time = time(name, value, errors)?;
    if time.is_zero() {
        let meaning = match name.to_string().as_str() {
            "lease" => "a lock that is free again at once; leave it out for the client's lease",
            _ => "a lock that is never held; leave it out for no limit",
        };
        errors.at(
            span,
            format_args!("`{name}` cannot be zero: that would be {meaning}"),
        );
        return None;
    }
    Some(time)
}

fn boolean(name: &Ident, value: Expr, errors: &mut Errors) -> Option<bool> {
    if let Expr::Lit(ExprLit {
        lit: Lit::Bool(value),
        ..
    }) = &value
    {
        return Some(value.value);
    }
    errors.on(&value, format_args!("`{name}` is `true` or `false`"));
    None
}

fn path(value: Expr, errors: &mut Errors) -> Option<Path> {
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

fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        }) if literal.suffix().is_empty() => Some(literal),
        _ => None,
    }
}

/// Without the invisible brackets around what a `macro_rules!` variable stands for.
fn ungrouped(mut value: Expr) -> Expr {
    while let Expr::Group(group) = value {
        value = *group.expr;
    }
    value
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        let _ = input.parse::<proc_macro2::TokenTree>();
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
