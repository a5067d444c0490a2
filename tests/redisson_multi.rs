//! A MultiLock and Redisson's, which is RLocks taken in the order in which its caller names them.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use redlock_rt::{Client, LockOptions};
use tests::{
    LeakCheck, RedissonClient, RedissonRLock, RedissonUnlock, eventually, shared_server, unique,
    within,
};

const DEADLINE: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_millis(300);

/// `RedissonMultiLock.tryLock(wait)`: each in turn within the wait, and back again if one fails.
async fn try_lock(locks: &[RedissonRLock], wait: Duration) -> bool {
    let end = tokio::time::Instant::now() + wait;
    for (taken, lock) in locks.iter().enumerate() {
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        // Taken for twice the wait first, as Redisson does, so that a crash leaves it for so long.
        if !lock.lock_for(1, Some(rest), Some(2 * wait)).await.unwrap() {
            for lock in &locks[..taken] {
                lock.unlock(1).await.unwrap();
            }
            return false;
        }
    }
    true
}

async fn unlock(locks: &[RedissonRLock]) {
    for lock in locks {
        assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    }
}

#[tokio::test]
async fn each_waits_for_the_other_and_is_woken() {
    let server = shared_server();
    let name = unique("multi");
    let leaks = LeakCheck::on(&server, &name).await;
    let java = RedissonClient::connect(&server.url()).await.unwrap();
    let builder = Client::builder().url(&server.url());
    let rust = builder.poll_interval(60 * DEADLINE).build().unwrap();
    let names = [format!("{name}:b"), format!("{name}:a")];
    let theirs = names.clone().map(|name| java.rlock(name));
    let ours = rust.multi_lock(&names);

    // Ours is theirs to see.
    let guard = ours.lock().await.unwrap();
    for lock in &theirs {
        assert!(lock.is_locked().await.unwrap());
        assert!(!lock.try_lock(1, None).await.unwrap());
    }
    assert!(!try_lock(&theirs, WAIT).await);
    let call = tokio::spawn({
        let theirs = theirs.clone();
        async move { try_lock(&theirs, DEADLINE).await }
    });
    eventually(DEADLINE, async || java.channels().len() == 1).await;
    guard.unlock().await.unwrap();
    assert!(within(DEADLINE, call).await.unwrap());

    // And theirs ours.
    assert!(ours.try_lock().await.unwrap().is_none());
    assert!(ours.is_locked().await.unwrap());
    let error = ours
        .lock_with(LockOptions::new().wait(WAIT))
        .await
        .unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let call = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock().await }
    });
    eventually(DEADLINE, async || rust.stats().waiting == 1).await;
    unlock(&theirs).await;
    let guard = within(DEADLINE, call).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    leaks.client(&rust).assert_clean().await;
}

/// In opposite orders they can wait for each other: bounded waits end that.
#[tokio::test]
async fn opposite_orders_come_apart_by_bounded_waits() {
    let server = shared_server();
    let name = unique("opposite");
    let leaks = LeakCheck::on(&server, &name).await;
    let java = RedissonClient::connect(&server.url()).await.unwrap();
    let rust = Client::connect(&server.url()).await.unwrap();
    let names = [format!("{name}:a"), format!("{name}:b")];
    // They have b and want a; ours comes by a first.
    let [a, b] = names.clone().map(|name| java.rlock(name));
    assert!(b.try_lock(1, Some(DEADLINE)).await.unwrap());
    let ours = rust.multi_lock(&names);
    let call = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock_with(LockOptions::new().wait(WAIT)).await }
    });
    eventually(DEADLINE, async || rust.stats().held == 1).await;
    assert!(!a.try_lock(1, Some(DEADLINE)).await.unwrap());
    let theirs = a.lock_for(1, Some(DEADLINE), Some(DEADLINE));
    // What ours had is released when its wait is over, and wakes them.
    assert!(within(DEADLINE, theirs).await.unwrap());
    assert!(
        within(DEADLINE, call)
            .await
            .unwrap()
            .unwrap_err()
            .is_timed_out()
    );
    unlock(&[a, b]).await;
    let guard = within(DEADLINE, ours.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    leaks.client(&rust).assert_clean().await;
}
