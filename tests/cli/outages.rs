//! `redlock run`: a Redis that cannot be reached, refuses, hangs, or goes away.

use std::{net::TcpListener, time::Duration};

use tests::{Cluster, Matcher, Proxy, RedisServer, Replicated, Sentinels, unique};

use crate::command::Command;

async fn code(url: &str, arguments: &[&str]) -> i32 {
    let ended = Command::start(url, arguments).ended().await;
    assert!(ended.err.starts_with("redlock: "), "{ended:?}");
    ended.code
}

#[tokio::test]
async fn a_redis_that_cannot_be_reached_is_69() {
    // Bound and not listening: refused.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("redis://127.0.0.1:{port}");
    for wait in [&["-n"][..], &["-w", "1"], &[]] {
        let all = [&["run", "--timeout", "500ms", "k"][..], wait, &["true"]].concat();
        assert_eq!(code(&url, &all).await, 69, "{wait:?}");
    }
    let unknown = "redis://no-such-host.invalid";
    assert_eq!(code(unknown, &["run", "-n", "k", "true"]).await, 69);
    assert_eq!(
        code("http://localhost", &["run", "-n", "k", "true"]).await,
        64
    );
}

#[tokio::test]
async fn a_redis_that_hangs_is_69_within_the_timeout() {
    let server = RedisServer::start();
    server.pause();
    let arguments = ["run", "--timeout", "500ms", "-n", "k", "true"];
    assert_eq!(code(&server.url(), &arguments).await, 69);
}

#[tokio::test]
async fn a_redis_that_is_slow_gives_its_lock_and_takes_it_back() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    proxy.delay(Matcher::any(), Duration::from_millis(100));
    let ended = Command::start(&proxy.url(), &["run", "-n", "k", "echo", "ran"])
        .ended()
        .await;
    assert_eq!(
        (ended.code, ended.out.as_str(), ended.err.as_str()),
        (0, "ran\n", "")
    );
    let there: bool = server.ask(&["EXISTS", "k"]).await;
    assert!(!there);
}

#[tokio::test]
async fn a_server_that_comes_back_in_time_ends_no_command() {
    let server = RedisServer::options().aof().start();
    let mut run = Command::holds(&server.url(), "k", &[]).await;
    server.restart();
    let there: bool = server.ask(&["EXISTS", "k"]).await;
    assert!(there && run.is_running());
    run.end_input();
    let ended = run.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let there: bool = server.ask(&["EXISTS", "k"]).await;
    assert!(!there);
}

#[tokio::test]
async fn a_wrong_password_is_77_and_no_password_stands_in_the_arguments() {
    let server = RedisServer::options().password("secret").start();
    let address = server.address();
    let url = format!("redis://{address}");
    assert_eq!(code(&url, &["run", "-n", "k", "true"]).await, 77);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let arguments = [
        "run",
        "--password-file",
        file.to_str().unwrap(),
        "k",
        "echo",
        "ran",
    ];
    let ended = Command::start(&url, &arguments).ended().await;
    assert_eq!(
        (ended.code, ended.out.as_str(), ended.err.as_str()),
        (0, "ran\n", "")
    );

    // By the environment without a word, by an argument with a warning.
    let ended = Command::start(&server.url(), &["run", "k", "true"])
        .ended()
        .await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let arguments = ["--url", &server.url(), "run", "k", "true"];
    let ended = Command::start("redis://unused", &arguments).ended().await;
    assert!(
        ended.code == 0 && ended.err.contains("visible in ps"),
        "{ended:?}"
    );
    let several = format!("redis://:secret@{address},{address}");
    let ended = Command::start("redis://unused", &["--url", &several, "run", "k", "true"]);
    assert!({ ended }.ended().await.err.contains("visible in ps"));
}

#[tokio::test]
async fn a_server_that_goes_away_ends_the_command_with_76_when_the_lease_is_over() {
    let server = RedisServer::start();
    let options = ["--lease", "1s", "--timeout", "300ms"];
    let mut run = Command::holds(&server.url(), "k", &options).await;
    server.kill();
    assert_eq!(run.ended().await.code, 76);
}

#[tokio::test]
async fn a_cluster_sentinels_tls_and_a_socket_are_reached_by_their_urls() {
    let key = unique("cli:topologies");
    let ran = |url: String| {
        let arguments = ["run", "-n", &key, "echo", "ran"].map(str::to_owned);
        async move {
            let arguments = arguments.each_ref().map(String::as_str);
            let ended = Command::start(&url, &arguments).ended().await;
            assert_eq!(
                (ended.code, ended.out.as_str()),
                (0, "ran\n"),
                "{url}: {ended:?}"
            );
        }
    };
    let cluster = Cluster::options().start();
    ran(cluster.url()).await;
    let servers = Replicated::start(RedisServer::options(), 1).await;
    ran(servers.url()).await;
    let sentinels = Sentinels::options().watch(servers.server(0), 1, 1).await;
    ran(sentinels.url("")).await;
    let server = RedisServer::options().unix_socket().tls().start();
    ran(server.unix_url()).await;
    let roots = server.directory().join("ca.pem");
    std::fs::write(&roots, server.ca_pem()).unwrap();
    let url = server.tls_url();
    let arguments = [
        "run",
        "-n",
        &key,
        "--tls-ca",
        roots.to_str().unwrap(),
        "echo",
        "ran",
    ];
    let ended = Command::start(&url, &arguments).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "ran\n"), "{ended:?}");
}
