//! Resolves placeholders to parameters.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;

use super::parameters::unnamed;
use crate::function::Function;
use crate::messages::{did_you_mean, listed, nearest};
use crate::plan::{AccessStep, KeyPart};
use crate::template::{Access, Placeholder};

pub(super) fn value(
    placeholder: Placeholder,
    span: Span,
    function: &Function,
) -> syn::Result<KeyPart> {
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
                Access::Field(name) => AccessStep::Field(identifier(&name, &text, span)?),
                Access::Index(index) => AccessStep::Index(index),
                Access::Method(name) => AccessStep::Method(identifier(&name, &text, span)?),
            })
        })
        .collect::<syn::Result<_>>()?;
    Ok(KeyPart::Value {
        placeholder: text,
        root,
        accesses,
        spec,
    })
}

/// Finds placeholders in the syntax of other libraries, which are text here: `{user_id}`, `#user_id`,
/// `${user_id}`. If such text names a parameter, or nothing, a placeholder was intended: as text it
/// would be one lock for all calls. (Other text in braces is a hash tag of a cluster.)
pub(super) fn foreign(text: &str, span: Span, function: &Function) -> Option<syn::Error> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let bindings = function.bindings();
    let has = |name: &str| bindings.iter().any(|binding| binding.unraw() == name);
    text.char_indices().find_map(|(at, sign)| {
        let rest = &text[at + sign.len_utf8()..];
        let (written, inner) = match sign {
            '{' => {
                let inner = &rest[..rest.find('}')?];
                (format!("{{{inner}}}"), inner.trim_start_matches(['#', '$']))
            }
            '#' | '$' => {
                let inner = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
                (format!("{sign}{inner}"), inner)
            }
            _ => return None,
        };
        let inner = inner.trim();
        let name = &inner[..inner.find(|c| !is_name(c)).unwrap_or(inner.len())];
        let of_self = name == "self" && function.sig.receiver().is_some();
        let meant = match sign {
            '{' if inner.is_empty() => "user_id",
            _ if has(name) || of_self => inner,
            _ => return None,
        };
        Some(syn::Error::new(
            span,
            format_args!(
                "`{written}` is only text here, so this would be one lock for every call; a \
                 placeholder is written `<{meant}>` (if text is what you want, make it by an \
                 expression: `key = format!(..)`)"
            ),
        ))
    })
}

/// `self`, resolved like the receiver and located at the key.
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

/// The parameter `name`, resolved like the parameter and located at the key.
fn parameter(name: &str, span: Span, function: &Function) -> syn::Result<Ident> {
    let bindings = function.bindings();
    if let Some(binding) = bindings.iter().find(|binding| binding.unraw() == name) {
        let mut root = binding.clone();
        root.set_span(binding.span().located_at(span));
        return Ok(root);
    }
    let mut message = format!("no parameter `{name}` to put into the key; ");
    let names: Vec<String> = names(function);
    message += &did_you_mean(nearest(name, names.iter().map(String::as_str)));
    message += &parameters(function);
    if bindings.iter().any(is_positional) {
        message += &format!(
            "\n`#[async_trait]` takes patterns away: to use such a parameter, give it a name, \
             `{name}: ..`, and take it apart in the body"
        );
    }
    for parameter in function.unnamed_parameters() {
        let (pattern, ty, apart) = unnamed(parameter);
        message += &format!(
            "\n`{pattern}: {ty}` has no name: to use it as a whole, write `{name}: {ty}`{apart}"
        );
    }
    Err(syn::Error::new(span, message))
}

fn names(function: &Function) -> Vec<String> {
    let receiver = function.sig.receiver().map(|_| "self".to_owned());
    let bindings = function.bindings().into_iter();
    let bindings = bindings
        .filter(|name| !is_positional(name))
        .map(|name| name.to_string());
    receiver.into_iter().chain(bindings).collect()
}

/// The name that `#[async_trait]` gives to a parameter that is a pattern.
fn is_positional(name: &Ident) -> bool {
    let name = name.to_string();
    let index = name.strip_prefix("__arg");
    index.is_some_and(|index| index.parse::<u16>().is_ok())
}

fn parameters(function: &Function) -> String {
    match names(function).as_slice() {
        [] if !function.sig.inputs.is_empty() => {
            format!("`{}` has no named parameters", function.sig.ident)
        }
        [] => format!("`{}` has no parameters", function.sig.ident),
        names => format!("the parameters are {}", listed(names)),
    }
}

/// A field or a method; raw if its name is a keyword.
fn identifier(name: &str, text: &str, at: Span) -> syn::Result<Ident> {
    if name == "await" {
        return Err(syn::Error::new(
            at,
            format_args!("`<{text}>` cannot await: a key is made before the lock is waited for"),
        ));
    }
    // Not with the span of the user's text: see `expand::key::value`.
    let span = Span::call_site().located_at(at);
    if let Ok(ident) = syn::parse_str::<Ident>(name) {
        return Ok(Ident::new(&ident.to_string(), span));
    }
    let is_keyword = syn::parse::Parser::parse_str(Ident::parse_any, name).is_ok();
    if is_keyword && !matches!(name, "self" | "Self" | "super" | "crate") {
        return Ok(Ident::new_raw(name, span));
    }
    let message = format!("`{name}` in placeholder `<{text}>` is no name");
    Err(syn::Error::new(at, message))
}
