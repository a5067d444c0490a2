//! Options that depend on the parameters of the function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::{LitStr, Pat, PatType};

use crate::args::{Args, KeyArg, KeysArg};
use crate::errors::Errors;
use crate::function::Function;
use crate::messages::code;
use crate::plan::Fallback;
use crate::template::{self, TemplateSegment};

const ALONE: &str = "a template is a literal by itself; write it with nothing around it";
const LISTED: &str = "templates are literals in a list by itself; write `keys = [..]`";

pub(super) fn check(args: &Args, function: &Function, errors: &mut Errors) {
    shadowed(args, function, errors);
    passed_on(args, function, errors);
    match args.key.get().map(|key| &key.value) {
        Some(KeyArg::Expr(key)) => unfilled(key, ALONE, function, errors),
        Some(KeyArg::Template(_)) | None => {}
    }
    match args.keys.get().map(|keys| &keys.value) {
        Some(KeysArg::List(list)) => unfilled(list, LISTED, function, errors),
        Some(KeysArg::Each(each)) => {
            for key in each {
                if let KeyArg::Expr(key) = &key.value {
                    unfilled(key, ALONE, function, errors);
                }
            }
        }
        None => {}
    }
    if let Some(name) = args.name.get()
        && let Some(placeholder) = placeholder(&name.value, function)
    {
        errors.at(
            name.span,
            format_args!(
                "`<{placeholder}>` is not filled in here: a `name` is the same for every call; \
                 leave the placeholder out"
            ),
        );
    }
}

/// A name that is bound in the body hides the parameter of that name.
fn shadowed(args: &Args, function: &Function, errors: &mut Errors) {
    let parameters = function.bindings();
    for (option, binding) in [("guard", args.guard.get()), ("token", args.token.get())] {
        let Some(binding) = binding else { continue };
        if parameters.iter().any(|name| same(name, &binding.value)) {
            errors.at(
                binding.span,
                format_args!(
                    "`{}` is a parameter, which the {option} would hide: give it another name",
                    binding.value
                ),
            );
        }
    }
}

/// Names that several attributes bind: the inner one would hide the outer one.
pub(super) fn bound_twice(attributes: &[Args], errors: &mut Errors) {
    let mut bound: Vec<&Ident> = Vec::new();
    for args in attributes {
        let before = bound.len();
        for binding in [args.guard.get(), args.token.get()].into_iter().flatten() {
            if bound[..before]
                .iter()
                .any(|name| same(name, &binding.value))
            {
                errors.at(
                    binding.span,
                    format_args!(
                        "`{}` is bound by an attribute above already: give it another name",
                        binding.value
                    ),
                );
            }
            bound.push(&binding.value);
        }
    }
}

pub(super) fn same(one: &Ident, other: &Ident) -> bool {
    one.unraw() == other.unraw()
}

/// `call(path)` gets the parameters, so each of them has a name.
fn passed_on(args: &Args, function: &Function, errors: &mut Errors) {
    for fallback in [args.on_timeout.get(), args.on_unavailable.get()] {
        let Some(fallback) = fallback else { continue };
        if !matches!(fallback.value, Fallback::Call(_)) {
            continue;
        }
        for parameter in function.typed_parameters().filter(|p| !has_only_name(p)) {
            let (pattern, ty, apart) = unnamed(parameter);
            errors.at(
                fallback.span,
                format_args!(
                    "`call` passes the parameters on, and `{pattern}: {ty}` has no name to do so: \
                     write `argument: {ty}`{apart}"
                ),
            );
        }
    }
}

fn has_only_name(parameter: &PatType) -> bool {
    matches!(&*parameter.pat, Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none())
}

/// The pattern and the type of a parameter without a name, and what to do with the pattern once it has one.
pub(super) fn unnamed(parameter: &PatType) -> (String, String, &'static str) {
    let apart = match &*parameter.pat {
        Pat::Wild(_) => "",
        _ => " and take it apart in the body",
    };
    (code(&parameter.pat), code(&parameter.ty), apart)
}

/// Looks for templates inside an expression. There they would be plain text: one lock for all
/// calls.
fn unfilled(key: impl ToTokens, fix: &str, function: &Function, errors: &mut Errors) {
    for literal in literals(key.to_token_stream()) {
        if let Some(placeholder) = placeholder(&literal, function) {
            errors.at(
                literal.span(),
                format_args!("`<{placeholder}>` is not filled in here: {fix}, or use `format!`"),
            );
        }
    }
}

fn literals(tokens: TokenStream) -> Vec<LitStr> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => {
                found.extend(syn::parse2(literal.into_token_stream()).ok())
            }
            TokenTree::Group(group) => found.extend(literals(group.stream())),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    found
}

/// A placeholder in `text` that would be filled in if `text` were a template.
fn placeholder(text: &LitStr, function: &Function) -> Option<String> {
    let segments = template::parse(&text.value()).ok()?;
    segments.into_iter().find_map(|segment| match segment {
        TemplateSegment::Placeholder(placeholder)
            if super::placeholder::value(placeholder.clone(), Span::call_site(), function)
                .is_ok() =>
        {
            Some(placeholder.text)
        }
        _ => None,
    })
}

#[cfg(test)]
#[path = "parameters_tests.rs"]
mod tests;
