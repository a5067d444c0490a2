//! The text of an error in a log.

use std::error::Error;

/// The error's message, then the messages of its sources.
pub fn told(error: &dyn Error) -> String {
    let sources = std::iter::successors(error.source(), |&source| source.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    [&[error.to_string()], &*texts].concat().join(" <- ")
}
