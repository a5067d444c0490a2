use super::*;
use proptest::prelude::*;

fn text(text: &str) -> TemplateSegment {
    TemplateSegment::Text(text.to_owned())
}

fn hole(text: &str, root: &str, accesses: Vec<Access>, spec: &str) -> TemplateSegment {
    TemplateSegment::Placeholder(Placeholder {
        text: text.to_owned(),
        root: root.to_owned(),
        accesses,
        spec: spec.to_owned(),
    })
}

fn field(name: &str) -> Access {
    Access::Field(name.to_owned())
}

fn method(name: &str) -> Access {
    Access::Method(name.to_owned())
}

fn messages(template: &str) -> Vec<String> {
    parse(template).expect_err(template)
}

#[test]
fn text_alone_is_a_key() {
    assert_eq!(parse("nightly-report"), Ok(vec![text("nightly-report")]));
}

#[test]
fn placeholders_between_text() {
    assert_eq!(
        parse("order:<user_id>:<day>"),
        Ok(vec![
            text("order:"),
            hole("user_id", "user_id", vec![], ""),
            text(":"),
            hole("day", "day", vec![], ""),
        ])
    );
}

#[test]
fn fields_indices_and_methods() {
    assert_eq!(
        parse("<self.tenant><req.buyer.id()><pair.0.1><a.b().c>"),
        Ok(vec![
            hole("self.tenant", "self", vec![field("tenant")], ""),
            hole(
                "req.buyer.id()",
                "req",
                vec![field("buyer"), method("id")],
                ""
            ),
            hole(
                "pair.0.1",
                "pair",
                vec![Access::Index(0), Access::Index(1)],
                ""
            ),
            hole("a.b().c", "a", vec![method("b"), field("c")], ""),
        ])
    );
}

#[test]
fn format_specs() {
    for spec in [
        "08x", "#x", "?", "+", ".3", "8.3", "x?", "^9", "*^9", "e", "#010b", "512",
    ] {
        let template = format!("<id:{spec}>");
        assert_eq!(
            parse(&template),
            Ok(vec![hole("id", "id", vec![], spec)]),
            "{template}"
        );
    }
    for spec in [
        "",
        "$",
        "w$",
        ".*",
        ".",
        "p",
        "y",
        "{",
        "{}",
        "}^3",
        "513",
        "99999999999",
        " ",
    ] {
        let template = format!("<id:{spec}>");
        assert!(parse(&template).is_err(), "{template}");
    }
}

#[test]
fn doubled_brackets_are_text() {
    assert_eq!(parse("a<<b>>c"), Ok(vec![text("a<b>c")]));
    assert_eq!(
        parse("<<<id>>>"),
        Ok(vec![text("<"), hole("id", "id", vec![], ""), text(">")])
    );
    assert_eq!(parse("<<>>"), Ok(vec![text("<>")]));
}

#[test]
fn raw_names_are_the_names() {
    assert_eq!(
        parse("<r#type.r#fn>"),
        Ok(vec![hole("r#type.r#fn", "type", vec![field("fn")], "")])
    );
}

#[test]
fn braces_are_only_text() {
    assert_eq!(
        parse("{tenant}:<id>"),
        Ok(vec![text("{tenant}:"), hole("id", "id", vec![], "")])
    );
}

#[test]
fn each_mistake_has_its_message() {
    for (template, expected) in [
        (
            "",
            "empty key: it would be one lock for everything; name what is locked, e.g. \
             `key = \"order:<user_id>\"`",
        ),
        ("a\0b", "the name of a lock cannot contain a NUL character"),
        (
            "order:<user_id",
            "unclosed `<`: close the placeholder as `<user_id>`, or write `<<` for a literal `<`",
        ),
        (
            "order:<user_id:<item>",
            "unclosed `<`: close the placeholder as `<user_id>`, or write `<<` for a literal `<`",
        ),
        (
            "a < b",
            "unclosed `<`: close the placeholder as `<parameter>`, or write `<<` for a literal `<`",
        ),
        ("a > b", "`>` without `<`: write `>>` for a literal `>`"),
        ("a:<id>>", "`>` without `<`: write `>>` for a literal `>`"),
        (
            "order:<>",
            "empty placeholder `<>`: name a parameter, e.g. `<user_id>`, or write `<<>>` for a \
             literal `<>`",
        ),
        ("<user.>", "name missing in placeholder `<user.>`"),
        ("<.id>", "name missing in placeholder `<.id>`"),
        ("<:x>", "name missing in placeholder `<:x>`"),
        ("<_>", "`_` in placeholder `<_>` is no name"),
        ("<1a>", "`1a` in placeholder `<1a>` is no name"),
        ("<a.1b>", "`1b` in placeholder `<a.1b>` is no name"),
        (
            "<a.99999999999>",
            "no such field in placeholder `<a.99999999999>`",
        ),
        (
            "<Self::NAME>",
            "path in placeholder `<Self::NAME>`: only parameters, their fields and their methods \
             without arguments can be part of a key",
        ),
        (
            "<user.id(1)>",
            "arguments in placeholder `<user.id(1)>`: only methods without arguments can be \
             called in a key",
        ),
        (
            "<id()>",
            "function call in placeholder `<id()>`: only methods of a parameter can be called in \
             a key, e.g. `<user.id()>`",
        ),
        ("< id >", "blank in placeholder `< id >`: write it without"),
        (
            "<ids[0]>",
            "unexpected `[` in placeholder `<ids[0]>`: expected `<parameter>`, \
             `<parameter.field>`, `<parameter.method()>` or one of these with a format, \
             `<parameter:08x>`",
        ),
        (
            "<id:w$>",
            "`w$` in placeholder `<id:w$>` is no format that a key can have: it is a fixed one as \
             in `format!`, e.g. `08x`, `?`, `.3`, without `<`, `>` and `$`",
        ),
    ] {
        assert_eq!(messages(template), [expected], "{template:?}");
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    assert_eq!(messages("<>:<a b>:<c").len(), 3);
}

#[test]
fn the_text_is_bounded() {
    assert!(parse(&"k".repeat(512)).is_ok());
    assert_eq!(
        messages(&"k".repeat(513)),
        ["the name of a lock has at most 512 bytes"]
    );
}

proptest! {
    #[test]
    fn never_panics(template in ".*") {
        let _ = parse(&template);
    }

    #[test]
    fn never_panics_on_near_misses(template in "([<>.:()#r0a_ é$^*?\\[]|::|<<|>>|self){0,24}") {
        let _ = parse(&template);
    }

    #[test]
    fn escaped_text_comes_back(template in "[a-z<>:{}é]{0,20}[a-z]") {
        let escaped = template.replace('<', "<<").replace('>', ">>");
        prop_assert_eq!(parse(&escaped), Ok(vec![text(&template)]));
    }

    #[test]
    fn what_parses_is_well_formed(template in "([a-z]|<[a-z]{1,3}(\\.[a-z0-9]{1,2}(\\(\\))?)?(:0?4x)?>|<<|>>){1,8}") {
        if let Ok(segments) = parse(&template) {
            prop_assert!(!segments.is_empty());
            for pair in segments.windows(2) {
                prop_assert!(!matches!(pair, [TemplateSegment::Text(_), TemplateSegment::Text(_)]));
            }
            for segment in &segments {
                match segment {
                    TemplateSegment::Text(text) => prop_assert!(!text.is_empty()),
                    TemplateSegment::Placeholder(hole) => {
                        prop_assert!(hole.text.starts_with(&hole.root));
                        prop_assert!(template.contains(&hole.text));
                    }
                }
            }
        }
    }
}
