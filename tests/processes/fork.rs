//! A client from before a fork.

use std::{io::Read, process::Stdio};

use tests::{ChildProcess, DEADLINE, RedisServer, unique};

const REFUSED: &str =
    "ShutDown (the client was made before this process was forked; make one in each process)";

/// Runs a process that forks; returns what the process said, and the commands that the server was sent, with their numbers.
fn run(how: &str) -> (String, Vec<String>) {
    let server = RedisServer::start();
    let arguments = ["fork", &server.url(), &unique("fork"), how];
    let program = env!("CARGO_BIN_EXE_participant");
    let piped = |command: &mut std::process::Command| {
        command.stdout(Stdio::piped());
    };
    let mut process = ChildProcess::spawn(program, arguments, piped).unwrap();
    let status = process.wait(DEADLINE).expect("it hangs");
    let mut said = String::new();
    process
        .take_stdout()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(status.success(), "{how}: {status}: {said}");
    let stats = commands(&server);
    (said, stats)
}

/// How often each command was called.
fn commands(server: &RedisServer) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stats: String = runtime
        .block_on(async {
            let mut redis = server.connect().await.unwrap();
            let mut info = redis::cmd("INFO");
            info.arg("commandstats").query_async(&mut redis).await
        })
        .unwrap();
    let lines = stats.lines().filter_map(|line| line.split_once(",usec"));
    lines.map(|(count, _)| count.to_owned()).collect()
}

#[track_caller]
fn assert_one_holder(how: &str, locks: usize) {
    let (said, commands) = run(how);
    let child = format!("child: {REFUSED}, {REFUSED}\nchild: another id true\n");
    assert_eq!(
        said,
        format!("{child}parent: held true, Released\n"),
        "{how}"
    );
    // The two clients ask for HDEL once each.
    for (command, times) in [("restore", locks), ("hdel", 2 + locks)] {
        let calls = format!("cmdstat_{command}:calls={times}");
        assert!(commands.contains(&calls), "{how}: {calls}: {commands:?}");
    }
}

/// Both had the lock, under one owner id and number.
#[test]
fn a_client_that_was_never_used_had_one_lock_in_two_processes() {
    assert_one_holder("unused", 1);
}

#[test]
fn a_client_of_a_runtime_that_ended_had_one_lock_in_two_processes() {
    assert_one_holder("used", 2);
}

/// The calls of the child went into the connection of the parent.
#[test]
fn a_client_with_a_thread_of_its_own_shared_its_connection_with_a_child() {
    assert_one_holder("dedicated", 2);
}

/// The child's copy of the guard released the lock of the parent.
#[test]
fn a_guard_that_a_child_dropped_released_the_lock_of_its_parent() {
    assert_one_holder("held", 1);
}

/// The thread with the timers is not in the child.
#[test]
fn a_wait_outside_of_a_runtime_had_no_end_in_a_child() {
    let (said, _) = run("blocking");
    assert_eq!(said, "child: TimedOut\nparent: held true, Released\n");
}
