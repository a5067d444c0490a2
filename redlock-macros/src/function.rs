//! The annotated function. Its body is kept as tokens, so that it compiles as fast as without the
//! attribute, and half-typed code still completes in an editor.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, TokenStreamExt as _};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, FnArg, Pat, PatType, ReturnType, Signature, Token, Type, Visibility, braced, token,
};

use crate::form::{self, Boxed};

/// A function with a body.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    /// `default` of a specialised method.
    pub(crate) defaultness: Option<Token![default]>,
    pub(crate) sig: Signature,
    pub(crate) brace: token::Brace,
    /// `#![..]` at the start of the body.
    pub(crate) inner_attrs: Vec<Attribute>,
    pub(crate) body: TokenStream,
    /// Whether it is not async: its caller's thread waits for the lock.
    pub(crate) blocking: bool,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let defaultness = input.parse()?;
        if let Some(what) = other_item(input) {
            return Err(input.error(format_args!(
                "`#[distributed_lock]` goes on an async function or method, not on {what}"
            )));
        }
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(syn::Error::new_spanned(
                &sig.ident,
                format_args!(
                    "`{}` has no body that could run under a lock: put the attribute on the \
                     method of each impl",
                    sig.ident
                ),
            ));
        }
        let content;
        let brace = braced!(content in input);
        let inner_attrs = content.call(Attribute::parse_inner)?;
        let body = content.parse()?;
        Ok(Self {
            attrs,
            vis,
            defaultness,
            sig,
            brace,
            inner_attrs,
            body,
            blocking: false,
        })
    }
}

/// Names the item that was found instead of a function.
fn other_item(input: ParseStream<'_>) -> Option<&'static str> {
    let ahead = input.fork();
    ahead.parse::<Option<Token![unsafe]>>().ok()?;
    let word = ahead.call(Ident::parse_any).ok()?;
    Some(match word.to_string().as_str() {
        "const" if input.peek3(Token![:]) => "a constant",
        "struct" => "a struct",
        "enum" => "an enum",
        "union" => "a union",
        "trait" => "a trait: put it on the methods",
        "impl" => "an impl block: put it on the methods",
        "mod" => "a module",
        "static" => "a static",
        "type" => "a type alias",
        "use" => "an import",
        "macro_rules" => "a macro",
        _ => return None,
    })
}

impl Function {
    /// The function with `body` instead of its body.
    pub(crate) fn with_body(&self, body: &TokenStream, tokens: &mut TokenStream) {
        tokens.append_all(&self.attrs);
        self.vis.to_tokens(tokens);
        self.defaultness.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        self.brace.surround(tokens, |tokens| {
            tokens.append_all(&self.inner_attrs);
            body.to_tokens(tokens);
        });
    }

    /// The boxed future, if the function returns one and its body visibly makes it. Otherwise the work is done in
    /// the body: `check` refuses a function that does it elsewhere.
    pub(crate) fn boxed(&self) -> Option<Boxed> {
        let (None, ReturnType::Type(_, ty)) = (&self.sig.asyncness, &self.sig.output) else {
            return None;
        };
        form::boxed_output(ty).filter(|_| !self.blocking)?;
        Boxed::read(self.body.clone())
    }

    /// The output type of the work: the return type, or the output of the returned future.
    pub(crate) fn output(&self) -> Option<&Type> {
        match &self.sig.output {
            ReturnType::Type(_, ty) if self.sig.asyncness.is_none() && !self.blocking => {
                form::boxed_output(ty)
            }
            ReturnType::Type(_, ty) => Some(ty),
            ReturnType::Default => None,
        }
    }

    /// The names of the parameters in the body, without `self`.
    pub(crate) fn bindings(&self) -> Vec<Ident> {
        let mut names = Vec::new();
        for parameter in self.typed_parameters() {
            bound_names(&parameter.pat, &mut names);
        }
        names
    }

    /// The parameters without a name: `Path(id): Path<u64>`, `_: Request`.
    pub(crate) fn unnamed_parameters(&self) -> impl Iterator<Item = &PatType> {
        self.typed_parameters()
            .filter(|parameter| !matches!(&*parameter.pat, Pat::Ident(_)))
    }

    pub(crate) fn typed_parameters(&self) -> impl Iterator<Item = &PatType> {
        self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        })
    }
}

fn bound_names(pattern: &Pat, names: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(pattern) => {
            names.push(pattern.ident.clone());
            if let Some((_, pattern)) = &pattern.subpat {
                bound_names(pattern, names);
            }
        }
        Pat::Paren(pattern) => bound_names(&pattern.pat, names),
        Pat::Reference(pattern) => bound_names(&pattern.pat, names),
        Pat::Slice(pattern) => pattern.elems.iter().for_each(|p| bound_names(p, names)),
        Pat::Struct(pattern) => pattern
            .fields
            .iter()
            .for_each(|f| bound_names(&f.pat, names)),
        Pat::Tuple(pattern) => pattern.elems.iter().for_each(|p| bound_names(p, names)),
        Pat::TupleStruct(pattern) => pattern.elems.iter().for_each(|p| bound_names(p, names)),
        // Every alternative binds the same names.
        Pat::Or(pattern) => pattern
            .cases
            .iter()
            .take(1)
            .for_each(|p| bound_names(p, names)),
        _ => {}
    }
}
