use super::super::tests::{messages, parse};
use super::*;

fn refused(text: &str) -> String {
    let mut messages = messages(text);
    assert_eq!(messages.len(), 1, "{text}: {messages:?}");
    messages.remove(0)
}

#[test]
fn expressions_are_left_to_the_compiler() {
    for value in [
        "PATIENCE",
        "crate::PATIENCE",
        "self.patience",
        "self.patience()",
        "patience(id)",
        "Duration::from_secs(1)",
        "Duration::from_secs(1) * 2",
        "{ let a = 1; secs(a) }",
        "if a { b } else { c }",
        "match a { _ => b }",
        "patience!()",
    ] {
        for option in ["wait", "lease", "max_hold", "min_hold", "renew"] {
            parse(&format!("{option} = {value}")).expect(value);
        }
        let args = parse(&format!("wait = {value}, lease = {value}, renew = {value}"));
        let args = args.expect(value);
        assert!(matches!(args.wait.value(), Some(Wait::Expr(_))));
        assert!(matches!(args.lease.value(), Some(TimeArg::Expr(_))));
        assert!(matches!(args.renew.value(), Some(RenewArg::Expr(_))));
    }
}

#[test]
fn waiting_for_ever() {
    let args = parse("wait = forever").expect("wait");
    assert!(matches!(args.wait.value(), Some(Wait::Forever)));
    assert_eq!(
        refused("wait = \"forever\""),
        "`forever` is a word, without quotes: `wait = forever`"
    );
    for value in ["none", "None"] {
        assert_eq!(
            refused(&format!("wait = {value}")),
            "`wait` is not `none`: write `wait = forever` for no limit, `wait = \"0s\"` to try \
             once, or leave it out for the client's default"
        );
    }
}

#[test]
fn other_times_have_an_end() {
    for value in ["forever", "none", "None"] {
        for (option, expected) in [
            (
                "lease",
                "a lock without `lease` would outlive a process that has died; leave it out for \
                 the client's lease, which is renewed while the body runs",
            ),
            (
                "max_hold",
                "`max_hold` is a duration: leave it out for no limit",
            ),
            (
                "min_hold",
                "`min_hold` is a duration, `min_hold = \"10s\"`; leave it out for a lock that is \
                 free as soon as the body has ended",
            ),
        ] {
            assert_eq!(refused(&format!("{option} = {value}")), expected);
        }
    }
}

#[test]
fn a_number_has_no_unit() {
    for option in ["wait", "lease", "max_hold", "min_hold"] {
        for (value, example) in [
            ("1", "1s"),
            ("500ms", "500ms"),
            ("1m30s", "1m30s"),
            ("10min", "1s"),
            ("-1", "1s"),
            ("1.5", "1s"),
            ("true", "1s"),
            ("'a'", "1s"),
            ("(1, 2)", "1s"),
            ("[1]", "1s"),
            ("|| a", "1s"),
            ("_", "1s"),
            ("a = b", "1s"),
            ("1..2", "1s"),
        ] {
            assert_eq!(
                refused(&format!("{option} = {value}")),
                format!(
                    "`{option}` is a duration in quotes, with a unit: `{option} = \"{example}\"`"
                ),
                "{option} = {value}"
            );
        }
    }
}

#[test]
fn only_a_wait_can_be_zero() {
    for (option, meaning) in [
        (
            "lease",
            "that would be a lock that is free again at once; leave it out for the client's lease",
        ),
        (
            "max_hold",
            "that would be a lock that is never held; leave it out for no limit",
        ),
        (
            "min_hold",
            "leave it out for a lock that is free as soon as the body has ended",
        ),
        (
            "renew",
            "that would be a renewal without pause; write `renew = false` for none",
        ),
    ] {
        for zero in ["0s", "0ms", "0m0s"] {
            assert_eq!(
                refused(&format!("{option} = \"{zero}\"")),
                format!("`{option}` cannot be zero: {meaning}")
            );
        }
    }
    parse("wait = \"0s\"").expect("tries once");
}

#[test]
fn a_bad_duration_is_told_with_its_option() {
    for option in ["wait", "lease", "max_hold", "min_hold", "renew"] {
        assert_eq!(
            refused(&format!("{option} = \"500us\"")),
            format!("`{option}`: `us` is too fine: Redis counts in whole milliseconds (\"1ms\")")
        );
    }
}

#[test]
fn whether_and_how_often_a_lease_is_renewed() {
    for (value, expected) in [("true", true), ("false", false)] {
        let args = parse(&format!("renew = {value}")).expect(value);
        assert!(matches!(args.renew.value(), Some(RenewArg::Bool(renew)) if renew == expected));
    }
    let args = parse("renew = \"3s\"").expect("renew");
    assert!(matches!(args.renew.value(), Some(RenewArg::Every(every)) if every.as_secs() == 3));
    for value in ["\"yes\"", "\"\"", "1", "3s", "1.5", "b\"1s\"", "(1, 2)"] {
        assert_eq!(
            refused(&format!("renew = {value}")),
            "`renew` is `true`, `false`, or how often: `renew = \"3s\"`",
            "{value}"
        );
    }
    assert_eq!(
        refused("renew = \"true\""),
        "`true` is a word, without quotes: `renew = true`"
    );
    for value in ["none", "None", "never"] {
        assert_eq!(
            refused(&format!("renew = {value}")),
            format!("`renew` is not `{value}`: write `renew = false` for no renewal")
        );
    }
}
