//! No input makes the parser panic, and each input ends in a plan or in a message.
//! `REDLOCK_SOAK=1` tries many more inputs.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use proptest::prelude::*;
use proptest::sample::select;

use crate::args::Args;
use crate::check::check;
use crate::errors::Errors;
use crate::form::Boxed;
use crate::function::Function;
use crate::fuzz_text::any_text_is_expanded;
use crate::{duration, template};

fn config() -> ProptestConfig {
    let soak = std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
    ProptestConfig::with_cases(if soak { 20_000 } else { 400 })
}

/// Options that are each valid alone.
const OPTIONS: [&str; 45] = [
    r#"key = "order:<id>""#,
    r#"key = "<self.a.b():08x>""#,
    "key = order.key()",
    r#"keys = ["a:<id>", other, "b"]"#,
    "keys = ids.iter()",
    r#"wait = "1s""#,
    "wait = forever",
    "wait = self.patience",
    r#"lease = "30s""#,
    r#"lease = "1s""#,
    r#"renew = "3s""#,
    "renew = false",
    "renew = how_often()",
    r#"max_hold = "5m""#,
    r#"max_hold = "1s""#,
    "max_hold = { limit }",
    r#"min_hold = "10s""#,
    "replica_ack = majority",
    "replica_ack = 2",
    "replica_ack = { ack }",
    "fsync = all",
    "fsync = { fsync }",
    "kind = fair",
    "kind = read",
    "kind = fenced",
    "kind = semaphore(limit = 3, take = 2)",
    "kind = semaphore(limit = limit)",
    "client = self.locks",
    "owner = &self.owner",
    "on_timeout = skip",
    "on_timeout = value(Ok(None))",
    "on_timeout = call(Self::busy)",
    "on_unavailable = error",
    "on_unavailable = value(Err(E::Down))",
    "on_lost = finish",
    "on_lost = error_after",
    "map_err = E::Lock",
    "map_err = |error| E::Lock(error)",
    "when = amount > 0",
    "guard = held",
    "guard = id",
    "token = number",
    "token = held",
    r#"name = "order""#,
    "crate = ::a::b",
];

/// Tokens that are valid in options, and tokens that are not.
const PIECES: [&str; 67] = [
    "key",
    "keys",
    "kind",
    "wait",
    "lease",
    "renew",
    "max_hold",
    "min_hold",
    "replica_ack",
    "fsync",
    "client",
    "owner",
    "on_timeout",
    "on_unavailable",
    "on_lost",
    "map_err",
    "when",
    "guard",
    "token",
    "name",
    "crate",
    "type",
    "r#key",
    "colour",
    "=",
    "=",
    "=",
    "=",
    ",",
    ",",
    "\"a:<id>\"",
    "\"<\"",
    "\"1s\"",
    "\"\"",
    "1s",
    "0",
    "-",
    "5000000000",
    "1.5",
    "true",
    "forever",
    "none",
    "majority",
    "fair",
    "semaphore",
    "limit",
    "take",
    "skip",
    "value",
    "call",
    "continue",
    "return",
    "cancel",
    "self",
    "::",
    ".",
    "&",
    "|",
    "!",
    "?",
    "_",
    "'a",
    "'c'",
    "#",
    "await",
    "async",
    "b\"\"",
];

const FUNCTIONS: [&str; 8] = [
    "async fn f(&self, id: u64) -> Result<(), E> { Ok(()) }",
    "async fn f(id: u64, other: &str) -> Result<(), E> { Ok(()) }",
    "async fn f(Path(id): Path<u64>, _: u8) -> Result<(), E> { Ok(()) }",
    "async fn f() {}",
    "fn f(id: u64) -> Pin<Box<dyn Future<Output = R>>> { Box::pin(async move { r }) }",
    "fn f(__arg0: u64) -> BoxFuture<'_, ()> { Box::pin(async move { r }) }",
    "fn f(id: u64) -> impl Future<Output = R> { r }",
    "const fn f(id: u64) -> R { r }",
];

/// Pieces, some of them in brackets, also invisible ones as around macro variables.
fn soup(pieces: &'static [&'static str]) -> impl Strategy<Value = TokenStream> {
    let leaf = select(pieces).prop_map(|piece| piece.parse().expect("tokens"));
    leaf.prop_recursive(4, 48, 8, |inner| {
        let delimiter = select(
            &[
                Delimiter::Parenthesis,
                Delimiter::Bracket,
                Delimiter::Brace,
                Delimiter::None,
            ][..],
        );
        let inner = prop::collection::vec(inner, 0..8);
        prop_oneof![
            3 => inner.clone().prop_map(concat),
            1 => (delimiter, inner).prop_map(|(delimiter, inner)| {
                TokenTree::Group(Group::new(delimiter, concat(inner))).into()
            }),
        ]
    })
}

fn concat(streams: Vec<TokenStream>) -> TokenStream {
    streams.into_iter().collect()
}

/// Valid options in which one token is removed, doubled or replaced.
fn mutilated() -> impl Strategy<Value = TokenStream> {
    let options = prop::collection::vec(select(&OPTIONS[..]), 1..5);
    (options, any::<prop::sample::Index>(), 0..3, soup(&PIECES)).prop_map(
        |(options, at, what, other)| {
            let tokens: TokenStream = options.join(", ").parse().expect("tokens");
            let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
            let at = at.index(tokens.len());
            match what {
                0 => {
                    tokens.remove(at);
                }
                1 => tokens.insert(at, tokens[at].clone()),
                _ => {
                    tokens.splice(at..=at, other);
                }
            }
            tokens.into_iter().collect()
        },
    )
}

fn plan_or_message(attributes: Vec<TokenStream>, function: &str) -> Result<(), TestCaseError> {
    let mut function: Function = syn::parse_str(function).expect("function");
    let count = attributes.len();
    let mut errors = Errors::default();
    let attributes = attributes
        .into_iter()
        .map(|args| Args::parse(args, &mut errors))
        .collect();
    let plans = check(attributes, &mut function, &mut errors);
    match errors.finish(plans.len()) {
        Ok(plans) => prop_assert_eq!(plans, count),
        Err(errors) => {
            let messages = Errors::messages(errors);
            for (index, message) in messages.iter().enumerate() {
                prop_assert!(!message.is_empty());
                prop_assert!(index < 200, "{:?}", messages);
            }
        }
    }
    Ok(())
}

#[test]
fn what_fuzzing_found_before_is_expanded() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fuzz/corpus/attribute"
    );
    let inputs: Vec<_> = std::fs::read_dir(folder).expect(folder).collect();
    assert!(!inputs.is_empty());
    for input in inputs {
        let path = input.expect("a file").path();
        println!("{}", path.display());
        any_text_is_expanded(&std::fs::read(path).expect("a file"));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_text(text in ".*") {
        let _ = template::parse(&text);
        let _ = duration::parse(&text);
        if let Ok(tokens) = text.parse() {
            plan_or_message(vec![tokens], FUNCTIONS[0])?;
        }
        let args: TokenStream = format!("key = {text:?}, wait = {text:?}").parse().expect("tokens");
        plan_or_message(vec![args], FUNCTIONS[0])?;
    }

    #[test]
    fn any_tokens(args in soup(&PIECES), function in select(&FUNCTIONS[..])) {
        plan_or_message(vec![args], function)?;
    }

    #[test]
    fn options_of_any_value(
        option in select(&PIECES[..20]),
        value in soup(&PIECES),
        function in select(&FUNCTIONS[..]),
    ) {
        let option: TokenStream = option.parse().expect("tokens");
        plan_or_message(vec![quote::quote!(#option = #value, key = "k")], function)?;
    }

    #[test]
    fn options_in_any_combination(
        attributes in prop::collection::vec(prop::collection::vec(select(&OPTIONS[..]), 0..6), 1..3),
        function in select(&FUNCTIONS[..]),
    ) {
        let attributes = attributes
            .into_iter()
            .map(|options| options.join(", ").parse().expect("tokens"))
            .collect();
        plan_or_message(attributes, function)?;
    }

    #[test]
    fn nearly_right_options(args in mutilated(), function in select(&FUNCTIONS[..])) {
        plan_or_message(vec![args], function)?;
    }

    #[test]
    fn any_body(
        before in soup(&["Box", "::", "pin", ";", "{ }", "return", "let", "=", "std", "a"]),
        inside in soup(&["async", "move", "{ a }", ",", "#[a]", "#![a]", "{ #![a] b }", "|"]),
    ) {
        let body = quote::quote!(#before Box::pin(#inside));
        if let Some(boxed) = Boxed::read(body) {
            let again = boxed.with_body(&boxed.body);
            let again = Boxed::read(again).expect("what was read");
            prop_assert_eq!(again.before.to_string(), boxed.before.to_string());
            prop_assert_eq!(again.body.to_string(), boxed.body.to_string());
            prop_assert_eq!(again.attrs.len(), boxed.attrs.len());
            prop_assert_eq!(again.inner_attrs.len(), boxed.inner_attrs.len());
        }
    }
}
