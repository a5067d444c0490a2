use std::time::Duration;

use super::names::{FOREIGN, OPTIONS};
use super::*;

fn parse(text: &str) -> Result<Args, Vec<String>> {
    let tokens = text.parse().expect("tokens");
    let mut errors = Errors::default();
    let args = Args::parse(tokens, &mut errors);
    errors.finish(args).map_err(Errors::messages)
}

fn messages(text: &str) -> Vec<String> {
    parse(text).expect_err(text)
}

#[test]
fn nothing_is_set_by_itself() {
    let args = parse("").expect("options");
    assert!(args.key.is_unset() && args.wait.is_unset() && args.client.is_unset());
}

#[test]
fn every_option_is_read() {
    let args = parse(
        r#"key = "order:<id>", wait = "0s", lease = "30s", max_hold = "1m30s", renew = false,
           client = self.locks(), crate = crate::mock,"#,
    )
    .expect("options");
    assert!(matches!(args.key.value(), Some(KeyArg::Template(parts)) if parts.len() == 2));
    assert!(matches!(
        args.wait.value(),
        Some(Wait::Literal(Duration::ZERO))
    ));
    assert!(matches!(args.lease.value(), Some(Time::Literal(time)) if time.as_secs() == 30));
    assert!(matches!(args.max_hold.value(), Some(Time::Literal(time)) if time.as_secs() == 90));
    assert!(matches!(args.renew.value(), Some(Renew::Bool(false))));
    assert!(matches!(args.client.value(), Some(Expr::MethodCall(_))));
    assert_eq!(args.krate.value().map(|path| path.segments.len()), Some(2));
}

#[test]
fn each_listed_option_exists_and_each_hint_leads_to_one() {
    for (option, _) in OPTIONS {
        if let Err(messages) = parse(&format!("{option} = []")) {
            assert!(!messages[0].contains("unknown"), "{option}: {messages:?}");
        }
    }
    for (_, ours) in FOREIGN {
        let option = ours.split(' ').next();
        assert!(
            OPTIONS.iter().any(|(name, _)| Some(*name) == option),
            "{ours}"
        );
    }
}

#[test]
fn each_option_can_be_set_once() {
    for (option, value) in [
        ("key", "\"k\""),
        ("wait", "\"1s\""),
        ("lease", "\"1s\""),
        ("max_hold", "\"1s\""),
        ("renew", "true"),
        ("client", "c"),
        ("crate", "c"),
    ] {
        let text = format!("{option} = {value}, {option} = {value}");
        assert_eq!(messages(&text), [format!("`{option}` is set twice")]);
    }
}

#[test]
fn a_bad_value_is_no_reason_to_call_the_second_one_the_first() {
    assert_eq!(
        messages(r#"wait = "1", wait = "1s""#),
        [
            "`wait`: duration without a unit: write \"1s\" or \"1ms\" (units: ms, s, m, h, d)",
            "`wait` is set twice"
        ]
    );
}

#[test]
fn unknown_options_get_a_hint_and_the_list() {
    let list = "the options are `key`, `keys`, `kind`, `wait`, `lease`, `renew`, `max_hold`, \
                `min_hold`, `client`, `owner`, `on_timeout`, `on_unavailable`, `on_lost`, \
                `map_err`, `when`, `guard`, `token`, `name`, `crate`";
    for (text, hint) in [
        (r#"kye = "a""#, "unknown option `kye`; did you mean `key`? "),
        (
            r#"waitTime = 3"#,
            "unknown option `waitTime`; did you mean `wait`? ",
        ),
        (
            r#"ttl = "3s""#,
            "unknown option `ttl`; did you mean `lease`? ",
        ),
        (r#"colour = red"#, "unknown option `colour`; "),
        ("colour", "unknown option `colour`; "),
        ("colour(red)", "unknown option `colour`; "),
    ] {
        assert_eq!(messages(text), [format!("{hint}{list}")], "{text}");
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    let messages = messages(r#"key = "<>", wait = "1", colour = 1, lease = "0s", renew = 1"#);
    assert_eq!(messages.len(), 5, "{messages:?}");
}

#[test]
fn an_option_that_cannot_be_read_hides_no_other() {
    let messages = messages(r#"wait = , 3 = 4, key = "a" "b", colour = 1"#);
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(messages[0], "`wait` needs a value: `wait = \"1s\"`");
}

#[test]
fn values_of_the_wrong_kind() {
    for (text, expected) in [
        (
            "key = b\"id\"",
            "`key` is a template in quotes, whose placeholders are parameters: \
             `key = \"order:<user_id>\"`, or an expression that makes a string",
        ),
        (
            "\"order:<id>\"",
            "options have names: write `key = \"order:<id>\"`",
        ),
        ("renew", "`renew` needs a value: `renew = true`"),
        (
            "key(\"a\")",
            "`key` needs a value: `key = \"order:<user_id>\"`",
        ),
        (
            "wait = 1",
            "`wait` is a duration in quotes, with a unit: `wait = \"1s\"`",
        ),
        (
            "wait = 500ms",
            "`wait` is a duration in quotes, with a unit: `wait = \"500ms\"`",
        ),
        (
            "renew = \"yes\"",
            "`renew` is `true`, `false`, or how often: `renew = \"3s\"`",
        ),
        (
            "crate = \"redlock_rt\"",
            "`crate` is the path of redlock_rt, without quotes: `crate = ::redlock_rt`",
        ),
        (
            "lease = \"0ms\"",
            "`lease` cannot be zero: that would be a lock that is free again at once; leave it \
             out for the client's lease",
        ),
        (
            "max_hold = \"0s\"",
            "`max_hold` cannot be zero: that would be a lock that is never held; leave it out for \
             no limit",
        ),
        (
            "lease = \"500us\"",
            "`lease`: `us` is too fine: Redis counts in whole milliseconds (\"1ms\")",
        ),
    ] {
        assert_eq!(messages(text), [expected], "{text}");
    }
}
