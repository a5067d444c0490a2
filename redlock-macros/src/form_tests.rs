use super::*;

fn read(body: &str) -> Option<Boxed> {
    Boxed::read(body.parse().expect("tokens"))
}

fn text(tokens: impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

#[test]
fn the_parts_of_a_boxed_body() {
    let boxed = read(
        "let a = 1; if a == 1 { log() } ::std::boxed::Box::pin(#[allow(x)] async move \
         { #![allow(y)] work().await })",
    )
    .expect("boxed");
    assert_eq!(text(&boxed.before), "let a = 1 ; if a == 1 { log () }");
    assert_eq!(text(&boxed.pin), ":: std :: boxed :: Box :: pin");
    assert_eq!((boxed.attrs.len(), boxed.inner_attrs.len()), (1, 1));
    assert_eq!(text(&boxed.keywords), "async move");
    assert_eq!(text(&boxed.body), "work () . await");
}

#[test]
fn a_body_comes_back_with_another_one_in_it() {
    for (body, expected) in [
        (
            "Box::pin(async move { a })",
            "Box :: pin (async move { b })",
        ),
        ("Box::pin(async { a },)", "Box :: pin (async { b })"),
        (
            "let a = 1; Box::pin(#[x] async move { #![y] a })",
            "let a = 1 ; Box :: pin (# [x] async move { # ! [y] b })",
        ),
    ] {
        let boxed = read(body).expect(body);
        let tokens = boxed.with_body(&"b".parse().expect("tokens"));
        assert_eq!(tokens.to_string(), expected);
    }
}

#[test]
fn invisible_brackets_are_seen_through() {
    let inner: TokenStream = "Box::pin(async move { a })".parse().expect("tokens");
    let group = TokenTree::Group(Group::new(Delimiter::None, inner));
    let group = TokenTree::Group(Group::new(Delimiter::None, group.into()));
    assert!(Boxed::read(group.into()).is_some());
}

#[test]
fn other_bodies_are_none() {
    for body in [
        "",
        "Box::pin",
        "Box::pin()",
        "Box::pin(inner(x))",
        "Box::pin(async move { a }.map(b))",
        "Box::pin(async move { a }, b)",
        "Box::pin(async move |x| { a })",
        "Box::pin(move { a })",
        "Box::pin(async move { a });",
        "Box::pin(async move { a }).boxed()",
        "Box::new(async move { a })",
        "pin(async move { a })",
        "MyBox::pin(async move { a })",
        "Box.pin(async move { a })",
        "wrap(Box::pin(async move { a }))",
        "let a = Box::pin(async move { a })",
        "let a: Box::pin(async move { a })",
        "return Box::pin(async move { a })",
        "&Box::pin(async move { a })",
        "if x { return ready(); } Box::pin(async move { a })",
        "match x { _ => { return ready() } } Box::pin(async move { a })",
    ] {
        assert!(read(body).is_none(), "{body}");
    }
}

#[test]
fn types_of_boxed_futures() {
    let output = |ty: &str| {
        let ty: Type = syn::parse_str(ty).expect("type");
        boxed_output(&ty).map(|ty| text(ty).replace(' ', ""))
    };
    for ty in [
        "Pin<Box<dyn Future<Output = R<u8, E>>>>",
        "::core::pin::Pin<Box<dyn ::core::future::Future<Output = R<u8, E>> + Send + 'async_trait>>",
        "std::pin::Pin<std::boxed::Box<dyn Send + Future<Output = R<u8, E>> + 'a>>",
        "Pin<Box<(dyn Future<Output = R<u8, E>> + '_)>>",
        "BoxFuture<'_, R<u8, E>>",
        "futures::future::LocalBoxFuture<'static, R<u8, E>>",
    ] {
        assert_eq!(output(ty).as_deref(), Some("R<u8,E>"), "{ty}");
    }
    for ty in [
        "R<u8, E>",
        "Pin",
        "Pin<Box>",
        "Pin<&mut dyn Future<Output = u8>>",
        "Pin<Box<dyn Stream<Item = u8>>>",
        "Pin<Box<dyn Stream<Output = u8>>>",
        "Pin<Box<dyn Future>>",
        "Pin<Box<Work>>",
        "Box<dyn Future<Output = u8>>",
        "impl Future<Output = u8>",
        "BoxFuture",
        "BoxStream<'_, u8>",
    ] {
        assert_eq!(output(ty), None, "{ty}");
    }
}
