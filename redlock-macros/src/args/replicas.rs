//! The option for the number of replicas that must have the lock.

use proc_macro2::Ident;
use syn::{Expr, Lit};

use super::value::{OptionWords, is_open, literal, word};
use crate::errors::Errors;
use crate::plan::ReplicaAckArg;

const LIST: &str = "`replica_ack` is `none`, `majority`, `all`, a number of replicas, or an \
                    expression in braces of type `ReplicaAck`: `{ ack }`";

const WORDS: OptionWords = OptionWords {
    option: "replica_ack",
    words: &["none", "majority", "all"],
    foreign: &[
        ("no", "none"),
        ("off", "none"),
        ("false", "none"),
        ("never", "none"),
        ("zero", "none"),
        ("quorum", "majority"),
        ("half", "majority"),
        ("most", "majority"),
        ("every", "all"),
        ("each", "all"),
        ("true", "all"),
        ("one", "1"),
        ("any", "1"),
    ],
    list: LIST,
};

pub(super) fn replica_ack(_: &Ident, value: Expr, errors: &mut Errors) -> Option<ReplicaAckArg> {
    // `AtLeast(2)` is a variant for which a number is written here; it is not a function.
    if let Expr::Call(call) = &value
        && let Some(name) = word(&call.func)
    {
        let number = call.args.first().and_then(number).unwrap_or(1).max(1);
        errors.on(
            &value,
            format_args!("unknown `{name}(..)`; did you mean `{number}`? {LIST}"),
        );
        return None;
    }
    match word(&value).map(ToString::to_string).as_deref() {
        Some("none") => return Some(ReplicaAckArg::None),
        Some("majority") => return Some(ReplicaAckArg::Majority),
        Some("all") => return Some(ReplicaAckArg::All),
        None if is_open(&value) => return Some(ReplicaAckArg::Expr(value)),
        _ => {}
    }
    match number(&value) {
        Some(0) => errors.on(
            &value,
            "no replica is waited for with `replica_ack = none`: write that instead of 0",
        ),
        Some(replicas) => return Some(ReplicaAckArg::AtLeast(replicas)),
        None if matches!(literal(&value), Some(Lit::Int(_))) => errors.on(
            &value,
            format_args!(
                "`replica_ack` is a number of replicas, from 1 to {}: `replica_ack = 2`",
                u32::MAX
            ),
        ),
        None => WORDS.refuse(&value, errors),
    }
    None
}

/// The number of a literal.
fn number(value: &Expr) -> Option<u32> {
    match value {
        Expr::Lit(value) => match &value.lit {
            Lit::Int(number) if matches!(number.suffix(), "" | "u32") => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
