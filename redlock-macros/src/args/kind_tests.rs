use super::super::tests::{messages, parse};
use super::*;

fn kind(value: &str) -> LockKindArg {
    let args = parse(&format!("kind = {value}")).expect(value);
    args.kind.value().expect("kind")
}

fn refused(value: &str) -> String {
    let mut messages = messages(&format!("kind = {value}"));
    assert_eq!(messages.len(), 1, "{value}: {messages:?}");
    messages.remove(0)
}

const LIST: &str = "the kinds are `reentrant`, `fair`, `read`, `write`, `fenced`, `spin`, \
                    `semaphore(limit = ..)`";

#[test]
fn every_kind_is_read() {
    assert!(matches!(kind("reentrant"), LockKindArg::Reentrant));
    assert!(matches!(kind("fair"), LockKindArg::Fair));
    assert!(matches!(kind("read"), LockKindArg::Read));
    assert!(matches!(kind("write"), LockKindArg::Write));
    assert!(matches!(kind("fenced"), LockKindArg::Fenced));
    assert!(matches!(kind("spin"), LockKindArg::Spin));
    assert!(matches!(
        kind("semaphore(limit = 3)"),
        LockKindArg::Semaphore {
            limit: Expr::Lit(_),
            take: None
        }
    ));
    assert!(matches!(
        kind("semaphore(take = n.min(2), limit = LIMIT,)"),
        LockKindArg::Semaphore {
            limit: Expr::Path(_),
            take: Some(Expr::MethodCall(_))
        }
    ));
    for value in [
        "semaphore(limit = 3, take = 3)",
        "semaphore(limit = 3u32, take = 0x1)",
        "semaphore(limit = 2147483647)",
        "semaphore(limit = 1, take = n)",
        "semaphore(limit = n, take = 9)",
    ] {
        assert!(
            matches!(kind(value), LockKindArg::Semaphore { .. }),
            "{value}"
        );
    }
}

#[test]
fn every_hint_leads_to_a_kind() {
    for (foreign, ours) in FOREIGN {
        assert!(
            KINDS.contains(&ours.split('(').next().expect("a word")),
            "{ours}"
        );
        assert!(!KINDS.contains(&foreign), "{foreign}");
    }
}

#[test]
fn unknown_kinds_get_a_hint_and_the_list() {
    for (value, text, hint) in [
        ("fiar", "fiar", "did you mean `fair`? "),
        ("Fair", "Fair", "did you mean `fair`? "),
        ("\"FAIR_LOCK\"", "FAIR_LOCK", "did you mean `fair`? "),
        ("exclusive", "exclusive", "did you mean `reentrant`? "),
        ("RLock", "RLock", "did you mean `reentrant`? "),
        ("rlock", "rlock", "did you mean `reentrant`? "),
        ("ReadLock", "ReadLock", "did you mean `read`? "),
        ("shared", "shared", "did you mean `read`? "),
        ("semaphor", "semaphor", "did you mean `semaphore`? "),
        (
            "permits(3)",
            "permits",
            "did you mean `semaphore(limit = ..)`? ",
        ),
        (
            "multi",
            "multi",
            "several keys are locked together with `keys = [..]`; ",
        ),
        ("purple", "purple", ""),
        ("purple(1)", "purple", ""),
    ] {
        assert_eq!(
            refused(value),
            format!("unknown kind `{text}`; {hint}{LIST}"),
            "{value}"
        );
    }
    for value in ["1", "a::b", "self.kind", "if a { fair } else { spin }"] {
        assert_eq!(
            refused(value),
            format!("`kind` is the lock to take; {LIST}")
        );
    }
}

#[test]
fn words_with_something_around_them() {
    for (value, expected) in [
        (
            "\"fair\"",
            "a kind is a word, without quotes: `kind = fair`",
        ),
        (
            "\"semaphore\"",
            "a kind is a word, without quotes: `kind = semaphore(limit = 10)`",
        ),
        ("fair()", "`fair` takes no arguments: write `kind = fair`"),
        (
            "spin(limit = 3)",
            "`spin` takes no arguments: write `kind = spin`",
        ),
    ] {
        assert_eq!(refused(value), expected, "{value}");
    }
}

#[test]
fn a_semaphore_has_a_limit() {
    for value in ["semaphore", "semaphore()", "semaphore(take = 2)"] {
        assert_eq!(
            refused(value),
            "a semaphore needs its number of permits: `kind = semaphore(limit = 10)`",
            "{value}"
        );
    }
}

#[test]
fn arguments_of_a_semaphore() {
    let unknown = |text: &str, hint: &str| {
        format!("unknown `{text}` of a semaphore; {hint}it has `limit` and `take`")
    };
    for (arguments, expected) in [
        (
            "3",
            "what a semaphore is set to has names: `kind = semaphore(limit = 10, take = 1)`"
                .to_owned(),
        ),
        (
            "limit = 3, 2",
            "what a semaphore is set to has names: `kind = semaphore(limit = 10, take = 1)`"
                .to_owned(),
        ),
        ("permits = 3", unknown("permits", "did you mean `limit`? ")),
        ("limits = 3", unknown("limits", "did you mean `limit`? ")),
        (
            "limit = 3, count = 2",
            unknown("count", "did you mean `take`? "),
        ),
        ("limit = 3, colour = 2", unknown("colour", "")),
        ("limit = 3, a.b = 2", unknown("a.b", "")),
        (
            "limit = 3, limit = 3",
            "`limit` is set twice: leave one of them out".to_owned(),
        ),
        (
            "limit = 3, take = 1, take = 0",
            "`take` is set twice: leave one of them out".to_owned(),
        ),
    ] {
        let value = format!("semaphore({arguments})");
        assert_eq!(refused(&value), expected, "{value}");
    }
}

#[test]
fn numbers_of_permits() {
    let number = |name: &str| {
        let most = if name == "limit" { 2_147_483_647 } else { 1000 };
        format!("`{name}` is a number of permits, from 1 to {most}: `{name} = 1`")
    };
    for (arguments, expected) in [
        (
            "limit = 0",
            "`limit` cannot be zero: nobody could ever have a permit; write at least 1".to_owned(),
        ),
        (
            "limit = 0, take = 1",
            "`limit` cannot be zero: nobody could ever have a permit; write at least 1".to_owned(),
        ),
        (
            "limit = 2, take = 0",
            "`take` cannot be zero: that would lock nothing; write at least 1".to_owned(),
        ),
        ("limit = 2147483648", number("limit")),
        ("limit = 5000, take = 1001", number("take")),
        ("limit = 3u64", number("limit")),
        ("limit = 3s", number("limit")),
        ("limit = -3", number("limit")),
        ("limit = 1.5", number("limit")),
        ("limit = \"3\"", number("limit")),
        ("limit = true", number("limit")),
        ("limit = 3, take = (1, 2)", number("take")),
        (
            "take = 4, limit = 3",
            "`take` is more than `limit`: nobody could ever have 4 of 3 permits; take at most 3"
                .to_owned(),
        ),
    ] {
        let value = format!("semaphore({arguments})");
        assert_eq!(refused(&value), expected, "{value}");
    }
}

#[test]
fn mistakes_of_one_semaphore_are_reported_together() {
    assert_eq!(
        messages("kind = semaphore(3, limit = 0, take = 0, colour = 1)").len(),
        4
    );
}
