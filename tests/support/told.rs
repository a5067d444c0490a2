//! What a log says of an error.

use std::error::Error;

/// The error's message, then those of its sources.
pub fn told(error: &dyn Error) -> String {
    let sources = std::iter::successors(error.source(), |&source| source.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    [&[error.to_string()], &*texts].concat().join(" <- ")
}
