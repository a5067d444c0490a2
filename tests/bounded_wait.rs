//! A wait is a hard bound on everything, and its end tells why: somebody else had the lock, or
//! Redis did not answer.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

#[path = "bounded_wait/answers.rs"]
mod answers;
#[path = "bounded_wait/bounds.rs"]
mod bounds;
#[path = "bounded_wait/refusals.rs"]
mod refusals;
#[path = "bounded_wait/scripted.rs"]
mod scripted;
#[path = "bounded_wait/silence.rs"]
mod silence;
#[path = "bounded_wait/sockets.rs"]
mod sockets;
#[path = "bounded_wait/valve.rs"]
mod valve;

use std::time::Duration;

use redlock_rt::{Error, ErrorKind};

const DEADLINE: Duration = Duration::from_secs(20);

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}
