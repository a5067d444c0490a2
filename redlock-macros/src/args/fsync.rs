//! The option for the servers that must have the lock on disk.

use proc_macro2::Ident;
use syn::{Expr, Lit};

use super::value::{OptionWords, is_open, literal, string, word};
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
    if let Some(name) = word(&value) {
        return match name.to_string().as_str() {
            "none" => Some(FsyncArg::None),
            "replicas" => Some(FsyncArg::Replicas),
            "all" => Some(FsyncArg::All),
            other => {
                WORDS.unknown(&value, other, errors);
                None
            }
        };
    }
    match literal(&value) {
        Some(Lit::Str(_)) => WORDS.quoted(&value, &string(&value)?.value(), errors),
        Some(Lit::Bool(switch)) => WORDS.unknown(&value, &switch.value.to_string(), errors),
        None if is_open(&value) => return Some(FsyncArg::Expr(value)),
        _ => errors.on(&value, LIST),
    }
    None
}

#[cfg(test)]
#[path = "fsync_tests.rs"]
mod tests;
