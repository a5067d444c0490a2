//! A MultiLock and a RedLock beside Redisson's, which takes RLocks in the order of its caller, all of
//! them or a majority.

use std::time::Duration;

use redlock_rt::{Client, LockOptions, Quorum};
use tests::{
    DEADLINE, LeakCheck, RedisServer, RedissonClient, RedissonRLock, RedissonUnlock, eventually,
    shared_server, unique, within,
};

const WAIT: Duration = Duration::from_secs(2);

/// `RedissonMultiLock.tryLock(wait)`: each lock in turn within the wait; all are released if one fails.
async fn try_lock(locks: &[RedissonRLock], wait: Duration) -> bool {
    let end = tokio::time::Instant::now() + wait;
    for (taken, lock) in locks.iter().enumerate() {
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        // First acquired for twice the wait, as in Redisson, which limits the lease after a crash.
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

    // Redisson sees our lock.
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

    // And we see theirs.
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

/// In opposite orders the two sides can wait for each other; limited waits end that.
#[tokio::test]
async fn opposite_orders_come_apart_by_bounded_waits() {
    let server = shared_server();
    let name = unique("opposite");
    let leaks = LeakCheck::on(&server, &name).await;
    let java = RedissonClient::connect(&server.url()).await.unwrap();
    let rust = Client::connect(&server.url()).await.unwrap();
    let names = [format!("{name}:a"), format!("{name}:b")];
    // Redisson has b and wants a; we get a first.
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
    // Our lock is released when our wait is over, which wakes them.
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

/// `RedissonRedLock`: RLocks of one name on several servers, of which a majority is enough.
#[tokio::test]
async fn a_majority_held_by_redisson_excludes_ours_and_the_other_way_round() {
    const LEASE: Duration = Duration::from_secs(30);
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let mut theirs = Vec::new();
    for server in &servers {
        let java = RedissonClient::connect(&server.url()).await.unwrap();
        theirs.push(java.rlock("red"));
    }
    let client = |server: &RedisServer| Client::builder().url(&server.url()).build().unwrap();
    let quorum = Quorum::new(servers.iter().map(client)).unwrap();
    let ours = quorum.redlock("red");

    // Their lock on two of three servers.
    for lock in &theirs[..2] {
        assert!(lock.try_lock(1, Some(LEASE)).await.unwrap());
    }
    assert!(ours.try_lock().await.unwrap().is_none());
    assert!(ours.is_locked().await.unwrap());
    let holder = ours.holder().await.unwrap().unwrap();
    assert_eq!(holder.as_str(), theirs[0].owner(1));
    let error = ours
        .lock_with(LockOptions::new().wait(WAIT))
        .await
        .unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    // The try on the third server left nothing.
    eventually(DEADLINE, async || !theirs[2].is_locked().await.unwrap()).await;
    let call = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock().await }
    });
    unlock(&theirs[..2]).await;
    let guard = within(DEADLINE, call).await.unwrap().unwrap();

    // A majority is enough at first; the other server joins when it answers.
    eventually(DEADLINE, async || guard.servers() == 3).await;
    // Our lock on all servers: theirs is refused everywhere, and its rollback releases nothing of ours.
    for lock in &theirs {
        assert!(!lock.try_lock(1, Some(LEASE)).await.unwrap());
        assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::NotOwner);
    }
    assert!(guard.is_valid() && guard.servers() == 3);
    guard.unlock().await.unwrap();
    for lock in &theirs {
        assert!(lock.try_lock(1, Some(LEASE)).await.unwrap());
    }
    assert!(ours.force_unlock().await.unwrap());
    for lock in &theirs {
        assert!(!lock.is_locked().await.unwrap());
    }
}
