use super::super::tests::{messages, parse};
use super::*;

fn refused(value: &str) -> String {
    let mut messages = messages(&format!("fsync = {value}"));
    assert_eq!(messages.len(), 1, "{value}: {messages:?}");
    messages.remove(0)
}

fn accepted(value: &str) -> FsyncArg {
    let args = parse(&format!("fsync = {value}")).expect(value);
    args.fsync.value().expect(value)
}

#[test]
fn words() {
    assert!(matches!(accepted("none"), FsyncArg::None));
    assert!(matches!(accepted("replicas"), FsyncArg::Replicas));
    assert!(matches!(accepted("(all)"), FsyncArg::All));
}

#[test]
fn expressions_are_left_to_the_compiler() {
    for value in [
        "{ fsync }",
        "self.fsync",
        "self.fsync()",
        "crate::FSYNC",
        "Fsync::All",
        "if a { b } else { c }",
    ] {
        assert!(matches!(accepted(value), FsyncArg::Expr(_)), "{value}");
    }
}

#[test]
fn words_are_written_without_quotes() {
    assert_eq!(
        refused("\"replicas\""),
        "`replicas` is a word, without quotes: `fsync = replicas`"
    );
}

#[test]
fn unknown_words_get_a_hint_and_the_list() {
    for (value, hint) in [
        ("replica", "unknown `replica`; did you mean `replicas`? "),
        ("ALL", "unknown `ALL`; did you mean `all`? "),
        ("None", "unknown `None`; did you mean `none`? "),
        ("true", "unknown `true`; did you mean `all`? "),
        ("master", "unknown `master`; did you mean `all`? "),
        ("\"off\"", "unknown `off`; did you mean `none`? "),
        ("WHERE_TO", "unknown `WHERE_TO`; "),
    ] {
        assert_eq!(refused(value), format!("{hint}{LIST}"));
    }
    for value in ["1", "-1", "1.5", "[1]", "|x| x", "(1, 2)"] {
        assert_eq!(refused(value), LIST);
    }
}
