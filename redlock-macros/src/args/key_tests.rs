use super::super::tests::{messages, parse};
use super::*;

fn key(value: &str) -> KeyArg {
    let args = parse(&format!("key = {value}")).expect(value);
    args.key.value().expect("key")
}

fn keys(value: &str) -> KeysArg {
    let args = parse(&format!("keys = {value}")).expect(value);
    args.keys.value().expect("keys")
}

#[test]
fn a_literal_is_a_template_and_all_else_an_expression() {
    for text in ["\"a:<id>\"", "(\"a:<id>\")", "r\"a:<id>\""] {
        assert!(
            matches!(key(text), KeyArg::Template(parts) if parts.len() == 2),
            "{text}"
        );
    }
    for text in [
        "id",
        "self.key",
        "order.key()",
        "key_of(&order)",
        "format!(\"a:{id}\")",
        "{ let a = 1; a.to_string() }",
        "if a { b } else { c }",
        "&name",
        "a + \"b\"",
    ] {
        assert!(matches!(key(text), KeyArg::Expr(_)), "{text}");
    }
}

#[test]
fn several_keys() {
    let KeysArg::Each(each) = keys("[\"a:<from>\", \"a:<to>\", from.key(),]") else {
        panic!("not each")
    };
    assert!(matches!(each[0].value, KeyArg::Template(_)));
    assert!(matches!(each[1].value, KeyArg::Template(_)));
    assert!(matches!(each[2].value, KeyArg::Expr(_)));
    for text in ["names", "ids.iter().map(key_of)", "vec![a, b]", "&[a, b]"] {
        assert!(matches!(keys(text), KeysArg::List(_)), "{text}");
    }
}

#[test]
fn what_cannot_be_a_key() {
    let template = "`key` is a template in quotes, whose placeholders are parameters: \
                    `key = \"order:<user_id>\"`, or an expression that makes a string";
    for value in [
        "1", "true", "b\"id\"", "'a'", "-1", "(1, 2)", "|| a", "_", "1..2",
    ] {
        assert_eq!(messages(&format!("key = {value}")), [template], "{value}");
    }
    assert_eq!(
        messages("key = [\"a\", \"b\"]"),
        ["several keys are `keys`: write `keys = [..]`"]
    );
    assert_eq!(messages("key = \"<a\"").len(), 1);
}

#[test]
fn what_cannot_be_keys() {
    let example = "`keys = [\"account:<from>\", \"account:<to>\"]`";
    for (value, expected) in [
        (
            "[]",
            format!("`keys` is empty, so nothing would be locked; `keys` is a list: {example}"),
        ),
        (
            "\"a:<id>\"",
            "one key is `key`: write `key = \"a:<id>\"`".to_owned(),
        ),
        (
            "1",
            format!("`keys` is a list: {example}, or an expression that iterates over strings"),
        ),
        (
            "[\"a\", 1]",
            format!(
                "each of the `keys` is a template in quotes or an expression that makes a string: \
                 {example}"
            ),
        ),
    ] {
        assert_eq!(messages(&format!("keys = {value}")), [expected], "{value}");
    }
    assert_eq!(messages("keys = [\"<\", \"<>\", 1]").len(), 3);
}
