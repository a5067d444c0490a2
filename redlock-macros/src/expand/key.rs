//! The code that makes the key.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Index, LitStr};

use super::{ExpansionNames, relocated};
use crate::plan::{AccessStep, KeyPart, KeyWhat, Keys, LockedKey};

/// An expression for the key of a call.
pub(super) fn keys(keys: &Keys, names: &ExpansionNames) -> TokenStream {
    let private = &names.private;
    match keys {
        Keys::One(one) => key(one, names),
        Keys::Each(each, span) => {
            let here = Span::mixed_site().located_at(*span);
            let each = each.iter().map(|one| key(one, names));
            quote_spanned!(here=> #private::keys([#(#each),*]))
        }
        Keys::List(list) => {
            let here = Span::mixed_site().located_at(list.span());
            let there = relocated(private, here);
            quote_spanned!(here=> { let keys = #there::list(#list); keys })
        }
    }
}

/// A block for each key. It ends its borrows and locks before the next option is evaluated.
fn key(key: &LockedKey, names: &ExpansionNames) -> TokenStream {
    let here = Span::mixed_site().located_at(key.span);
    let private = &names.private;
    match &key.what {
        KeyWhat::Template { parts, warning } => {
            let segments = parts.iter().map(|part| segment(part, here, private));
            // Only the use of a deprecated item makes the compiler print our warning.
            let warning = warning.as_ref().map(|note| {
                quote_spanned! {here=>
                    #[deprecated(note = #note)]
                    const AMBIGUOUS_KEY: () = ();
                    let () = AMBIGUOUS_KEY;
                }
            });
            quote_spanned!(here=> { #warning let key = #private::key(&[#(#segments),*]); key })
        }
        KeyWhat::Expr(value) => quote_spanned! {here=>
            { let key = #private::key_of(#private::core::format_args!("{}", #value)); key }
        },
    }
}

fn segment(part: &KeyPart, here: Span, private: &TokenStream) -> TokenStream {
    match part {
        KeyPart::Text(text) => {
            let text = LitStr::new(text, here);
            quote_spanned!(here=> #private::Segment::Text(#text))
        }
        KeyPart::Value {
            placeholder,
            root,
            accesses,
            spec,
        } => {
            let placeholder = LitStr::new(placeholder, here);
            let colon = if spec.is_empty() { "" } else { ":" };
            let format = LitStr::new(&format!("{{{colon}{spec}}}"), here);
            let value = value(root, accesses, here);
            quote_spanned! {here=>
                #private::Segment::Value(
                    #placeholder,
                    #private::core::format_args!(#format, #value),
                )
            }
        }
    }
}

/// `user.id()`
fn value(root: &Ident, accesses: &[AccessStep], here: Span) -> TokenStream {
    // In our parentheses, so that the whole has our span. Otherwise rustc takes a missing field for
    // the user's text, and proposes to replace the whole template by a similar name.
    let ours = Span::call_site().located_at(here);
    let root = match accesses {
        [] => root.into_token_stream(),
        _ => quote_spanned!(ours=> (#root)),
    };
    accesses.iter().fold(root, |base, access| match access {
        AccessStep::Field(name) => quote_spanned!(here=> #base.#name),
        AccessStep::Index(index) => {
            let index = Index {
                index: *index,
                span: here,
            };
            quote_spanned!(here=> #base.#index)
        }
        AccessStep::Method(name) => quote_spanned!(here=> #base.#name()),
    })
}
