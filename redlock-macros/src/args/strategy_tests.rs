use quote::ToTokens as _;

use super::super::tests::{messages, parse};
use super::*;

fn fallback(value: &str) -> Fallback {
    let args = parse(&format!("on_timeout = {value}, on_unavailable = {value}")).expect(value);
    assert!(args.on_unavailable.get().is_some());
    args.on_timeout.value().expect("fallback")
}

fn refused(option: &str, value: &str) -> String {
    let mut messages = messages(&format!("{option} = {value}"));
    assert_eq!(messages.len(), 1, "{value}: {messages:?}");
    messages.remove(0)
}

#[test]
fn every_fallback_is_read() {
    assert!(matches!(fallback("error"), Fallback::Error));
    assert!(matches!(fallback("skip"), Fallback::Skip(_)));
    for (value, expected) in [
        ("value(Ok(None))", "Ok (None)"),
        ("value((Err(E::Busy)),)", "Err (E :: Busy)"),
        ("value({ let a = 1; Ok(a) })", "{ let a = 1 ; Ok (a) }"),
    ] {
        let Fallback::Value(expr) = fallback(value) else {
            panic!("{value}")
        };
        assert_eq!(expr.to_token_stream().to_string(), expected);
    }
    for value in ["call(busy)", "call(Self::busy)", "call(crate::a::<u8>,)"] {
        assert!(matches!(fallback(value), Fallback::Call(_)), "{value}");
    }
}

#[test]
fn every_hint_leads_to_a_strategy() {
    for (foreign, ours) in FOREIGN {
        assert!(
            FALLBACKS.contains(&ours.split('(').next().expect("a word")),
            "{ours}"
        );
        assert!(!FALLBACKS.contains(&foreign), "{foreign}");
    }
}

#[test]
fn unknown_fallbacks_get_a_hint_and_the_list() {
    for (value, text, hint) in [
        ("ignore", "ignore", "did you mean `skip`? "),
        ("default", "default", "did you mean `skip`? "),
        ("throw", "throw", "did you mean `error`? "),
        ("FAIL_FAST", "FAIL_FAST", "did you mean `error`? "),
        ("Skip", "Skip", "did you mean `skip`? "),
        ("\"fail\"", "fail", "did you mean `error`? "),
        ("eror", "eror", "did you mean `error`? "),
        ("values(1)", "values", "did you mean `value(expr)`? "),
        ("fallback(busy)", "fallback", "did you mean `call(path)`? "),
        ("return", "return", "did you mean `value(expr)`? "),
        ("Ok(None)", "Ok", "did you mean `value(Ok(None))`? "),
        ("retry", "retry", "to wait longer, set a longer `wait`; "),
        ("purple", "purple", ""),
        ("purple(1)", "purple", "did you mean `call(purple)`? "),
    ] {
        assert_eq!(
            refused("on_timeout", value),
            format!(
                "unknown strategy `{text}`; {hint}`on_timeout` is `error`, `skip`, `value(expr)` \
                 or `call(path)`"
            ),
            "{value}"
        );
    }
}

#[test]
fn the_body_never_runs_unlocked() {
    for value in [
        "run_unlocked",
        "unlocked",
        "proceed",
        "continue",
        "NO_OPERATION",
        "\"bypass\"",
    ] {
        assert_eq!(
            refused("on_unavailable", value),
            format!(
                "`{}`: the body never runs without its lock, or what the lock guards would be \
                 broken just when there is trouble; `on_unavailable` is `error`, `skip`, \
                 `value(expr)` or `call(path)`",
                value.trim_matches('"')
            ),
            "{value}"
        );
    }
}

#[test]
fn fallbacks_of_another_form() {
    let no_arguments = |word: &str| {
        format!(
            "`{word}` takes no arguments: write `on_timeout = {word}`, or `value(expr)` to return \
             something else"
        )
    };
    let value = "`value` needs one expression, what the function returns then: \
                 `on_timeout = value(Ok(None))`";
    let call = "`call` needs one path, of an async function that takes the same parameters: \
                `on_timeout = call(Self::busy)`";
    let forms = "`on_timeout` is `error`, `skip`, `value(expr)` or `call(path)`";
    for (written, expected) in [
        ("error()", no_arguments("error")),
        ("skip(None)", no_arguments("skip")),
        ("value", value.to_owned()),
        ("value()", value.to_owned()),
        ("value(1, 2)", value.to_owned()),
        ("call", call.to_owned()),
        ("call()", call.to_owned()),
        ("call(a, b)", call.to_owned()),
        ("call(busy(id))", call.to_owned()),
        ("call(self.busy)", call.to_owned()),
        ("call(|id| busy(id))", call.to_owned()),
        ("call(\"busy\")", call.to_owned()),
        (
            "\"skip\"",
            "a strategy is written without quotes: `on_timeout = skip`".to_owned(),
        ),
        (
            "\"value\"",
            "a strategy is written without quotes: `on_timeout = value(expr)`".to_owned(),
        ),
        ("1", forms.to_owned()),
        ("a.b()", forms.to_owned()),
        ("|| a", forms.to_owned()),
        (
            "Self::busy",
            format!("{forms}; did you mean `call(Self::busy)`?"),
        ),
    ] {
        assert_eq!(refused("on_timeout", written), expected, "{written}");
    }
}

#[test]
fn every_way_to_lose_is_read() {
    for (value, expected) in [
        ("cancel", OnLostArg::Cancel),
        ("finish", OnLostArg::Finish),
        ("error_after", OnLostArg::ErrorAfter),
    ] {
        let args = parse(&format!("on_lost = {value}")).expect(value);
        assert_eq!(args.on_lost.value(), Some(expected));
    }
}

#[test]
fn unknown_ways_to_lose_get_a_hint_and_the_list() {
    let list = "`on_lost` is `cancel` (the body is dropped), `finish` (it runs to its end and \
                keeps its value) or `error_after` (it runs to its end, then the loss is returned)";
    for (value, text, hint) in [
        ("ignore", "ignore", "did you mean `finish`? "),
        ("continue", "continue", "did you mean `finish`? "),
        ("abort", "abort", "did you mean `cancel`? "),
        ("Cancel", "Cancel", "did you mean `cancel`? "),
        ("error", "error", "did you mean `error_after`? "),
        ("errorAfter", "errorAfter", "did you mean `error_after`? "),
        ("skip", "skip", ""),
        ("call(f)", "call", ""),
    ] {
        assert_eq!(
            refused("on_lost", value),
            format!("unknown strategy `{text}`; {hint}{list}"),
            "{value}"
        );
    }
    for value in ["1", "a::b", "|| a"] {
        assert_eq!(refused("on_lost", value), list, "{value}");
    }
    for value in ["\"finish\"", "finish()"] {
        assert_eq!(
            refused("on_lost", value),
            "`finish` is a word, without quotes or arguments: `on_lost = finish`",
            "{value}"
        );
    }
}

#[test]
fn what_looks_like_a_value_or_a_call_is_taken_for_one() {
    for (value, text, meant) in [
        ("Err(AppError::Busy)", "Err", "value(Err(AppError::Busy))"),
        ("Ok(None)", "Ok", "value(Ok(None))"),
        ("busy(user_id)", "busy", "call(busy)"),
    ] {
        assert_eq!(
            refused("on_timeout", value),
            format!(
                "unknown strategy `{text}`; did you mean `{meant}`? `on_timeout` is `error`, \
                 `skip`, `value(expr)` or `call(path)`"
            )
        );
    }
}
