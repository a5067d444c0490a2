//! Locks made of several: `multi.` and `red.` commands.

use tests::{Driver, LeakCheck, RedisServer, shared_server, unique};

use crate::{PROGRAM, connected, waits_for};

#[tokio::test]
async fn a_multi_lock_is_all_of_its_names() {
    let name = unique("multi");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    let (a, b) = (format!("{name}:a"), format!("{name}:b"));
    let both = format!("{b},{a}");
    assert_eq!(driver.ok(&format!("multi.lock {both} one")).await, "ok");
    for held in [&a, &b] {
        assert_eq!(driver.ok(&format!("islocked {held}")).await, "true");
        assert_eq!(driver.ok(&format!("trylock {held} two")).await, "false");
    }
    for (question, answer) in [
        (format!("multi.islocked {both}"), "true"),
        (format!("multi.held {both} one"), "true"),
        (format!("multi.heldby {both} one"), "true"),
        (format!("multi.heldby {both} two"), "false"),
        (format!("multi.trylock {both} two 500"), "false"),
        (format!("multi.trylock {both} one"), "true"),
        (format!("multi.holdcount {both} one"), "2"),
        (format!("multi.unlock {both} one"), "false"),
    ] {
        assert_eq!(driver.ok(&question).await, answer, "{question}");
    }
    let waiter = driver.send(&format!("multi.lock {both} two"));
    waits_for(&driver, 1).await;
    assert_eq!(driver.ok(&format!("multi.unlock {both} one")).await, "true");
    assert_eq!(waiter.answer().await.ok(), "ok");
    assert_eq!(driver.ok(&format!("forceunlock {a}")).await, "true");
    let lost = format!("multi.lost {both} two 15000");
    assert_eq!(driver.ok(&lost).await, "true");
    let late = driver.call(&format!("multi.unlock {both} two")).await;
    assert_eq!(late.err_kind(), "lost");
    let red = driver.call(&format!("red.lock {a} one")).await;
    assert_eq!(red.err_kind(), "usage");
    leaks.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_is_over_all_servers() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let connect = format!("connect red:{} 10000 server_timeout=2000", urls.join(","));
    let (driver, other) = (Driver::start(PROGRAM), Driver::start(PROGRAM));
    assert_eq!(driver.ok(&connect).await, "ok");
    assert_eq!(other.ok(&connect).await, "ok");
    assert_eq!(driver.ok("red.lock n one").await, "ok");
    for (driver, question, answer) in [
        (&driver, "red.held n one", "true"),
        (&driver, "red.heldby n one", "true"),
        (&driver, "red.trylock n one", "true"),
        (&driver, "red.holdcount n one", "2"),
        (&driver, "red.unlock n one", "false"),
        (&other, "red.islocked n", "true"),
        (&other, "red.trylock n two 2000", "false"),
        // The first server alone.
        (&other, "islocked n", "true"),
    ] {
        assert_eq!(driver.ok(question).await, answer, "{question}");
    }
    servers[0].kill();
    let waiter = other.send("red.lock n two");
    assert_eq!(driver.ok("red.held n one").await, "true");
    assert_eq!(driver.ok("red.unlock n one").await, "true");
    assert_eq!(waiter.answer().await.ok(), "ok");
    servers[1].kill();
    let starved = driver.call("red.trylock n one 2000").await;
    assert_eq!(starved.err_kind(), "quorum");
    assert_eq!(other.ok("red.lost n two 20000").await, "true");
}
