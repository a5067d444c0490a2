//! The modes that a holder of the lock may acquire.

use std::time::Duration;

use redlock_rt::{Error, ErrorKind, LockOptions, Owner, Unlocked};
use tests::within;
use tokio::{join, time::Instant};

use crate::{DEADLINE, LATE, NEVER, Stage};

#[tokio::test]
async fn a_writer_may_also_read() {
    let stage = Stage::set("joins").await;
    let lock = stage.lock();
    let writing = lock.write().await.unwrap();
    let owner = writing.hold_id().clone();
    let body = async {
        let reading = lock.read().await.unwrap();
        assert_eq!(*reading.hold_id(), owner, "one identity in both modes");
        assert_eq!((reading.hold_count(), writing.hold_count()), (1, 1));
        let hash = stage.hash().await;
        assert_eq!(hash["mode"], "write");
        assert_eq!(hash[owner.as_str()], "1");
        // An owner number whose release may have been sent is never used again.
        assert_eq!(reading.unlock().await.unwrap(), Unlocked::Released);
        let again = lock.try_read().await.unwrap().expect("joined");
        assert_ne!(*again.hold_id(), owner);
        let besides = lock.read_with(LockOptions::new().wait(Duration::ZERO));
        let besides = besides.await.unwrap();
        assert_ne!(besides.hold_id(), again.hold_id(), "a hold each");
        assert_eq!(lock.read_lock().holders().await.unwrap().len(), 2);
        lock.with_read(async |_| ()).await.unwrap();
    };
    within(DEADLINE, writing.run(body)).await.unwrap();
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

#[tokio::test]
async fn a_write_body_is_deep() {
    let stage = Stage::set("deep").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let reads = async |_: &_| {
        let again = lock.read().await.unwrap();
        assert_eq!(again.hold_count(), 2, "read in read re-enters");
        // Under a read guard, but an outer guard writes.
        lock.with_write(async |again| assert_eq!(again.hold_count(), 2))
            .await
            .unwrap();
        assert!(elsewhere.try_read().await.unwrap().is_none());
        again.unlock().await.unwrap()
    };
    let writes = async |_: &_| lock.with_read(reads).await.unwrap();
    let unlocked = within(DEADLINE, lock.with_write(writes)).await.unwrap();
    assert_eq!(unlocked, Unlocked::StillHeld);
    assert!(!stage.is_there().await);
    stage.end().await;
}

/// A read hold may outlive the write hold under which it was acquired.
#[tokio::test]
async fn a_joined_read_may_outlive_the_write() {
    let stage = Stage::set("outlives").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let long = LockOptions::new().lease(NEVER);
    let writing = lock.write_with(long).await.unwrap();
    let reading = writing.run(lock.read()).await.unwrap().unwrap();
    assert!(stage.ttl().await.unwrap() + LATE > NEVER);
    assert!(elsewhere.try_read().await.unwrap().is_none());
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    // From here on the lock lives as long as its readers.
    let ttl = stage.ttl().await.unwrap();
    assert!(ttl <= Duration::from_secs(30), "{ttl:?}");
    assert!(elsewhere.try_write().await.unwrap().is_none());
    let other = elsewhere.try_read().await.unwrap().expect("nobody writes");
    assert_eq!(reading.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(other.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

/// The end of such a read hold does not change the writer's lease.
#[tokio::test]
async fn a_joined_read_that_ends_leaves_the_writers_lease() {
    let stage = Stage::set("inner-ends").await;
    let lock = stage.lock();
    let fixed = |lease| LockOptions::new().lease(lease).renew(false);
    let writing = lock.write_with(fixed(NEVER)).await.unwrap();
    let short = Duration::from_secs(5);
    let body = async {
        let one = lock.read_with(fixed(short)).await.unwrap();
        let two = lock.read_with(fixed(2 * short)).await.unwrap();
        one.unlock().await.unwrap();
        two
    };
    let two = writing.run(body).await.unwrap();
    assert!(stage.ttl().await.unwrap() + LATE > NEVER);
    two.unlock().await.unwrap();
    assert!(stage.ttl().await.unwrap() + LATE > NEVER);
    writing.unlock().await.unwrap();
    stage.end().await;
}

#[track_caller]
fn assert_would_deadlock<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpgradeWouldDeadlock, "{error}");
    assert!(error.is_upgrade_would_deadlock() && !error.is_contended());
}

#[tokio::test]
async fn writing_under_a_read_guard_fails_at_once() {
    let stage = Stage::set("deadlock").await;
    let client = stage.client();
    let lock = stage.lock_of(&client);
    let start = Instant::now();
    let body = async |_: &_| {
        assert_would_deadlock(lock.write().await);
        assert_would_deadlock(lock.try_write().await);
        assert_would_deadlock(lock.write_with(LockOptions::new().wait(NEVER)).await);
        assert_would_deadlock(lock.with_write(async |_| ()).await);
        let again = lock.clone().prefer_writers(true);
        assert_would_deadlock(again.write().await);
        // Neither another lock nor another caller is affected.
        let other = format!("{}:other", stage.name);
        let other = client.read_write_lock(other).write().await.unwrap();
        other.unlock().await.unwrap();
        let spawned = stage.lock_of(&client);
        let spawned = tokio::spawn(async move { spawned.try_write().await.unwrap().is_none() });
        assert!(spawned.await.unwrap());
    };
    let reads = lock.with_read(body);
    within(DEADLINE, reads).await.unwrap();

    let owner = Owner::new();
    let of = || LockOptions::new().owner(&owner);
    let reading = lock.read_with(of()).await.unwrap();
    assert_would_deadlock(lock.write_with(of()).await);
    assert_would_deadlock(lock.write_with(of().wait(Duration::ZERO)).await);
    reading.unlock().await.unwrap();
    let writing = lock.write_with(of()).await.unwrap();
    let reading = lock.read_with(of()).await.unwrap();
    assert_eq!(reading.hold_id(), writing.hold_id());
    drop((writing, reading));
    assert!(start.elapsed() < DEADLINE);
    stage.end().await;
}

/// A caller that joined a lost write hold would read beside another writer.
#[tokio::test]
async fn no_reader_joins_a_writer_that_lost_the_lock() {
    let stage = Stage::set("gone").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    for taken in [false, true] {
        let writing = lock.write().await.unwrap();
        assert!(elsewhere.write_lock().force_unlock().await.unwrap());
        let other = match taken {
            true => Some(elsewhere.write().await.unwrap()),
            false => None,
        };
        let before = stage.hash().await;
        let body = async { lock.read().await };
        match writing.run(body).await {
            Ok(outcome) => assert!(outcome.unwrap_err().is_lost()),
            Err(error) => assert!(error.is_lost()),
        }
        assert_eq!(stage.hash().await, before, "nothing was taken");
        drop((writing, other));
    }
    stage.end().await;
}

/// Several readers under one writer each join it, also at the same time.
#[tokio::test]
async fn siblings_under_a_writer_read_side_by_side() {
    let stage = Stage::set("siblings").await;
    let lock = stage.lock();
    let both = tokio::sync::Barrier::new(2);
    let call = || {
        lock.with_read(async |guard| {
            both.wait().await;
            guard.hold_id().clone()
        })
    };
    let body = async |_: &_| join!(call(), call());
    let (one, two) = within(DEADLINE, lock.with_write(body)).await.unwrap();
    assert_ne!(one.unwrap(), two.unwrap());
    stage.end().await;
}
