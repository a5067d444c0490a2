//! The locks that a restart keeps.

use super::facts::Facts;
use super::{Said, error, note, ok, warning};

pub(super) fn check(facts: &Facts) -> Vec<Said> {
    let Some(aof) = facts.info("aof_enabled") else {
        return vec![note("not known: INFO is not allowed")];
    };
    let mut said = vec![match (aof, facts.config("appendfsync")) {
        ("1", Some("always")) => ok("the append-only file is synced with every write"),
        ("1", Some("no")) => warning(
            "the append-only file is synced when the system likes: a crash of the machine loses locks of the last \
             half minute",
            "CONFIG SET appendfsync everysec, or always",
        ),
        ("1", Some(_)) => note(
            "the append-only file is synced every second: a crash of the machine loses locks of the last second \
             (--fsync waits for those that matter)",
        ),
        ("1", None) => ok("there is an append-only file"),
        _ => warning(
            "there is no append-only file: a restart loses every lock, while its holder goes on",
            "CONFIG SET appendonly yes, and appendfsync everysec or always",
        ),
    }];
    let stops = "writes are refused then (stop-writes-on-bgsave-error): look at the log of Redis and at its disk";
    if facts.info("aof_last_write_status") == Some("err") {
        said.push(error(
            "the last write to the append-only file failed",
            stops,
        ));
    }
    if facts.info("rdb_last_bgsave_status") == Some("err") {
        said.push(error("the last snapshot failed", stops));
    }
    if facts.info("loading") == Some("1") {
        said.push(error("it loads its data, and refuses calls", "wait"));
    }
    said
}
