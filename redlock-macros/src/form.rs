//! Where the work of a function is done: in its body, or in a boxed future that it returns.
//! `#[async_trait]` turns an `async fn` into the latter, and users write it by hand where an
//! `async fn` is not possible.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt as _};
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, GenericArgument, PathArguments, Token, Type, TypeParamBound, braced, token};

/// A body that ends in `Box::pin(async move { .. })`.
#[derive(Debug)]
pub(crate) struct Boxed {
    /// The statements before it. None of them returns.
    pub(crate) before: TokenStream,
    /// `Box::pin`, as it was written.
    pub(crate) pin: TokenStream,
    paren: token::Paren,
    /// The attributes of the async block.
    pub(crate) attrs: Vec<Attribute>,
    /// `async move`, or only the first.
    pub(crate) keywords: TokenStream,
    pub(crate) brace: token::Brace,
    /// `#![..]` at the start of the block.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// The content of the block.
    pub(crate) body: TokenStream,
}

impl Boxed {
    /// Reads the body of a function; `None` if it ends in another way.
    pub(crate) fn read(body: TokenStream) -> Option<Self> {
        let mut tokens: Vec<TokenTree> = body.into_iter().collect();
        // The value of a `macro_rules!` variable is in invisible brackets.
        while let Some(group) = group(tokens.last(), Delimiter::None) {
            tokens.pop();
            tokens.extend(group.stream());
        }
        let paren = group(tokens.last(), Delimiter::Parenthesis)?;
        tokens.pop();
        let pin = tokens.split_off(path_start(&tokens)?);
        let before: TokenStream = tokens.into_iter().collect();
        if returns(before.clone()) {
            return None;
        }
        let block = |input: ParseStream<'_>| {
            let attrs = input.call(Attribute::parse_outer)?;
            let asyncness: Token![async] = input.parse()?;
            let capture: Option<Token![move]> = input.parse()?;
            let content;
            let brace = braced!(content in input);
            let inner_attrs = content.call(Attribute::parse_inner)?;
            let body = content.parse()?;
            input.parse::<Option<Token![,]>>()?;
            let mut keywords = asyncness.into_token_stream();
            capture.to_tokens(&mut keywords);
            Ok(Self {
                before,
                pin: pin.into_iter().collect(),
                paren: token::Paren {
                    span: paren.delim_span(),
                },
                attrs,
                keywords,
                brace,
                inner_attrs,
                body,
            })
        };
        block.parse2(paren.stream()).ok()
    }

    /// The body of the function, with `body` instead of the content of the async block.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let mut tokens = self.before.clone();
        self.pin.to_tokens(&mut tokens);
        self.paren.surround(&mut tokens, |tokens| {
            tokens.append_all(&self.attrs);
            self.keywords.to_tokens(tokens);
            self.brace.surround(tokens, |tokens| {
                tokens.append_all(&self.inner_attrs);
                body.to_tokens(tokens);
            });
        });
        tokens
    }
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group.clone()),
        _ => None,
    }
}

/// The start of the path at the end of `tokens`, if it is a path to `Box::pin` and starts a
/// statement.
fn path_start(tokens: &[TokenTree]) -> Option<usize> {
    let mut rest = tokens;
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    let mut names = Vec::new();
    while let [before @ .., TokenTree::Ident(name)] = rest {
        names.push(name.to_string());
        rest = before;
        match rest {
            [before @ .., first, second] if is_colon(first) && is_colon(second) => rest = before,
            _ => break,
        }
    }
    let is_box_pin = matches!(&names[..], [pin, of, ..] if pin == "pin" && of == "Box");
    let is_start = match rest.last() {
        None => true,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(_) => false,
    };
    (is_box_pin && is_start).then_some(rest.len())
}

/// Whether the function may return before the future at its end.
fn returns(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "return",
        TokenTree::Group(group) => returns(group.stream()),
        _ => false,
    })
}

/// `R` of `Pin<Box<dyn Future<Output = R> + ..>>` and of `BoxFuture<'_, R>`.
pub(crate) fn boxed_output(ty: &Type) -> Option<&Type> {
    match name(ty)?.as_str() {
        "BoxFuture" | "LocalBoxFuture" => return first_argument(ty),
        "Pin" => {}
        _ => return None,
    }
    let boxed = first_argument(ty).filter(|ty| name(ty).as_deref() == Some("Box"))?;
    let Type::TraitObject(object) = ungrouped(first_argument(boxed)?) else {
        return None;
    };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let future = bound.path.segments.last()?;
        let PathArguments::AngleBracketed(arguments) = &future.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(output)
                if future.ident == "Future" && output.ident == "Output" =>
            {
                Some(&output.ty)
            }
            _ => None,
        })
    })
}

/// The name of a type, without its path.
pub(crate) fn name(ty: &Type) -> Option<String> {
    match ungrouped(ty) {
        Type::Path(ty) => Some(ty.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// `T` of `Result<T, E>`.
pub(crate) fn first_argument(ty: &Type) -> Option<&Type> {
    let Type::Path(ty) = ungrouped(ty) else {
        return None;
    };
    let PathArguments::AngleBracketed(arguments) = &ty.path.segments.last()?.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

pub(crate) fn ungrouped(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        };
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
