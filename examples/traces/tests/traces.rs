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
    // In the order in which they end: the release is called by the service.
    let ended = [
        "redlock.call",
        "redlock.acquire",
        "redlock.held",
        "redlock.call",
        "order",
    ];
    let of_lock: Vec<_> = names
        .iter()
        .filter(|name| ended.contains(&&***name))
        .collect();
    assert_eq!(of_lock, ended.iter().collect::<Vec<_>>(), "{out}");
    for field in [
        "db.system.name",
        "db.operation.name",
        "server.port",
        "outcome",
    ] {
        assert!(out.contains(field), "{field}: {out}");
    }
}
