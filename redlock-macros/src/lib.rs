//! The `#[distributed_lock]` attribute.

use proc_macro::TokenStream;

mod args;
mod check;
mod duration;
mod errors;
mod expand;
mod function;
mod messages;
mod template;

/// TODO docs
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}
