use super::super::tests::{check_with, messages};

#[test]
fn what_is_bound_hides_no_parameter() {
    let function = "async fn f(a: u64, Path(r#b): Path<u64>) -> Result<(), E> {}";
    for (args, expected) in [
        (
            r#"key = "k", guard = a"#,
            "`a` is a parameter, which the guard would hide: give it another name",
        ),
        (
            r#"key = "k", kind = fenced, token = b"#,
            "`b` is a parameter, which the token would hide: give it another name",
        ),
    ] {
        assert_eq!(messages(args, function), [expected], "{args}");
    }
    check_with(
        r#"key = "k", kind = fenced, guard = c, token = d"#,
        function,
    )
    .expect("other names");
}

#[test]
fn what_is_passed_on_has_a_name() {
    let prefix = "`call` passes the parameters on, and";
    for (parameters, expected) in [
        (
            "_: u64",
            vec![format!(
                "{prefix} `_: u64` has no name to do so: write `argument: u64`"
            )],
        ),
        (
            "&self, a: u8, Path(id): Path<u64>, (b, c): (u8, &str)",
            vec![
                format!(
                    "{prefix} `Path(id): Path<u64>` has no name to do so: write `argument: \
                     Path<u64>` and take it apart in the body"
                ),
                format!(
                    "{prefix} `(b, c): (u8, &str)` has no name to do so: write `argument: (u8, \
                     &str)` and take it apart in the body"
                ),
            ],
        ),
        (
            "ref a: u8",
            vec![format!(
                "{prefix} `ref a: u8` has no name to do so: write `argument: u8` and take it apart \
                 in the body"
            )],
        ),
    ] {
        let function = format!("async fn f({parameters}) -> Result<(), E> {{}}");
        for option in ["on_timeout", "on_unavailable"] {
            let args = format!("key = \"k\", {option} = call(Self::busy)");
            assert_eq!(messages(&args, &function), expected, "{parameters}");
        }
        check_with("key = \"k\", on_timeout = skip", &function).expect("nothing is passed on");
    }
    check_with(
        "key = \"k\", on_timeout = call(busy)",
        "async fn f(&self, mut a: u8, b: impl Fn()) -> Result<(), E> {}",
    )
    .expect("named");
}

#[test]
fn templates_inside_of_expressions_are_found() {
    let function = "async fn f(&self, id: u64) -> Result<(), E> {}";
    let alone = "a template is a literal by itself; write it with nothing around it";
    let listed = "templates are literals in a list by itself; write `keys = [..]`";
    for (args, placeholder, fix) in [
        (r#"key = "a:<id>".to_owned()"#, "id", alone),
        (r#"key = String::from("<id:08x>")"#, "id", alone),
        (r#"key = &"<self.a.b()>""#, "self.a.b()", alone),
        (r#"key = { let a = ["<id>"]; a[0] }"#, "id", alone),
        (r#"keys = ["a", "<id>".trim()]"#, "id", alone),
        (r#"keys = vec!["a", "<id>"]"#, "id", listed),
        (r#"keys = &["a", "<id>"]"#, "id", listed),
    ] {
        let expected = format!("`<{placeholder}>` is not filled in here: {fix}, or use `format!`");
        assert_eq!(messages(args, function), [expected], "{args}");
    }
    for args in [
        r#"key = format!("a:{id:>8}")"#,
        r#"key = html("<b>", id)"#,
        r#"key = "a".to_owned()"#,
        r#"key = find("< id >")"#,
        r#"keys = vec![id.to_string()]"#,
        r#"key = "k", name = "<b>""#,
    ] {
        check_with(args, function).expect(args);
    }
}

#[test]
fn a_name_is_no_template() {
    assert_eq!(
        messages(
            r#"key = "k", name = "order:<id>""#,
            "async fn f(id: u64) -> Result<(), E> {}"
        ),
        [
            "`<id>` is not filled in here: a `name` is the same for every call; leave the \
             placeholder out"
        ]
    );
}
