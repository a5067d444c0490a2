//! The option for the servers that must have the lock on disk.

use proc_macro2::Ident;
use syn::Expr;

use super::value::{OptionWords, is_open, word};
use crate::errors::Errors;
use crate::plan::FsyncArg;

const LIST: &str = "`fsync` is `none`, `replicas`, `all`, or an expression in braces of type \
                    `Fsync`: `{ fsync }`";

const WORDS: OptionWords = OptionWords {
    option: "fsync",
    words: &["none", "replicas", "all"],
    foreign: &[
        ("no", "none"),
        ("off", "none"),
        ("false", "none"),
        ("never", "none"),
        ("memory", "none"),
        ("replica", "replicas"),
        ("slaves", "replicas"),
        ("true", "all"),
        ("always", "all"),
        ("yes", "all"),
        ("on", "all"),
        ("everywhere", "all"),
        ("master", "all"),
        ("local", "all"),
    ],
    list: LIST,
};

pub(super) fn fsync(_: &Ident, value: Expr, errors: &mut Errors) -> Option<FsyncArg> {
    match word(&value).map(ToString::to_string).as_deref() {
        Some("none") => return Some(FsyncArg::None),
        Some("replicas") => return Some(FsyncArg::Replicas),
        Some("all") => return Some(FsyncArg::All),
        None if is_open(&value) => return Some(FsyncArg::Expr(value)),
        _ => WORDS.refuse(&value, errors),
    }
    None
}

#[cfg(test)]
#[path = "fsync_tests.rs"]
mod tests;
