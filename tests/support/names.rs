//! Names that no other test, process or run uses.

use std::{
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::random::random_u64;

/// A name of the form `test:WHAT:…`, unique on the server, without braces and glob characters.
///
/// It serves as a lock name and as the prefix of several lock names of one test; see
/// [`LeakCheck`](crate::LeakCheck).
pub fn unique(what: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(
        "test:{what}:{:x}-{count:x}-{:08x}",
        process::id(),
        random_u64() & 0xffff_ffff
    )
}
