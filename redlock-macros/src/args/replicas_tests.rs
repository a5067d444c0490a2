use super::super::tests::{messages, parse};
use super::*;

fn refused(value: &str) -> String {
    let mut messages = messages(&format!("replica_ack = {value}"));
    assert_eq!(messages.len(), 1, "{value}: {messages:?}");
    messages.remove(0)
}

fn accepted(value: &str) -> ReplicaAckArg {
    let args = parse(&format!("replica_ack = {value}")).expect(value);
    args.replica_ack.value().expect(value)
}

#[test]
fn words_and_numbers() {
    assert!(matches!(accepted("none"), ReplicaAckArg::None));
    assert!(matches!(accepted("majority"), ReplicaAckArg::Majority));
    assert!(matches!(accepted("(all)"), ReplicaAckArg::All));
    for number in ["2", "2u32", "0b10"] {
        assert!(matches!(accepted(number), ReplicaAckArg::AtLeast(2)));
    }
}

#[test]
fn expressions_are_left_to_the_compiler() {
    for value in [
        "{ ack }",
        "self.ack",
        "self.ack()",
        "crate::ACK",
        "ReplicaAck::Majority",
        "ReplicaAck::AtLeast(2)",
        "if a { b } else { c }",
        "ack!()",
    ] {
        assert!(matches!(accepted(value), ReplicaAckArg::Expr(_)), "{value}");
    }
}

#[test]
fn zero_is_none() {
    for zero in ["0", "0u32", "0x0"] {
        assert_eq!(
            refused(zero),
            "no replica is waited for with `replica_ack = none`: write that instead of 0"
        );
    }
}

#[test]
fn other_numbers_are_none_of_replicas() {
    for number in ["-1", "5000000000", "2u8", "-0"] {
        assert_eq!(
            refused(number),
            "`replica_ack` is a number of replicas, from 1 to 4294967295: `replica_ack = 2`"
        );
    }
}

#[test]
fn words_are_written_without_quotes() {
    assert_eq!(
        refused("\"majority\""),
        "`majority` is a word, without quotes: `replica_ack = majority`"
    );
}

#[test]
fn unknown_words_get_a_hint_and_the_list() {
    for (value, hint) in [
        ("majorty", "unknown `majorty`; did you mean `majority`? "),
        ("ALL", "unknown `ALL`; did you mean `all`? "),
        ("None", "unknown `None`; did you mean `none`? "),
        ("quorum", "unknown `quorum`; did you mean `majority`? "),
        ("one", "unknown `one`; did you mean `1`? "),
        ("true", "unknown `true`; did you mean `all`? "),
        ("\"off\"", "unknown `off`; did you mean `none`? "),
        ("at_least(3)", "unknown `at_least(..)`; did you mean `3`? "),
        ("AtLeast(n)", "unknown `AtLeast(..)`; did you mean `1`? "),
        ("ACK", "unknown `ACK`; "),
    ] {
        assert_eq!(refused(value), format!("{hint}{LIST}"));
    }
    for value in ["1.5", "[1]", "|x| x", "'a'", "(1, 2)"] {
        assert_eq!(refused(value), LIST);
    }
}
