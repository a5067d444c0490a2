//! Clients, input and output, the end of the process.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use tests::{Driver, LeakCheck, RedisServer, shared_server, unique};

use crate::{PROGRAM, connected, waits_for};

#[tokio::test]
async fn errors_have_their_kind() {
    let driver = Driver::start(PROGRAM);
    let server = shared_server();
    let kind = async |command: &str| driver.call(command).await.err_kind();
    assert_eq!(kind("lock n a").await, "usage");
    assert_eq!(kind("dance").await, "usage");
    for url in ["sentinel:m", "embedded:x", "rediss://a:1 tls_roots=/none"] {
        assert_eq!(kind(&format!("connect {url}")).await, "usage");
    }
    let nobody = "connect sentinel:m,redis://127.0.0.1:1";
    assert_eq!(kind(nobody).await, "unavailable");
    assert_eq!(kind("connect redis://127.0.0.1:1").await, "unavailable");
    let none = "connect red:redis://127.0.0.1:1,redis://127.0.0.1:2";
    assert_eq!(kind(none).await, "quorum");
    let twice = "connect red:redis://127.0.0.1:1,redis://127.0.0.1:1";
    assert_eq!(kind(twice).await, "bad_input");
    assert_eq!(kind("connect http://127.0.0.1").await, "bad_input");
    let closed = RedisServer::options().password("right").start();
    let wrong = closed.url().replace("right", "wrong");
    assert_eq!(kind(&format!("connect {wrong}")).await, "bad_input");
    assert_eq!(
        kind(&format!("connect {} 300 linger=x", server.url())).await,
        "usage"
    );
    assert_eq!(
        kind(&format!("connect {} speed=9", server.url())).await,
        "usage"
    );
    driver.ok(&format!("connect {}", server.url())).await;
    assert_eq!(kind(&format!("connect {}", server.url())).await, "usage");

    let name = unique("wrongtype");
    let mut connection = server.connect().await.unwrap();
    let () = connection.set(&name, "text").await.unwrap();
    assert_eq!(kind(&format!("lock {name} a")).await, "wrong_type");
    let _: bool = connection.del(&name).await.unwrap();
    assert_eq!(
        kind(&format!("lock {} a", "n".repeat(600))).await,
        "bad_input"
    );
    assert_eq!(
        kind(&format!("lock {name} a {}", u64::MAX)).await,
        "bad_input"
    );

    driver.ok("shutdown").await;
    assert_eq!(kind(&format!("lock {name} a")).await, "shut_down");
}

#[tokio::test]
async fn clients_of_a_process_are_told_apart() {
    let name = unique("clients");
    let url = shared_server().url();
    let driver = Driver::start(PROGRAM);
    // Not awaited: the next commands wait for the connection themselves.
    let connecting = [
        driver.send(&format!("@one connect {url}")),
        driver.send(&format!("@other connect {url} 60000 namespace=ns")),
    ];
    let ids = [driver.send("@one uuid"), driver.send("@other uuid")];
    for connecting in connecting {
        assert_eq!(connecting.answer().await.ok(), "ok");
    }
    let [one, other] = ids;
    assert_ne!(one.answer().await.ok(), other.answer().await.ok());
    driver.ok(&format!("@one lock {name} a")).await;
    assert_eq!(driver.ok(&format!("@other trylock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("@one islocked ns:{name}")).await, "true");

    let held = driver.ok(&format!("@other holder {name}")).await;
    assert_eq!(driver.ok("@other close").await, "ok");
    assert_eq!(
        driver.ok(&format!("@one holder ns:{name}")).await,
        "nil",
        "{held} was released"
    );
    assert_eq!(driver.call("@other uuid").await.err_kind(), "usage");
    driver.ok(&format!("@other connect {url}")).await;
    assert_eq!(
        driver.ok(&format!("@other trylock {name} a")).await,
        "false"
    );
}

#[tokio::test]
async fn a_message_is_published() {
    let channel = unique("channel");
    for url in [shared_server().url(), "embedded".to_owned()] {
        let driver = Driver::start(PROGRAM);
        driver.ok(&format!("connect {url}")).await;
        assert_eq!(driver.ok(&format!("publish {channel} 0")).await, "0");
    }
    let client = redis::Client::open(shared_server().url()).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe(&channel).await.unwrap();
    assert_eq!(
        connected()
            .await
            .ok(&format!("publish {channel} hello"))
            .await,
        "1"
    );
}

#[tokio::test]
async fn the_embedded_engine_is_shared_and_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let driver = Driver::start(PROGRAM);
    driver.ok("@one connect embedded").await;
    driver.ok(&format!("@other connect embedded:{port}")).await;
    driver.ok("@one lock n a").await;
    assert_eq!(driver.ok("@other trylock n a").await, "false");
    let outside = Driver::start(PROGRAM);
    outside
        .ok(&format!("connect redis://127.0.0.1:{port}"))
        .await;
    let lock = outside.send("lock n a");
    waits_for(&outside, 1).await;
    assert_eq!(driver.ok("@one unlock n a").await, "true");
    assert_eq!(lock.answer().await.ok(), "ok");
}

#[tokio::test]
async fn sleep_delays_the_reading() {
    let driver = Driver::start(PROGRAM);
    let start = Instant::now();
    let sleep = driver.send("sleep 150");
    let behind = driver.send("dance");
    assert_eq!(behind.answer().await.err_kind(), "usage");
    assert!(start.elapsed() >= Duration::from_millis(150));
    assert_eq!(sleep.answer().await.ok(), "ok");
}

#[tokio::test]
async fn abort_releases_nothing() {
    let name = unique("abort");
    let mut driver = connected().await;
    driver.ok(&format!("lock {name} a 60000")).await;
    driver.send("abort").abandoned().await;
    assert_eq!(driver.wait_exit().code(), None, "killed by a signal");
    let server = shared_server();
    let mut connection = server.connect().await.unwrap();
    let there: bool = connection.del(&name).await.unwrap();
    assert!(there);
}

#[tokio::test]
async fn the_end_of_stdin_and_exit_release_what_is_held() {
    let name = unique("end");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    for end in ["", "exit"] {
        let mut driver = connected().await;
        driver.ok(&format!("lock {name} a")).await;
        let waiting = driver.send(&format!("lock {name} b"));
        waits_for(&driver, 1).await;
        if end.is_empty() {
            driver.close_stdin();
        } else {
            assert_eq!(driver.ok(end).await, "ok");
        }
        assert_eq!(waiting.answer().await.err_kind(), "cancelled");
        assert_eq!(driver.wait_exit().code(), Some(0));
        let mut connection = shared_server().connect().await.unwrap();
        assert!(!connection.exists::<_, bool>(&name).await.unwrap());
    }
    leaks.assert_clean().await;
}

#[tokio::test]
async fn piped_commands_are_answered() {
    let name = unique("piped");
    let mut child = Command::new(PROGRAM)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let url = shared_server().url();
    let input =
        format!("1 connect {url}\n\n2 lock {name} a\n3 unlock {name} a\nx trylock {name}\n");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let starts = ["1 ok ok ", "2 ok ok ", "3 ok true ", "x err usage: "];
    assert_eq!(lines.len(), starts.len(), "{text}");
    assert!(
        lines
            .iter()
            .zip(starts)
            .all(|(line, start)| line.starts_with(start)),
        "{text}"
    );
}
