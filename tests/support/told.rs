//! Errors, as a log and a caller have them.

use std::{error::Error, fmt::Debug};

use redlock_rt::ErrorKind;

/// The error's message, then the messages of its sources.
pub fn told(error: &dyn Error) -> String {
    let sources = std::iter::successors(error.source(), |&source| source.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    [&[error.to_string()], &*texts].concat().join(" <- ")
}

/// The error of a caller: a kind to branch on, and a message that names the mistake.
#[track_caller]
pub fn assert_error<T: Debug>(outcome: Result<T, redlock_rt::Error>, kind: ErrorKind, says: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}
