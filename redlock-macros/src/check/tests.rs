use super::*;

pub(super) fn check_with(args: &str, function: &str) -> Result<Plan, Vec<String>> {
    let mut errors = Errors::default();
    let args = Args::parse(args.parse().expect("tokens"), &mut errors);
    let mut function: Function = syn::parse_str(function).expect("function");
    let plans = check(vec![args], &mut function, &mut errors);
    match errors.finish(plans) {
        Ok(mut plans) => Ok(plans.pop().expect("a plan, since there is no mistake")),
        Err(errors) => Err(Errors::messages(errors)),
    }
}

pub(super) fn messages(args: &str, function: &str) -> Vec<String> {
    check_with(args, function).expect_err(function)
}

/// The mistakes of `key` on a function with these parameters.
fn key_messages(key: &str, parameters: &str) -> Vec<String> {
    let function = format!("async fn place({parameters}) -> Result<(), E> {{}}");
    messages(&format!("key = {key:?}"), &function)
}

fn accepts_key(key: &str, parameters: &str) {
    let function = format!("async fn place({parameters}) -> Result<(), E> {{}}");
    check_with(&format!("key = {key:?}"), &function).expect(key);
}

#[test]
fn placeholders_are_parameters_or_self() {
    accepts_key("order:<id>", "id: u64");
    accepts_key("order:<id>", "mut id: u64");
    accepts_key("order:<id>", "ref id: u64");
    accepts_key("order:<self.id>", "&self");
    accepts_key("order:<self.id>", "self: Arc<Self>");
    accepts_key("order:<r#type>", "r#type: u64");
    accepts_key("order:<type>", "r#type: u64");
    accepts_key("order:<req.type>", "req: Req");
}

#[test]
fn names_bound_by_patterns_are_as_good_as_parameters() {
    accepts_key("order:<id>", "Path(id): Path<u64>");
    accepts_key("order:<id>", "Req { id, .. }: Req");
    accepts_key("order:<user>", "Req { id: user, .. }: Req");
    accepts_key("order:<b>", "(a, (_, &b)): (A, (B, C))");
    accepts_key("order:<a>:<b>", "[a, b @ ..]: [u8; 4]");
    accepts_key("order:<whole>", "whole @ Req { .. }: Req");
    accepts_key("order:<id>", "(Ok(id) | Err(id)): Result<u64, u64>");
}

#[test]
fn unknown_placeholders_list_what_there_is() {
    for (key, parameters, expected) in [
        (
            "<user>",
            "user_id: u64, req: Req",
            "no parameter `user` to put into the key; the parameters are `user_id`, `req`",
        ),
        (
            "<user_ld>",
            "&self, user_id: u64",
            "no parameter `user_ld` to put into the key; did you mean `user_id`? the parameters \
             are `self`, `user_id`",
        ),
        (
            "<id>",
            "",
            "no parameter `id` to put into the key; `place` has no parameters",
        ),
        (
            "<req.id>",
            "Req { id }: Req",
            "no parameter `req` to put into the key; the parameters are `id`\n`Req { id }: Req` \
             has no name: to use it as a whole, write `req: Req` and take it apart in the body",
        ),
        (
            "<id>",
            "_: u64",
            "no parameter `id` to put into the key; `place` has no named parameters\n`_: u64` has no \
             name: to use it as a whole, write `id: u64`",
        ),
        (
            "<self.id>",
            "id: u64",
            "`<self.id>` needs a method, and `place` has no `self`; the parameters are `id`",
        ),
        (
            "<req.await>",
            "req: Req",
            "`<req.await>` cannot await: a key is made before the lock is waited for",
        ),
        (
            "<req.self>",
            "req: Req",
            "`self` in placeholder `<req.self>` is no name",
        ),
    ] {
        assert_eq!(
            key_messages(key, parameters),
            [expected],
            "{key} of {parameters}"
        );
    }
}

#[test]
fn every_wrong_placeholder_is_reported() {
    assert_eq!(key_messages("<a>:<b>:<id>", "id: u64").len(), 2);
}

#[test]
fn the_key_is_required() {
    assert_eq!(
        messages("wait = \"1s\"", "async fn f() -> Result<(), E> {}"),
        ["missing `key`: name what is locked, e.g. `key = \"order:<user_id>\"`"]
    );
}

#[test]
fn a_missing_key_hides_nothing() {
    let messages = messages(r#"lease = "2s", max_hold = "1s""#, "async fn f() {}");
    assert_eq!(messages.len(), 3, "{messages:?}");
}

#[test]
fn a_key_that_is_wrong_is_not_missing() {
    for args in ["key", "key = 1", "key = \"\"", "\"order\"", "key = "] {
        let messages = messages(args, "async fn f() -> Result<(), E> {}");
        assert_eq!(messages.len(), 1, "{args}: {messages:?}");
        assert!(!messages[0].contains("missing"), "{args}: {messages:?}");
    }
}

#[test]
fn attributes_do_not_hide_each_others_names() {
    let mut function: Function =
        syn::parse_str("async fn f() -> Result<(), E> {}").expect("function");
    let mut messages = |attributes: &[&str]| {
        let mut errors = Errors::default();
        let attributes = attributes
            .iter()
            .map(|args| Args::parse(args.parse().expect("tokens"), &mut errors))
            .collect();
        let plans = check(attributes, &mut function, &mut errors);
        errors.finish(plans.len()).map_err(Errors::messages)
    };
    assert_eq!(
        messages(&["key = \"a\", guard = g", "key = \"b\", guard = h"]),
        Ok(2)
    );
    assert_eq!(
        messages(&[
            "key = \"a\", guard = g",
            "key = \"b\", kind = fenced, token = g"
        ]),
        Err(vec![
            "`g` is bound by an attribute above already: give it another name".to_owned()
        ])
    );
}

#[test]
fn a_mistake_in_the_function_is_reported_once() {
    let mut function: Function = syn::parse_str("fn f() -> Result<(), E> {}").expect("function");
    let mut errors = Errors::default();
    let args = || {
        Args::parse(
            "key = \"k\"".parse().expect("tokens"),
            &mut Errors::default(),
        )
    };
    check(vec![args(), args()], &mut function, &mut errors);
    let mistakes = errors.finish(()).expect_err("a mistake");
    assert_eq!(Errors::messages(mistakes).len(), 1);
}

#[test]
fn functions_that_block() {
    const BLOCKING: &str = "key = \"k\", blocking = true";
    for unsafety in ["", "unsafe "] {
        let function = format!("{unsafety}fn f() -> Result<(), E> {{}}");
        check_with(BLOCKING, &function).expect(&function);
    }
    for (function, start) in [
        (
            "async fn f() -> Result<(), E> {}",
            "`blocking = true` is for a function that is not",
        ),
        ("fn f() {}", "`f` returns nothing"),
        (
            "fn f() -> BoxFuture<'static, R> {}",
            "the future returned here does its work later",
        ),
        (
            "const fn f() -> R {}",
            "a `const fn` may run in the compiler",
        ),
    ] {
        let messages = messages(BLOCKING, function);
        assert!(
            messages.len() == 1 && messages[0].starts_with(start),
            "{function}: {messages:?}"
        );
    }
}

#[test]
fn only_async_functions() {
    for (function, start) in [
        (
            "fn f() -> Result<(), E> {}",
            "`#[distributed_lock]` needs an `async fn`",
        ),
        ("fn f() {}", "`#[distributed_lock]` needs an `async fn`"),
        (
            "const fn f() -> Result<(), E> {}",
            "a `const fn` may run in the compiler",
        ),
        (
            "const unsafe extern \"C\" fn f() {}",
            "a `const fn` may run in the compiler",
        ),
        (
            "extern \"C\" fn f() {}",
            "an `extern` function is called by code that cannot await",
        ),
        (
            "async extern \"C\" fn f() -> Result<(), E> {}",
            "an `extern` function is called by",
        ),
        (
            "fn f() -> impl Future<Output = ()> {}",
            "this function returns before its work is done",
        ),
        (
            "fn f() -> impl Send + Stream {}",
            "this function returns before its work is done",
        ),
        (
            "fn f() -> Pin<Box<dyn Future>> {}",
            "this function returns before its work is done",
        ),
        (
            "fn f() -> BoxFuture<'a, u8> {}",
            "this function returns before its work is done",
        ),
        (
            "fn f() -> impl Iterator<Item = u8> {}",
            "this function returns before its work is done",
        ),
    ] {
        let messages = messages("key = \"k\"", function);
        assert_eq!(messages.len(), 1, "{function}: {messages:?}");
        assert!(messages[0].starts_with(start), "{function}: {messages:?}");
    }
}

/// The output of `#[async_trait]` 0.1.92 for
/// `async fn place(&self, Path(id): Path<u64>, user: u64) -> Result<u64, E> { Ok(user) }`.
const ASYNC_TRAIT: &str = "
    #[allow(elided_named_lifetimes, clippy::async_yields_async)]
    fn place<'life0, 'async_trait>(&'life0 self, __arg1: Path<u64>, user: u64)
        -> ::core::pin::Pin<Box<
            dyn ::core::future::Future<Output = Result<u64, E>> + ::core::marker::Send + 'async_trait
        >>
    where 'life0: 'async_trait, Self: 'async_trait
    {
        Box::pin(async move {
            if let ::core::option::Option::Some(__ret) =
                ::core::option::Option::None::<Result<u64, E>>
            {
                #[allow(unreachable_code)]
                return __ret;
            }
            let __self = self;
            let Path(id) = { let __arg1 = __arg1; __arg1 };
            let user = user;
            let __ret: Result<u64, E> = { Ok(user) };
            #[allow(unreachable_code)]
            __ret
        })
    }";

#[test]
fn what_async_trait_makes_is_an_async_function() {
    let plan = check_with("key = \"<self.tenant>:<user>\"", ASYNC_TRAIT).expect("plan");
    assert_eq!(
        plan.returns,
        syn::parse_str("Result<u64, E>").expect("type")
    );
    let function: Function = syn::parse_str(ASYNC_TRAIT).expect("function");
    let Some(boxed) = function.boxed() else {
        panic!("not boxed")
    };
    assert!(boxed.before.is_empty());
    assert!(boxed.body.to_string().starts_with("if let"));
}

#[test]
fn what_async_trait_has_taken_away_is_told() {
    let prefix = "no parameter `id` to put into the key; ";
    let hint = "\n`#[async_trait]` takes patterns away: to use such a parameter, give it a name, \
                `id: ..`, and take it apart in the body";
    assert_eq!(
        messages("key = \"<id>\"", ASYNC_TRAIT),
        [format!("{prefix}the parameters are `self`, `user`{hint}")]
    );
    let only = "fn f(__arg0: Path<u64>) -> Pin<Box<dyn Future<Output = R>>> { \
                Box::pin(async move { a }) }";
    assert_eq!(
        messages("key = \"<id>\"", only),
        [format!("{prefix}`f` has no named parameters{hint}")]
    );
}

#[test]
fn only_what_returns_a_boxed_future_is_looked_into() {
    let body = "{ Box::pin(async move { work().await }) }";
    for (signature, is_boxed) in [
        ("fn f() -> Pin<Box<dyn Future<Output = R>>>", true),
        ("async fn f() -> Pin<Box<dyn Future<Output = R>>>", false),
        ("async fn f() -> R", false),
        ("async fn f()", false),
        ("fn f() -> R", false),
        ("fn f()", false),
    ] {
        let function: Function = syn::parse_str(&format!("{signature} {body}")).expect(signature);
        assert_eq!(function.boxed().is_some(), is_boxed, "{signature}");
    }
}

#[test]
fn a_boxed_future_has_to_be_made_at_the_end() {
    let ty = "Pin<Box<dyn Future<Output = Result<u8, E>> + Send + '_>>";
    for (ty, body) in [
        (ty, "Box::pin(async move { Ok(1) })"),
        (ty, "let a = 1; Box::pin(async { Ok(a) })"),
        ("BoxFuture<'_, Result<u8, E>>", "Box::pin(async { Ok(1) })"),
    ] {
        let function = format!("fn f(&self) -> {ty} {{ {body} }}");
        let plan = check_with("key = \"k\"", &function).expect(&function);
        assert_eq!(plan.returns, syn::parse_str("Result<u8, E>").expect("type"));
    }
    for body in [
        "Box::pin(self.inner())",
        "async move { Ok(1) }.boxed()",
        "if self.idle { return Box::pin(async { Ok(0) }); } Box::pin(async move { Ok(1) })",
        "future",
    ] {
        let function = format!("fn f(&self) -> {ty} {{ {body} }}");
        let messages = messages("key = \"k\"", &function);
        assert_eq!(messages.len(), 1, "{function}: {messages:?}");
        assert!(
            messages[0].starts_with("this function returns before its work is done")
                && messages[0].contains("`Box::pin(async move { .. })`"),
            "{function}: {messages:?}"
        );
    }
}

#[test]
fn a_boxed_future_must_carry_an_error_too() {
    let function = "fn f() -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(async move {}) }";
    let messages = messages("key = \"k\"", function);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].starts_with("`f` returns nothing"),
        "{messages:?}"
    );
}

#[test]
fn the_return_type_must_carry_an_error() {
    for (ty, expected) in [
        ("", "`f` returns nothing, so its caller would never learn"),
        (
            "-> ()",
            "this type cannot say that the lock was not taken; return `Result<T, E>`",
        ),
        (
            "-> (u8, u8)",
            "this type cannot say that the lock was not taken",
        ),
        (
            "-> &'static str",
            "this type cannot say that the lock was not taken",
        ),
        ("-> !", "this type cannot say that the lock was not taken"),
        (
            "-> impl Display",
            "this type cannot say that the lock was not taken",
        ),
        (
            "-> impl Future<Output = u8>",
            "the future returned here does its work later",
        ),
        (
            "-> Result<impl Stream<Item = u8>, E>",
            "the stream returned here does its work later",
        ),
        (
            "-> Result<Box<dyn Iterator<Item = u8>>, E>",
            "the iterator returned here does its",
        ),
        (
            "-> Result<BoxStream<'static, u8>, E>",
            "the stream returned here does its work later",
        ),
    ] {
        let messages = messages("key = \"k\"", &format!("async fn f() {ty} {{}}"));
        assert_eq!(messages.len(), 1, "{ty}: {messages:?}");
        assert!(messages[0].starts_with(expected), "{ty}: {messages:?}");
    }
}

#[test]
fn aliases_and_opaque_values_pass() {
    for ty in [
        "anyhow::Result<u8>",
        "Reply",
        "Result<impl Display, E>",
        "(Result<u8, E>)",
    ] {
        check_with("key = \"k\"", &format!("async fn f() -> {ty} {{}}")).expect(ty);
    }
}

#[test]
fn only_functions() {
    for (item, expected) in [
        ("struct S;", "a struct"),
        ("pub(crate) enum E {}", "an enum"),
        ("union U { a: u8 }", "a union"),
        ("trait T {}", "a trait: put it on the methods"),
        ("unsafe trait T {}", "a trait: put it on the methods"),
        ("impl T for U {}", "an impl block: put it on the methods"),
        (
            "unsafe impl T for U {}",
            "an impl block: put it on the methods",
        ),
        ("mod m {}", "a module"),
        ("static S: u8 = 1;", "a static"),
        ("const C: u8 = 1;", "a constant"),
        ("type T = u8;", "a type alias"),
        ("use a::b;", "an import"),
        ("macro_rules! m { () => {} }", "a macro"),
    ] {
        let error = syn::parse_str::<Function>(item)
            .expect_err(item)
            .to_string();
        assert_eq!(
            error,
            format!("`#[distributed_lock]` goes on an async function or method, not on {expected}")
        );
    }
}

#[test]
fn a_method_without_a_body_cannot_be_locked() {
    let error =
        syn::parse_str::<Function>("async fn f(&self) -> Result<(), E>;").expect_err("body");
    assert_eq!(
        error.to_string(),
        "`f` has no body that could run under a lock: put the attribute on the method of each impl"
    );
}

#[test]
fn placeholders_of_other_languages_are_not_taken_for_text() {
    for (key, written, meant) in [
        ("order:{user_id}", "{user_id}", "user_id"),
        ("order:{user_id.0}:x", "{user_id.0}", "user_id.0"),
        ("order:{user_id:08x}", "{user_id:08x}", "user_id:08x"),
        ("order:#{user_id}", "{user_id}", "user_id"),
        ("order:${user_id}", "{user_id}", "user_id"),
        ("order:{#user_id}", "{#user_id}", "user_id"),
        ("order:#user_id", "#user_id", "user_id"),
        ("$user_id:<user_id>", "$user_id", "user_id"),
        ("order:{self.id}", "{self.id}", "self.id"),
        ("order:{type}", "{type}", "type"),
        ("order:{}", "{}", "user_id"),
        ("order:{ }", "{ }", "user_id"),
    ] {
        let expected = format!(
            "`{written}` is only text here, so this would be one lock for every call; a \
             placeholder is written `<{meant}>` (if text is what you want, make it by an \
             expression: `key = format!(..)`)"
        );
        assert_eq!(
            key_messages(key, "&self, user_id: (u64,), r#type: u8"),
            [expected],
            "{key}"
        );
    }
    for key in [
        "{<user_id>}:x",
        "{orders}:<user_id>",
        "{user}:<user_id>",
        "order:{self}",
        "order:{self.id}",
        "#7:$:{",
        "user_id",
        "order:#",
    ] {
        accepts_key(key, "user_id: u64");
    }
    let keys = "keys = [\"a:<user_id>\", \"b:{user_id}\"]";
    let function = "async fn f(user_id: u8) -> Result<(), E> {}";
    assert_eq!(messages(keys, function).len(), 1);
}
