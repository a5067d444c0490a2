//! Other processes: a holder that dies or stops, a Redisson client, a server that is gone.

use std::time::{Duration, Instant};

use tests::{
    Driver, LeakCheck, RedisServer, RedissonClient, RedissonUnlock, eventually, shared_server,
    unique, within,
};

use crate::{DEADLINE, LATE, PROGRAM, connected, waits_for};

/// The time that is given to events that must not happen.
const MOMENT: Duration = Duration::from_millis(100);

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
    assert!(after <= Duration::from_secs(1) + LATE, "{after:?}");
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
    assert!(released.elapsed() < LATE, "woken, not timed out by the TTL");
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
    assert_eq!(driver.ok("trylock n a 20000").await, "true");
}
