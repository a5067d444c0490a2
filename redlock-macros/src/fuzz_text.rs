//! The fuzz target of the attribute, which `tests/fuzz` includes.

use proc_macro2::TokenStream;

use crate::expand::distributed_lock;

/// The first line is the text in the parentheses, and the rest the function. The result is Rust, with or
/// without messages.
pub(crate) fn any_text_is_expanded(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let (args, item) = text.split_once('\n').unwrap_or((text, ""));
    let item = match item {
        "" => "async fn f(&self, id: u64) -> Result<(), E> { Ok(()) }",
        item => item,
    };
    let (Ok(args), Ok(item)) = (args.parse::<TokenStream>(), item.parse::<TokenStream>()) else {
        return;
    };
    let is_function = syn::parse2::<syn::ImplItemFn>(item.clone()).is_ok();
    let expanded = distributed_lock(args, item);
    if is_function {
        let read = syn::parse2::<syn::File>(quote::quote!(impl S { #expanded }));
        assert!(read.is_ok(), "{:?} of {expanded}", read.err());
    }
}
