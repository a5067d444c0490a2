//! A wait is a hard limit of the whole call, and its error says why: another owner had the lock, or
//! Redis did not answer.

mod answers;
mod blamed;
mod bounds;
mod refusals;
mod scripted;
mod silence;
mod sockets;
mod valve;

use std::time::Duration;

use redlock_rt::{Error, ErrorKind};
use tests::DEADLINE;

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}
