use super::super::tests::{messages, parse};

fn refused(text: &str, expected: &str) {
    assert_eq!(messages(text), [expected], "{text}");
}

#[test]
fn conditions() {
    for value in [
        "a > b",
        "!self.idle",
        "cfg!(unix)",
        "true",
        "is(a)",
        "a && b",
        "matches!(a, _)",
    ] {
        parse(&format!("when = {value}")).expect(value);
    }
    refused(
        "when = \"amount > 10\"",
        "`when` is a condition without quotes: `when = amount > 10`",
    );
    let expected = "`when` is a condition, an expression of type `bool`: `when = amount > 0`";
    for value in ["\"\"", "\"(\"", "1", "(1, 2)", "|| true", "a = b"] {
        refused(&format!("when = {value}"), expected);
    }
}

#[test]
fn a_switch_is_on_or_off() {
    for value in ["true", "false", "(true)"] {
        parse(&format!("blocking = {value}")).expect(value);
    }
    let expected = "`blocking` is `true` or `false`: `blocking = true`";
    for value in ["1", "\"true\"", "yes()", "a"] {
        refused(&format!("blocking = {value}"), expected);
    }
}

#[test]
fn names_in_the_body() {
    for (option, what, example) in [
        ("guard", "guard", "held"),
        ("token", "fencing token", "number"),
    ] {
        for value in ["held", "_held", "r#type"] {
            parse(&format!("{option} = {value}")).expect(value);
        }
        for value in [
            "\"held\"", "1", "_", "self", "a::b", "<a>::b", "&held", "Self", "held()", "a.b",
        ] {
            refused(
                &format!("{option} = {value}"),
                &format!(
                    "`{option}` is the name that the {what} gets in the body: \
                     `{option} = {example}`"
                ),
            );
        }
    }
}

#[test]
fn owners() {
    for value in ["me", "&self.owner", "Owner::new()"] {
        parse(&format!("owner = {value}")).expect(value);
    }
    for value in ["\"me\"", "1", "(a, b)"] {
        refused(
            &format!("owner = {value}"),
            "`owner` is an expression of type `Owner`, such as a field: `owner = self.owner`",
        );
    }
}

#[test]
fn errors_are_made_by_functions() {
    for value in [
        "AppError::Lock",
        "lock_error",
        "|error| E::Lock(error)",
        "(|_| E)",
        "<E as From<L>>::from",
    ] {
        parse(&format!("map_err = {value}")).expect(value);
    }
    for value in ["\"busy\"", "E::lock(1)", "1", "self.map", "E {}"] {
        refused(
            &format!("map_err = {value}"),
            "`map_err` is what makes your error from a `redlock_rt::Error`: a path, \
             `map_err = AppError::Lock`, or a closure, `map_err = |error| AppError::Lock(error)`",
        );
    }
}

#[test]
fn labels() {
    parse("name = \"place-order\"").expect("name");
    for value in ["\"\"", "\" \t\""] {
        refused(
            &format!("name = {value}"),
            "`name` is blank: logs and hooks could not tell the function; leave it out for the \
             function's path",
        );
    }
    for value in ["place", "1", "b\"a\"", "concat!(\"a\")"] {
        refused(
            &format!("name = {value}"),
            "`name` is text in quotes, what logs and hooks call the function: \
             `name = \"place-order\"`",
        );
    }
}

#[test]
fn the_crate_is_a_path() {
    for value in ["::redlock_rt", "a::b", "crate"] {
        parse(&format!("crate = {value}")).expect(value);
    }
    for value in ["\"redlock_rt\"", "1", "<A as B>::C", "a()"] {
        refused(
            &format!("crate = {value}"),
            "`crate` is the path of redlock_rt, without quotes: `crate = ::redlock_rt`",
        );
    }
}

#[test]
fn options_that_await() {
    for (option, value) in [
        ("key", "self.key().await"),
        ("keys", "[\"a\", f(b).await]"),
        ("when", "!(is(a).await)"),
        ("wait", "{ time(async { b.await }).await }"),
        ("renew", "f().await?"),
        ("client", "pool().await"),
        ("owner", "&f(async move { b }, c.await)"),
        ("kind", "semaphore(limit = f().await)"),
    ] {
        let expected = format!(
            "`{option}` cannot await: it is evaluated before the lock is waited for; await what it \
             needs before the call, and pass it on as a parameter"
        );
        refused(&format!("{option} = {value}"), &expected);
    }
    for option in [
        "key = f(async { a.await })",
        "key = f(async move || a.await)",
        "on_timeout = value(f().await)",
        "client = self.r#await",
        "map_err = |error| E(error)",
    ] {
        parse(option).expect(option);
    }
}

/// The compiler does not see such a literal, so the option was left out without a word.
#[test]
fn a_text_with_letters_behind_its_quotes_was_no_mistake() {
    for option in [
        "key",
        "kind",
        "strategy",
        "fsync",
        "replica_ack",
        "wait",
        "lease",
        "max_hold",
        "min_hold",
        "renew",
        "blocking",
        "when",
        "guard",
    ] {
        let text = format!("{option} = \"3s\"x");
        assert!(!messages(&text).is_empty(), "{text}");
    }
}
