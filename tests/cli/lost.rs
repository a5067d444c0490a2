//! `redlock run`: a lock that is lost ends the command.

use tests::{DEADLINE, RedisServer, eventually, is_alive, shared_server, unique};

use crate::command::{Command, holds, redlock, start};

/// A lease whose renewals notice a loss soon.
const LEASE: &str = "600ms";

async fn lose(key: &str) {
    let lost: u64 = shared_server().ask(&["DEL", key]).await;
    assert_eq!(lost, 1);
}

#[tokio::test]
async fn the_command_is_told_by_sigterm_and_the_exit_code_is_76() {
    let key = unique("cli:lost");
    let line = "trap 'echo told; exit 3' TERM; echo ran; while :; do sleep 0.05; done";
    let mut run = start(["run", &key, "--lease", LEASE, "-c", line]);
    run.says("ran").await;
    lose(&key).await;
    let ended = run.ended().await;
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (76, "ran\ntold\n"),
        "{ended:?}"
    );
    assert!(ended.err.contains("was lost"), "{ended:?}");
}

/// Its next renewal is minutes away.
#[tokio::test]
async fn a_server_that_tells_of_the_loss_ends_the_command_at_once() {
    let server = RedisServer::start();
    let mut run = Command::holds(&server.url(), "k", &["--lease", "30m"]).await;
    eventually(DEADLINE, async || {
        let stats: String = server.ask(&["INFO", "stats"]).await;
        stats.contains("tracking_total_keys:1")
    })
    .await;
    let _: u64 = server.ask(&["DEL", "k"]).await;
    assert_eq!(run.ended().await.code, 76);
}

/// Whoever frees a lock says why, and could move the cursor of its holder's terminal.
#[tokio::test]
async fn the_reason_of_a_theft_is_printed_as_text() {
    let key = unique("cli:stolen");
    let mut run = holds(&key, &["--lease", LEASE]).await;
    let why = "\u{1b}[2Jtime";
    let freed = redlock(["unlock", "--force", "--yes", "--why", why, &key]).await;
    assert_eq!(freed.code, 0, "{freed:?}");
    let ended = run.ended().await;
    assert!(ended.err.contains("\\u{1b}[2Jtime"), "{ended:?}");
}

#[tokio::test]
async fn the_whole_group_is_killed_if_it_does_not_end() {
    let key = unique("cli:stubborn");
    // Both ignore SIGTERM, and the inner one would outlive its parent.
    let line = "trap '' TERM; sleep 120 & echo inner $!; echo outer $$; wait; wait";
    let arguments = [
        "run",
        &key,
        "--lease",
        LEASE,
        "--kill-after",
        "200ms",
        "-c",
        line,
    ];
    let mut run = start(arguments);
    let (inner, outer) = (run.number("inner").await, run.number("outer").await);
    assert!(is_alive(inner) && is_alive(outer));
    lose(&key).await;
    assert_eq!(run.ended().await.code, 76);
    // What init has yet to wait for is there for a moment.
    eventually(DEADLINE, async || !is_alive(inner) && !is_alive(outer)).await;
}

#[tokio::test]
async fn what_the_command_has_left_behind_is_killed_with_it() {
    let key = unique("cli:left");
    let line = "(trap '' TERM; echo inner $(exec sh -c 'echo $PPID'); sleep 120) & echo ran; cat";
    let arguments = [
        "run",
        &key,
        "--lease",
        LEASE,
        "--kill-after",
        "200ms",
        "-c",
        line,
    ];
    let mut run = start(arguments);
    run.says("ran").await;
    let inner = run.number("inner").await;
    lose(&key).await;
    assert_eq!(run.ended().await.code, 76);
    eventually(DEADLINE, async || !is_alive(inner)).await;
}

#[tokio::test]
async fn the_longest_hold_ends_the_command() {
    let key = unique("cli:max");
    let ended = redlock(["run", &key, "--max-hold", "500ms", "--", "sleep", "120"]).await;
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("longest hold"), "{ended:?}");
}

#[tokio::test]
async fn a_command_that_ends_as_its_lock_is_gone_keeps_its_code_and_is_warned_of() {
    let key = unique("cli:gone");
    let mut run = holds(&key, &[]).await;
    lose(&key).await;
    run.end_input();
    let ended = run.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.err.contains("was gone before it was released"),
        "{ended:?}"
    );
}
