//! `redlock run`: the child, its environment and its exit code.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use redlock_rt::Client;
use tests::{DEADLINE, RedisServer, RedissonClient, ask, eventually, shared_server, unique};

use crate::command::{Command, PROGRAM, holds, redlock, start};

#[tokio::test]
async fn the_lock_is_held_while_the_command_runs_and_free_when_it_has_ended() {
    let key = unique("cli:run");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let mut run = start(["run", &key, "--", "sh", "-c", "echo $REDLOCK_NAME; cat"]);
    run.says(&key).await;
    assert!(client.rlock(&key).is_locked().await.unwrap());
    run.end_input();
    let ended = run.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(!client.rlock(&key).is_locked().await.unwrap());
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let key = unique("cli:code");
    let ended = redlock(["run", &key, "--", "sh", "-c", "exit 7"]).await;
    assert_eq!(ended.code, 7);
    let ended = redlock(["run", &key, "--", "sh", "-c", "kill -9 $$"]).await;
    assert_eq!(ended.code, 128 + 9);
    // The words of the command are its own, also where they look like ours.
    let ended = redlock(["run", &key, "echo", "-n", "--json", "-s"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "--json -s"));
    let ended = redlock(["run", &key, "-c", "echo $((40 + 2))"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "42\n"));
}

/// The words of the command are looked at for a password.
#[tokio::test]
async fn a_word_that_is_no_text_was_a_panic() {
    let server = RedisServer::options().password("secret").start();
    let key = unique("cli:bytes");
    let word = OsStr::from_bytes(b"\xff");
    let arguments: Vec<&OsStr> = ["run", &key, "--", "printf", "%s"]
        .map(OsStr::new)
        .into_iter()
        .chain([word])
        .collect();
    let output = std::process::Command::new(PROGRAM)
        .args(arguments)
        .env("REDIS_URL", server.url())
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(0), &b"\xff"[..])
    );
}

#[tokio::test]
async fn a_lock_that_no_replica_had_was_not_the_code_that_was_asked_for() {
    let server = RedisServer::start();
    let key = unique("cli:ack");
    let arguments = ["run", "-n", "-E", "9", "--ack", "1", &key, "true"];
    let mut run = Command::start(&server.url(), &arguments);
    assert_eq!(run.ended().await.code, 9);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_127_or_126_and_leaves_no_lock() {
    let key = unique("cli:start");
    let ended = redlock(["run", &key, "--", "/no/such/program"]).await;
    assert_eq!(ended.code, 127, "{ended:?}");
    let ended = redlock(["run", &key, "--", "/"]).await;
    assert_eq!(ended.code, 126, "{ended:?}");
    let redis = shared_server().connect().await.unwrap();
    let there: bool = ask(&redis, &["EXISTS", &key]).await;
    assert!(!there);
}

#[tokio::test]
async fn what_is_held_is_75_after_the_wait_or_the_code_that_flock_is_told() {
    let key = unique("cli:held");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let guard = client.rlock(&key).lock().await.unwrap();
    for (arguments, code) in [
        (&["-n"][..], 75),
        (&["-w", "0"], 75),
        (&["-w", "0.1"], 75),
        (&["--wait", "100ms"], 75),
        (&["-n", "-E", "9"], 9),
        (&["-w", "0.1", "-E", "9"], 9),
        (&["--kind", "fair", "-n"], 75),
        (&["-s", "-n"], 75),
        (&["-x", "-n"], 75),
    ] {
        let all = [&["run", &key][..], arguments, &["echo", "ran"]].concat();
        let ended = Command::start(&shared_server().url(), &all).ended().await;
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (code, ""),
            "{arguments:?}: {ended:?}"
        );
        assert!(ended.err.contains(&key), "{ended:?}");
    }
    drop(guard);
    let ended = redlock(["run", "-w", "10", &key, "echo", "ran"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "ran\n"));
}

#[tokio::test]
async fn one_that_waits_runs_when_the_lock_is_released() {
    let key = unique("cli:waits");
    let mut first = start(["run", &key, "--", "sh", "-c", "echo first; cat"]);
    first.says("first").await;
    let mut second = start(["run", &key, "--", "echo", "second"]);
    let channels = format!("*{key}*");
    eventually(DEADLINE, async || {
        let heard: Vec<String> = shared_server()
            .ask(&["PUBSUB", "CHANNELS", &channels])
            .await;
        !heard.is_empty()
    })
    .await;
    assert!(second.is_running());
    first.end_input();
    assert_eq!(second.ended().await.out, "second\n");
    assert_eq!(first.ended().await.code, 0);
}

#[tokio::test]
async fn a_lock_of_a_java_service_is_respected_and_seen_by_it() {
    let key = unique("cli:java");
    let java = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    let theirs = java.rlock(&key);
    assert!(theirs.try_lock(1, None).await.unwrap());
    assert_eq!(redlock(["run", "-n", &key, "true"]).await.code, 75);
    theirs.unlock(1).await.unwrap();
    let mut run = holds(&key, &["-n"]).await;
    assert!(!theirs.try_lock(1, None).await.unwrap());
    run.end_input();
    assert_eq!(run.ended().await.code, 0);
    assert!(theirs.try_lock(1, None).await.unwrap());
}
