//! What the program prints.

use std::process::Command;

use tests::{RedisServer, trace_init};

#[test]
fn the_spans_of_a_lock_are_exported_with_those_of_the_service() {
    trace_init();
    let server = RedisServer::start();
    let mut program = Command::new(env!("CARGO_BIN_EXE_traces"));
    let ended = program.env("REDIS_URL", server.url()).output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{out}");
    let ids = |field: &str| -> Vec<String> {
        let lines = out
            .lines()
            .filter_map(|line| line.trim().strip_prefix(field));
        lines.map(|id| id.trim().to_owned()).collect()
    };
    let names = ids("Name         :");
    // The hold is ended by a task of the client, so its place is left to chance.
    let ended = [
        "order",
        "redlock.acquire",
        "redlock.call",
        "redlock.call",
        "redlock.held",
    ];
    let is_one = |name: &&String| ended.contains(&&***name);
    let mut of_lock: Vec<_> = names.iter().filter(is_one).collect();
    assert_eq!(of_lock[..2], ["redlock.call", "redlock.acquire"], "{out}");
    of_lock.sort();
    assert_eq!(of_lock, ended, "{out}");
    for field in [
        "db.system.name",
        "db.operation.name",
        "server.port",
        "outcome",
    ] {
        assert!(out.contains(field), "{field}: {out}");
    }
}
