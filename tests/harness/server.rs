//! Servers: start, kill, restart, pause, options.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use crate::DEADLINE;
use redis::AsyncCommands;
use tests::{
    RedisServer, connection_over_tls, connection_to, eventually, is_alive, patient, shared_server,
    unique,
};

#[tokio::test]
async fn servers_are_separate_and_end_when_dropped() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    assert_ne!(one.port(), other.port());
    let () = one.connect().await.unwrap().set("key", 1).await.unwrap();
    let there: bool = other.connect().await.unwrap().exists("key").await.unwrap();
    assert!(!there);

    let pid = one.pid();
    assert!(is_alive(pid));
    drop(one);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_restart_keeps_the_port_and_loses_the_data() {
    let server = RedisServer::start();
    let (url, pid) = (server.url(), server.pid());
    let () = server.connect().await.unwrap().set("key", 1).await.unwrap();

    server.kill();
    assert!(!is_alive(pid));
    assert!(server.connect().await.is_err());

    server.restart();
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    let there: bool = server.connect().await.unwrap().exists("key").await.unwrap();
    assert!(!there);
}

#[tokio::test]
async fn an_append_only_file_brings_the_data_back() {
    let server = RedisServer::options().aof().start();
    let mut connection = server.connect().await.unwrap();
    for round in 1..=3 {
        let count: usize = connection.incr("count", 1).await.unwrap();
        assert_eq!(count, round);
        server.restart();
        connection = server.connect().await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_server_answers_once_resumed() {
    let server = RedisServer::start();
    let mut connection = server.connect().await.unwrap();
    server.pause();
    let mut ping = Box::pin(async move { connection.ping::<String>().await });
    tokio::time::timeout(Duration::from_millis(100), &mut ping)
        .await
        .unwrap_err();
    server.resume();
    assert_eq!(
        tokio::time::timeout(DEADLINE, ping).await.unwrap().unwrap(),
        "PONG"
    );

    server.pause();
    let pid = server.pid();
    drop(server);
    assert!(!is_alive(pid), "a paused server is killed as well");
}

#[tokio::test]
async fn a_server_asks_for_its_password() {
    let password = unique("secret").replace(':', "-");
    let server = RedisServer::options().password(&password).start();
    let without = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let answer: Result<String, _> = without
        .get_multiplexed_async_connection_with_config(&patient())
        .await
        .unwrap()
        .ping()
        .await;
    assert_eq!(answer.unwrap_err().code(), Some("NOAUTH"));
    assert_eq!(
        server
            .connect()
            .await
            .unwrap()
            .ping::<String>()
            .await
            .unwrap(),
        "PONG"
    );
}

#[tokio::test]
async fn a_server_listens_on_a_unix_socket() {
    let password = unique("secret").replace(':', "-");
    let server = RedisServer::options()
        .unix_socket()
        .password(password)
        .start();
    let mut connection = connection_to(&server.unix_url()).await.unwrap();
    assert_eq!(connection.ping::<String>().await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_server_takes_further_arguments() {
    let server = RedisServer::options().args(["--databases", "3"]).start();
    let mut connection = server.connect().await.unwrap();
    let select = |db: u8| redis::cmd("SELECT").arg(db).to_owned();
    select(2).exec_async(&mut connection).await.unwrap();
    select(3).exec_async(&mut connection).await.unwrap_err();
}

#[tokio::test]
async fn a_server_speaks_tls() {
    let server = RedisServer::options().tls().password("s3cret").start();
    let other = RedisServer::options().tls().start();
    let mut redis = connection_over_tls(&server.tls_url(), server.ca_pem())
        .await
        .unwrap();
    assert_eq!(redis.ping::<String>().await.unwrap(), "PONG");
    let untrusted = connection_over_tls(&server.tls_url(), other.ca_pem()).await;
    assert!(untrusted.is_err());
}

#[tokio::test]
async fn the_shared_server_is_one() {
    let (one, other) = (shared_server(), shared_server());
    assert_eq!(one.pid(), other.pid());
    let key = unique("shared");
    let () = one.connect().await.unwrap().set(&key, 1).await.unwrap();
    let gone: bool = other.connect().await.unwrap().del(&key).await.unwrap();
    assert!(gone);
}

/// The next test runs this in a separate process, and kills that.
#[test]
fn child_with_servers() {
    let Ok(report) = std::env::var("HARNESS_CHILD_REPORT") else {
        return;
    };
    let paused = RedisServer::start();
    paused.pause();
    let text = format!(
        "{} {} {}",
        shared_server().pid(),
        paused.pid(),
        paused.directory().display()
    );
    std::fs::write(format!("{report}.new"), text).unwrap();
    std::fs::rename(format!("{report}.new"), report).unwrap();
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn no_server_survives_a_killed_test_process() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    // Not a ChildProcess, since no other part of the harness may help here.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::child_with_servers"])
        .env("HARNESS_CHILD_REPORT", &report)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = eventually(DEADLINE, async || std::fs::read_to_string(&report)).await;
    let words: Vec<_> = text.split(' ').collect();
    let pids: Vec<u32> = words[..2].iter().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|&pid| is_alive(pid)));

    child.kill().unwrap();
    child.wait().unwrap();
    eventually(DEADLINE, async || !pids.iter().any(|&pid| is_running(pid))).await;
    eventually(DEADLINE, async || !std::path::Path::new(words[2]).exists()).await;
}

/// Unlike [`is_alive`], false for a process that has ended but was not waited for: the parent of an
/// orphan is the init of the machine, which may be slow.
fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .starts_with('Z')
    })
}
