use std::time::Duration;

use super::names::{FOREIGN, OPTIONS};
use super::*;

pub(super) fn parse(text: &str) -> Result<Args, Vec<String>> {
    let tokens = text.parse().expect("tokens");
    let mut errors = Errors::default();
    let args = Args::parse(tokens, &mut errors);
    errors.finish(args).map_err(Errors::messages)
}

pub(super) fn messages(text: &str) -> Vec<String> {
    parse(text).expect_err(text)
}

#[test]
fn nothing_is_set_by_itself() {
    let args = parse("").expect("options");
    assert!(args.key.is_unset() && args.wait.is_unset() && args.client.is_unset());
}

#[test]
fn options_do_not_get_into_each_others_places() {
    let args = parse(
        r#"key = "order:<id>", wait = "0s", lease = "30s", max_hold = "1m30s", min_hold = "1s",
           replica_ack = all, fsync = replicas,
           renew = false, kind = fair, client = self.locks(), owner = me, on_timeout = skip,
           on_unavailable = value(1), on_lost = finish, map_err = E::from, when = a > b,
           guard = g, token = t, name = "n", crate = crate::mock,"#,
    )
    .expect("options");
    assert!(matches!(args.key.value(), Some(KeyArg::Template(parts)) if parts.len() == 2));
    assert!(args.keys.is_unset());
    assert!(matches!(
        args.wait.value(),
        Some(Wait::Literal(Duration::ZERO))
    ));
    assert!(matches!(args.lease.value(), Some(TimeArg::Literal(time)) if time.as_secs() == 30));
    assert!(matches!(args.max_hold.value(), Some(TimeArg::Literal(time)) if time.as_secs() == 90));
    assert!(matches!(args.min_hold.value(), Some(TimeArg::Literal(time)) if time.as_secs() == 1));
    assert!(matches!(args.replica_ack.value(), Some(ReplicaAckArg::All)));
    assert!(matches!(args.fsync.value(), Some(FsyncArg::Replicas)));
    assert!(matches!(args.renew.value(), Some(RenewArg::Bool(false))));
    assert!(matches!(args.kind.value(), Some(LockKindArg::Fair)));
    assert!(matches!(args.client.value(), Some(Expr::MethodCall(_))));
    assert!(matches!(args.owner.value(), Some(Expr::Path(_))));
    assert!(matches!(args.on_timeout.value(), Some(Fallback::Skip(_))));
    assert!(matches!(
        args.on_unavailable.value(),
        Some(Fallback::Value(_))
    ));
    assert_eq!(args.on_lost.value(), Some(OnLostArg::Finish));
    assert!(matches!(args.map_err.value(), Some(Expr::Path(_))));
    assert!(matches!(args.when.value(), Some(Expr::Binary(_))));
    assert_eq!(args.guard.value().expect("guard"), "g");
    assert_eq!(args.token.value().expect("token"), "t");
    assert_eq!(args.name.value().expect("name").value(), "n");
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
    for (option, value) in OPTIONS {
        let text = format!("{option} = {value}, {option} = {value}");
        assert_eq!(
            messages(&text),
            [format!("`{option}` is set twice: leave one of them out")]
        );
    }
}

#[test]
fn a_bad_value_is_no_reason_to_call_the_second_one_the_first() {
    assert_eq!(
        messages(r#"wait = "1", wait = "1s""#),
        [
            "`wait`: duration without a unit: write \"1s\" or \"1ms\" (units: ms, s, m, h, d)",
            "`wait` is set twice: leave one of them out"
        ]
    );
}

#[test]
fn unknown_options_get_a_hint_and_the_list() {
    let list = "the options are `key`, `keys`, `kind`, `once`, `wait`, `lease`, `renew`, `max_hold`, \
                `min_hold`, `replica_ack`, `fsync`, `client`, `owner`, `on_timeout`, `on_unavailable`, `on_lost`, \
                `map_err`, `when`, `guard`, `token`, `name`, `blocking`, `crate`";
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
        (
            "lockType = FAIR",
            "unknown option `lockType`; did you mean `kind`? ",
        ),
        (
            "permits = 3",
            "unknown option `permits`; did you mean `kind = semaphore(limit = ..)`? ",
        ),
        (
            "type = fair",
            "unknown option `type`; did you mean `kind`? ",
        ),
        (
            "on_timout = skip",
            "unknown option `on_timout`; did you mean `on_timeout`? ",
        ),
        (
            "lockAtLeastFor = 3",
            "unknown option `lockAtLeastFor`; did you mean `min_hold`? ",
        ),
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
fn each_example_is_an_example() {
    for (option, value) in OPTIONS {
        parse(&format!("{option} = {value}")).expect(option);
    }
}

#[test]
fn what_lacks_its_name_or_its_value() {
    for (text, expected) in [
        (
            "\"order:<id>\"",
            "options have names: write `key = \"order:<id>\"`",
        ),
        ("renew", "`renew` needs a value: `renew = true`"),
        ("renew =", "`renew` needs a value: `renew = true`"),
        (
            "renew = , key = \"k\"",
            "`renew` needs a value: `renew = true`",
        ),
        (
            "key(\"a\")",
            "`key` needs a value: `key = \"order:<user_id>\"`",
        ),
        ("kind(fair)", "`kind` needs a value: `kind = fair`"),
        ("when", "`when` needs a value: `when = amount > 0`"),
        (
            "client = self.",
            "`client`: unexpected end of input, expected identifier or integer; write it as in \
             `client = self.locks`",
        ),
        (
            "guard = mut held",
            "`guard`: expected an expression; write it as in `guard = held`",
        ),
        (
            "kind = semaphore(limit: 3)",
            "`kind`: expected `,`; write it as in `kind = semaphore(limit = 10)`",
        ),
    ] {
        assert_eq!(messages(text), [expected], "{text}");
    }
}

#[test]
fn an_option_that_cannot_be_read_is_set_all_the_same() {
    assert_eq!(messages("key = @").len(), 1);
    assert_eq!(
        messages("wait = @, wait = \"1s\"")[1],
        "`wait` is set twice: leave one of them out"
    );
    assert_eq!(
        messages("wait, wait")[1],
        "`wait` needs a value: `wait = \"1s\"`"
    );
}
