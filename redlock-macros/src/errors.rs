//! Collects mistakes, so that all of them are reported at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Reports at all of `tokens`, since one span covers only the first of several tokens.
    pub(crate) fn on(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Returns `value` if there was no mistake.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Self> {
        match self.0 {
            None => Ok(value),
            errors => Err(Self(errors)),
        }
    }

    pub(crate) fn into_compile_error(self) -> TokenStream {
        self.0
            .map(syn::Error::into_compile_error)
            .unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        self.0
            .into_iter()
            .flatten()
            .map(|error| error.to_string())
            .collect()
    }
}

impl From<syn::Error> for Errors {
    fn from(error: syn::Error) -> Self {
        Self(Some(error))
    }
}
