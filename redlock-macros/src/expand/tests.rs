use proc_macro2::{Delimiter, Group};
use proptest::prelude::*;

use quote::ToTokens as _;

use super::*;

fn expand(args: &str, item: &str) -> syn::Result<syn::File> {
    let tokens = distributed_lock(args.parse().expect("tokens"), item.parse().expect("tokens"));
    syn::parse2(tokens)
}

/// The names of the items in an expansion, in order.
fn names(file: &syn::File) -> Vec<String> {
    let name = |item: &syn::Item| match item {
        syn::Item::Fn(item) => item.sig.ident.to_string(),
        syn::Item::Struct(item) => item.ident.to_string(),
        syn::Item::Macro(item) => item.mac.path.to_token_stream().to_string().replace(' ', ""),
        _ => "?".to_owned(),
    };
    file.items.iter().map(name).collect()
}

#[test]
fn a_function_becomes_one_function() {
    let item = "/// Doc.\n#[inline] pub(crate) async fn place(id: u64) -> Result<(), E> { Ok(()) }";
    let file = expand("key = \"order:<id>\", wait = \"1s\"", item).expect("items");
    let [syn::Item::Fn(function)] = &file.items[..] else {
        panic!("{:?}", names(&file))
    };
    assert_eq!(function.attrs.len(), 2);
    assert!(function.sig.asyncness.is_some());
    assert!(matches!(function.vis, syn::Visibility::Restricted(_)));
}

/// The calls in the expansion that the documentation shows are also in the real expansion.
#[test]
fn the_documented_expansion_is_the_expansion() {
    let page = include_str!("../../docs/distributed_lock.md");
    let (before, shown) = page.split_once("# Expansion").expect("the section");
    let example = before.split("```").nth(1).expect("the first example");
    let (_, example) = example.split_once("#[distributed_lock").expect("attribute");
    let (args, item) = example.split_once(']').expect("attribute");
    let item = item.split("\n\n").next().expect("function");
    let file = expand(args.trim_matches(['(', ')']), item).expect("items");
    let simple = |text: &str| {
        let path = |text: String, from: &str| text.replace(from, "");
        let text = text.split_whitespace().collect::<String>();
        let text = path(text, "::redlock_rt::");
        let text = path(text, "__private::core::option::Option::");
        let text = path(text, "__private::core::time::");
        let text = path(text, "__private::core::");
        text.replace(",)", ")").replace(",]", "]")
    };
    let expansion = simple(&file.to_token_stream().to_string());
    let expansion = expansion.replace("{letkey=", "").replace(";key}", "");
    let shown = shown.split("```").nth(1).expect("code");
    let calls = shown
        .split([';', '\n'])
        .map(|line| simple(line).trim_matches([',', '{']).to_owned())
        .filter(|line| line.contains("__private::") && !line.contains("FromLockError"));
    let calls: Vec<String> = calls.collect();
    assert!(calls.len() > 5, "{calls:?}");
    for call in calls {
        assert!(expansion.contains(&call), "{call} in {expansion}");
    }
}

#[test]
fn a_mistake_keeps_the_function_as_it_was() {
    let item = "async fn place(id: u64) -> Result<(), E> { Ok(()) }";
    let file = expand("wait = \"1s\"", item).expect("items");
    assert_eq!(names(&file), ["::core::compile_error", "place"]);
    let syn::Item::Fn(function) = &file.items[1] else {
        panic!("{:?}", names(&file))
    };
    let original: syn::ItemFn = syn::parse_str(item).expect("item");
    assert_eq!(function.block.stmts.len(), original.block.stmts.len());
}

#[test]
fn something_else_stays_what_it_is() {
    let file = expand("whatever ,, this is", "struct Order;").expect("items");
    assert_eq!(names(&file), ["::core::compile_error", "Order"]);
}

#[test]
fn a_mistake_in_a_further_attribute_is_reported_too() {
    let item = "#[distributed_lock] #[a::distributed_lock(colour = 1)] async fn f() -> R {}";
    let file = expand("key = \"k\", key = \"k\"", item).expect("items");
    let error = "::core::compile_error";
    // Set twice; no key; unknown option, no key.
    assert_eq!(names(&file), [error, error, error, error, "f"]);
}

#[test]
fn opaque_types_are_left_to_inference() {
    let erased_of = |ty: TokenStream| {
        let ty = erase_impl_trait(syn::parse2(ty).expect("type"));
        ty.to_token_stream().to_string().replace(' ', "")
    };
    let erased = |ty: &str| erased_of(ty.parse().expect("tokens"));
    assert_eq!(erased("Result<impl Fn(u8) -> u8, E>"), "Result<_,E>");
    assert_eq!(
        erased("Result<(Vec<impl A>, &'a impl B, [impl C; 2]), E>"),
        "Result<(Vec<_>,&'a_,[_;2]),E>"
    );
    assert_eq!(erased("Result<Box<dyn A>, E>"), "Result<Box<dynA>,E>");
    assert_eq!(
        erased("Result<((impl A), Box<[impl B]>), E>"),
        "Result<((_),Box<[_]>),E>"
    );
    // The value of a `macro_rules!` variable is in invisible brackets.
    let variable = Group::new(Delimiter::None, quote!(impl A));
    assert_eq!(erased_of(quote!(Result<#variable, E>)), "Result<_,E>");
}

/// Tokens that are valid in attributes and functions, and tokens that are not.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "key",
        "=",
        "\"order:<id>\"",
        "\"<\"",
        ",",
        "wait",
        "\"1s\"",
        "lease",
        "crate",
        "::a",
        "client",
        "self",
        "1s",
        "true",
        "renew",
        "( )",
        "(a = 1)",
        "{ }",
        "[ ]",
        "-",
        "r#type",
        "'a",
        "'c'",
        "b\"\"",
        "async",
        "fn",
        "f",
        "(id: u64)",
        "(&self, _: u8)",
        "-> Result<(), E>",
        "const",
        "unsafe",
        "extern",
        "pub",
        "struct",
        "impl",
        ";",
        "#[a]",
        "#![a]",
        "#",
        "default",
        "where T: A",
        "<T>",
        "!",
        "mut",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #[test]
    fn never_panics(args in pieces(), item in pieces()) {
        if let (Ok(args), Ok(item)) = (args.parse(), item.parse()) {
            let _ = distributed_lock(args, item);
        }
    }

    #[test]
    fn options_never_panic_on_a_function(args in pieces()) {
        let item = "async fn f(id: u64) -> Result<(), E> { Ok(()) }";
        if let Ok(args) = args.parse::<TokenStream>() {
            let tokens = distributed_lock(args, item.parse().expect("tokens"));
            let file: syn::File = syn::parse2(tokens).expect("items");
            prop_assert_eq!(names(&file).pop(), Some("f".to_owned()));
        }
    }

    #[test]
    fn keys_never_panic_on_a_function(key in "([<>.:()#r0 $^*?\\[]|id|self|::|é|await|_){0,16}") {
        let item = "async fn f(&self, id: u64) -> Result<(), E> { Ok(()) }";
        let args = format!("key = {key:?}");
        let file = expand(&args, item).expect("items");
        prop_assert_eq!(names(&file).pop(), Some("f".to_owned()));
    }
}
