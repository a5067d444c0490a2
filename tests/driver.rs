//! The line driver: the rules of its protocol, on real Redis and on the embedded engine.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use tests::{
    Driver, LeakCheck, RedisServer, RedissonClient, RedissonUnlock, eventually, shared_server,
    unique, within,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_driver");
const DEADLINE: Duration = Duration::from_secs(10);
/// For what must not happen.
const MOMENT: Duration = Duration::from_millis(100);

async fn connected() -> Driver {
    let driver = Driver::start(PROGRAM);
    let url = shared_server().url();
    assert_eq!(driver.ok(&format!("connect {url}")).await, "ok");
    driver
}

async fn waits_for(driver: &Driver, count: usize) {
    eventually(DEADLINE, async || {
        let stats = driver.ok("stats").await;
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        if stats["waiting"] == count {
            Ok(())
        } else {
            Err(stats)
        }
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_taken_asked_about_and_released() {
    let name = unique("driver");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    let uuid = driver.ok("uuid").await;
    assert_eq!(driver.ok(&format!("holder {name}")).await, "nil");
    assert_eq!(driver.ok(&format!("ttl {name}")).await, "nil");
    assert_eq!(driver.ok(&format!("owner {name} a")).await, "nil");
    assert_eq!(driver.ok(&format!("lock {name} a")).await, "ok");
    let holder = driver.ok(&format!("holder {name}")).await;
    assert!(holder.starts_with(&format!("{uuid}:")), "{holder}");
    assert_eq!(driver.ok(&format!("owner {name} a")).await, holder);
    for (question, answer) in [
        ("islocked", "true"),
        ("held a", "true"),
        ("held b", "false"),
        ("heldby a", "true"),
        ("heldby b", "false"),
        ("holdcount a", "1"),
        ("holdcount b", "0"),
    ] {
        let (command, owner) = question.split_once(' ').unwrap_or((question, ""));
        assert_eq!(
            driver.ok(&format!("{command} {name} {owner}")).await,
            answer,
            "{question}"
        );
    }
    let ttl: u64 = driver.ok(&format!("ttl {name}")).await.parse().unwrap();
    assert!((29_000..=30_000).contains(&ttl), "{ttl}");

    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("islocked {name}")).await, "false");
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "not_owner"
    );
    leaks.assert_clean().await;
}

#[tokio::test]
async fn an_owner_re_enters_and_another_does_not() {
    let name = unique("reenter");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("trylock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("holdcount {name} a")).await, "2");
    assert_eq!(driver.ok(&format!("trylock {name} b")).await, "false");
    assert_eq!(
        driver.ok(&format!("trylock {name} b 100 1000")).await,
        "false"
    );
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} b")).await.err_kind(),
        "not_owner"
    );
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("trylock {name} b 0 5000")).await, "true");
    let ttl: u64 = driver.ok(&format!("ttl {name}")).await.parse().unwrap();
    assert!((4_000..=5_000).contains(&ttl), "{ttl}");
    assert_eq!(driver.ok(&format!("unlock {name} b")).await, "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn owners_run_side_by_side_and_each_in_order() {
    let name = unique("order");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let mut lock = driver.send(&format!("lock {name} b"));
    let mut unlock = driver.send(&format!("unlock {name} b"));
    waits_for(&driver, 1).await;
    // The other owner, and what answers at once, are not behind them.
    assert_eq!(driver.ok(&format!("held {name} b")).await, "false");
    assert_eq!(driver.ok(&format!("holdcount {name} b")).await, "0");
    assert_eq!(driver.ok(&format!("owner {name} b")).await, "nil");
    assert_eq!(
        driver.call(&format!("lost {name} b 5")).await.err_kind(),
        "not_owner"
    );
    assert!(lock.is_pending() && unlock.is_pending());
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(lock.answer().await.ok(), "ok");
    assert_eq!(unlock.answer().await.ok(), "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn many_commands_of_an_owner_stay_in_order() {
    let name = unique("many");
    let driver = connected().await;
    let mut pending = Vec::new();
    for _ in 0..100 {
        pending.push((driver.send(&format!("trylock {name} a")), "true"));
        pending.push((driver.send(&format!("unlock {name} a")), "true"));
    }
    for (pending, answer) in pending {
        assert_eq!(pending.answer().await.ok(), answer);
    }
}

#[tokio::test]
async fn a_running_command_is_cancelled() {
    let name = unique("cancel");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let lock = driver.send(&format!("lock {name} b"));
    waits_for(&driver, 1).await;
    let behind = driver.send(&format!("trylock {name} b"));
    assert_eq!(driver.cancel(&lock).await.ok(), "true");
    assert_eq!(lock.answer().await.err_kind(), "cancelled");
    assert_eq!(behind.answer().await.ok(), "false");
    waits_for(&driver, 0).await;
    assert_eq!(driver.ok("cancel nothing").await, "false");
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn the_answer_says_how_long_it_took() {
    let name = unique("took");
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let answer = driver.call(&format!("trylock {name} b 150")).await;
    let took = answer.took.unwrap();
    assert!(
        took >= Duration::from_millis(150) && took < DEADLINE,
        "{took:?}"
    );
    assert_eq!(answer.ok(), "false");
}

#[tokio::test]
async fn a_lost_lock_is_told() {
    let name = unique("lost");
    let server = shared_server();
    let driver = Driver::start(PROGRAM);
    driver.ok(&format!("connect {} 300", server.url())).await;
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("lost {name} a 50")).await, "false");
    let lost = driver.send(&format!("lost {name} a 10000"));
    assert_eq!(driver.ok(&format!("held {name} a")).await, "true");
    let _: bool = server.connect().await.unwrap().del(&name).await.unwrap();
    assert_eq!(lost.answer().await.ok(), "true");
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("holdcount {name} a")).await, "0");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );

    // A fixed lease ends by itself.
    driver.ok(&format!("lock {name} a 200")).await;
    assert_eq!(driver.ok(&format!("lost {name} a 10000")).await, "true");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
}

#[tokio::test]
async fn a_release_ends_the_wait_for_the_loss() {
    let name = unique("unlost");
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let mut lost = driver.send(&format!("lost {name} a 60000"));
    assert_eq!(driver.ok("uuid").await.len(), 36);
    assert!(lost.is_pending());
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(lost.answer().await.ok(), "false");
}

#[tokio::test]
async fn a_forced_release_is_answered() {
    let name = unique("force");
    let driver = connected().await;
    assert_eq!(driver.ok(&format!("forceunlock {name}")).await, "false");
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("forceunlock {name}")).await, "true");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
}

#[tokio::test]
async fn errors_have_their_kind() {
    let driver = Driver::start(PROGRAM);
    let server = shared_server();
    let kind = async |command: &str| driver.call(command).await.err_kind();
    assert_eq!(kind("lock n a").await, "usage");
    assert_eq!(kind("dance").await, "usage");
    for url in [
        "cluster:redis://a:1",
        "sentinel:m,redis://a:1",
        "red:redis://a:1",
        "embedded:x",
    ] {
        assert_eq!(kind(&format!("connect {url}")).await, "usage");
    }
    assert_eq!(kind("connect redis://127.0.0.1:1").await, "unavailable");
    assert_eq!(kind("connect http://127.0.0.1").await, "bad_input");
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
    // Not waited for: what follows waits for the connection by itself.
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
async fn what_was_piped_in_is_answered() {
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

#[tokio::test]
async fn a_killed_holder_is_followed_when_its_lease_is_over() {
    let name = unique("killed");
    let (mut holder, waiter) = (connected().await, connected().await);
    holder.ok(&format!("lock {name} a 1000")).await;
    let taken = Instant::now();
    let lock = waiter.send(&format!("lock {name} a"));
    waits_for(&waiter, 1).await;
    holder.kill();
    assert_eq!(lock.answer().await.ok(), "ok");
    let after = taken.elapsed();
    assert!(after <= Duration::from_millis(1250), "{after:?}");
    assert_eq!(waiter.ok(&format!("unlock {name} a")).await, "true");
}

#[tokio::test]
async fn a_paused_holder_has_lost_its_lock_when_it_goes_on() {
    let name = unique("paused");
    let mut driver = connected().await;
    driver.ok(&format!("lock {name} a 300")).await;
    driver.pause();
    let client = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    assert!(
        within(DEADLINE, client.rlock(&name).lock(1, None))
            .await
            .unwrap()
    );
    driver.resume();
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
    assert_eq!(
        client.rlock(&name).unlock(1).await.unwrap(),
        RedissonUnlock::Freed
    );
}

#[tokio::test]
async fn a_redisson_client_and_the_driver_wake_each_other() {
    let name = unique("redisson");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    let redisson = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    let theirs = redisson.rlock(&name);

    assert!(theirs.try_lock(1, None).await.unwrap());
    assert_eq!(driver.ok(&format!("trylock {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("holder {name}")).await, theirs.owner(1));
    let ours = driver.send(&format!("lock {name} a"));
    waits_for(&driver, 1).await;
    assert_eq!(theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    assert_eq!(ours.answer().await.ok(), "ok");

    let waits = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.lock(2, None).await.unwrap() }
    });
    eventually(DEADLINE, async || !redisson.channels().is_empty()).await;
    tokio::time::sleep(MOMENT).await;
    assert!(!waits.is_finished());
    let released = Instant::now();
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert!(within(DEADLINE, waits).await.unwrap());
    assert!(
        released.elapsed() < Duration::from_secs(5),
        "woken, not timed out by the TTL"
    );
    assert_eq!(theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
    leaks.assert_clean().await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable() {
    let server = RedisServer::start();
    let driver = Driver::start(PROGRAM);
    driver.ok(&format!("connect {}", server.url())).await;
    server.kill();
    assert_eq!(
        driver.call("trylock n a 200").await.err_kind(),
        "unavailable"
    );
    server.restart();
    assert_eq!(driver.ok("trylock n a 5000").await, "true");
}
