//! The attribute `#[distributed_lock]` of `redlock-rt`. Depend on `redlock-rt`, which re-exports
//! the attribute, not on this crate.
//!
//! # Layout
//!
//! An expansion passes through the files in this order. Each file uses only files above it:
//!
//! | file | from | to |
//! | --- | --- | --- |
//! | `template`, `duration`, `messages` | `&str` | pure functions, no tokens |
//! | `function`, `form` | tokens | the annotated function, with an unparsed body |
//! | `args` | tokens | options, each valid by itself |
//! | `check` | options, function | a valid `plan` |
//! | `expand` | plan, function | tokens |

#![warn(clippy::unwrap_used)]

use proc_macro::TokenStream;

mod args;
mod check;
mod duration;
mod errors;
mod expand;
mod form;
mod function;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod fuzz_text;
mod messages;
mod plan;
mod template;

// The library of the tests runs the examples, and `tests/attribute` tests the attribute. A development dependency of a
// procedural macro would be built a second time, as a part of the compiler.
#[cfg_attr(not(doctest), doc = include_str!("../docs/distributed_lock.md"))]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}
