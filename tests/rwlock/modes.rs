//! Many readers or one writer.

use std::{sync::Arc, time::Duration};

use redlock_rt::{ErrorKind, GuardState, LockOptions, LostReason, Unlocked};
use tests::within;
use tokio::{sync::Barrier, task::JoinSet, time::Instant};

use crate::{DEADLINE, LATE, Stage, reader, served, waits, writer};

#[tokio::test]
async fn many_read_together_and_nobody_writes() {
    let stage = Stage::set("together").await;
    let (client, other) = (stage.client(), stage.client());
    let (here, there) = (stage.lock_of(&client), stage.lock_of(&other));
    let mut guards = Vec::new();
    for _ in 0..10 {
        guards.push(here.read().await.unwrap());
        guards.push(there.try_read().await.unwrap().expect("others only read"));
        assert!(here.try_write().await.unwrap().is_none());
        assert!(there.try_write().await.unwrap().is_none());
    }
    let mut holders = here.read_lock().holders().await.unwrap();
    let mut expected: Vec<_> = guards.iter().map(|guard| guard.hold_id().clone()).collect();
    holders.sort_by_key(ToString::to_string);
    expected.sort_by_key(ToString::to_string);
    assert_eq!(holders, expected, "a hold each");
    assert_eq!(there.read_lock().hold_count().await.unwrap(), 20);
    for guard in guards {
        assert!(guard.is_valid());
        assert!(there.try_write().await.unwrap().is_none());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    let guard = there.try_write().await.unwrap().expect("nobody reads");
    guard.unlock().await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn what_stands_in_redis() {
    let stage = Stage::set("shape").await;
    let (lock, lease) = (stage.lock(), Duration::from_secs(30));
    let fresh = |ttl: Option<Duration>| ttl.is_some_and(|ttl| ttl <= lease && ttl + LATE > lease);
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());

    let guard = lock.read().await.unwrap();
    let (owner, inner) = (guard.hold_id().clone(), guard.reenter().await.unwrap());
    let expected = [field("mode", "read"), field(owner.as_str(), "2")];
    assert_eq!(stage.hash().await, expected.into());
    let keys = [1, 2].map(|hold| stage.lease_key(&owner, hold));
    for key in keys.iter().chain([&stage.name]) {
        assert!(fresh(stage.ttl_of(key).await), "{key}");
    }
    let [one, two] = keys.clone();
    assert_eq!(stage.keys().await, [one, two, stage.name.clone()].into());
    let value: String = stage.redis(&["GET", &keys[1]]).await;
    assert_eq!(value, "1");
    inner.unlock().await.unwrap();
    assert_eq!(stage.ttl_of(&keys[1]).await, None);
    guard.unlock().await.unwrap();
    assert!(stage.keys().await.is_empty());

    let guard = lock.write().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    let writer = format!("{}:write", guard.hold_id());
    let expected = [field("mode", "write"), field(&writer, "2")];
    assert_eq!(stage.hash().await, expected.into());
    assert_eq!(stage.keys().await, [stage.name.clone()].into());
    // Never added up.
    assert!(fresh(stage.ttl().await));
    inner.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    stage.end().await;
}

/// A name with a brace is not wrapped, as in Redisson.
#[tokio::test]
async fn names_with_braces() {
    let stage = Stage::set("brace").await;
    let client = stage.client();
    for name in [
        format!("{{a}}{}", stage.name),
        format!("x{{y{}", stage.name),
    ] {
        let lock = client.read_write_lock(&name);
        let guard = lock.read().await.unwrap();
        let key = format!("{name}:{}:rwlock_timeout:1", guard.hold_id());
        assert!(stage.ttl_of(&key).await.is_some(), "{key}");
        let waiter = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.write().await.unwrap() })
        };
        waits(&client, 1).await;
        let channel = format!("redisson_rwlock:{name}");
        stage.subscribed_to(&channel, 1).await;
        guard.unlock().await.unwrap();
        let writing = within(DEADLINE, waiter).await.unwrap();
        let reading = writing.downgrade().await.unwrap();
        let renewed = reading.extend(Duration::from_secs(60)).await;
        renewed.unwrap();
        reading.unlock().await.unwrap();
    }
    stage.end().await;
}

/// Only the head of the readers of one process asks; when it is admitted, the next one asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_waited_are_let_in_together() {
    const READERS: usize = 50;
    let stage = Stage::set("cascade").await;
    let (client, other) = (stage.client(), stage.client());
    let writing = stage.lock_of(&client).write().await.unwrap();
    let all = Arc::new(Barrier::new(2 * READERS));
    let mut readers = JoinSet::new();
    for client in [&client, &other] {
        for _ in 0..READERS {
            let (lock, all) = (stage.lock_of(client), Arc::clone(&all));
            readers.spawn(async move {
                let guard = lock.read().await.unwrap();
                // Passes only if all of them hold the lock at once.
                all.wait().await;
                assert!(guard.is_valid());
                guard.unlock().await.unwrap();
            });
        }
        waits(client, READERS).await;
    }
    stage.subscribed(2).await;
    writing.unlock().await.unwrap();
    within(DEADLINE, readers.join_all()).await;
    stage.end().await;
}

#[tokio::test]
async fn a_writer_is_woken_by_the_last_reader_and_not_before() {
    let stage = Stage::set("last").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    for _ in 0..5 {
        let readers = [
            lock.read().await.unwrap(),
            elsewhere.read().await.unwrap(),
            lock.read().await.unwrap(),
        ];
        let writer = writer(&elsewhere);
        stage.subscribed(1).await;
        let mut freed = Instant::now();
        for reader in readers {
            assert!(!writer.is_finished());
            freed = Instant::now();
            reader.unlock().await.unwrap();
        }
        let guard = served(writer, freed).await;
        guard.unlock().await.unwrap();
        stage.subscribed(0).await;
    }
    stage.end().await;
}

/// Redisson announces nothing in this case, and its readers sleep until the TTL that they know.
#[tokio::test]
async fn a_writer_that_goes_on_reading_wakes_the_readers() {
    let stage = Stage::set("goes-on").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let writing = lock.write().await.unwrap();
    let joined = writing.run(async { lock.read().await.unwrap() });
    let joined = joined.await.unwrap();
    let readers = [reader(&elsewhere), reader(&lock), reader(&elsewhere)];
    waits(&other, 2).await;
    waits(&client, 1).await;
    stage.subscribed(2).await;
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    let freed = Instant::now();
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    for reader in readers {
        let guard = served(reader, freed).await;
        guard.unlock().await.unwrap();
    }
    assert!(joined.is_valid());
    assert!(elsewhere.try_write().await.unwrap().is_none());
    joined.unlock().await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn forcing_and_asking_know_the_mode() {
    let stage = Stage::set("force").await;
    let (here, there) = (stage.lock(), stage.lock());
    let (read, write) = (there.read_lock(), there.write_lock());
    let soon = || LockOptions::new().renew(Duration::from_millis(50));
    assert!(!read.force_unlock().await.unwrap() && !write.force_unlock().await.unwrap());

    let guard = here.read_with(soon()).await.unwrap();
    let second = there.read_with(soon()).await.unwrap();
    assert!(read.is_locked().await.unwrap() && !write.is_locked().await.unwrap());
    assert_eq!(write.holders().await.unwrap(), []);
    assert!(!write.force_unlock().await.unwrap(), "nobody writes");
    assert!(guard.is_valid() && stage.is_there().await);
    assert!(read.force_unlock().await.unwrap());
    // Redisson leaves the keys of the leases to expire.
    assert!(stage.keys().await.is_empty());
    for guard in [guard, second] {
        assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }

    let guard = here.write_with(soon()).await.unwrap();
    assert!(write.is_locked().await.unwrap() && !read.is_locked().await.unwrap());
    assert_eq!(
        write.holder().await.unwrap().as_ref(),
        Some(guard.hold_id())
    );
    assert!(!read.force_unlock().await.unwrap(), "nobody reads");
    let joined = guard.run(here.read()).await.unwrap().unwrap();
    // As in Redisson: the writer reads too.
    assert!(read.is_locked().await.unwrap() && write.is_locked().await.unwrap());
    assert!(!read.force_unlock().await.unwrap(), "it is a writer's");
    assert!(write.force_unlock().await.unwrap());
    assert!(stage.keys().await.is_empty());
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(within(DEADLINE, joined.lost()).await, LostReason::Deleted);
    drop(joined);
    stage.end().await;
}

#[tokio::test]
async fn forcing_wakes_who_waits() {
    let stage = Stage::set("force-wakes").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let writing = lock.write().await.unwrap();
    let waiter = reader(&elsewhere);
    stage.subscribed(1).await;
    let freed = Instant::now();
    assert!(lock.write_lock().force_unlock().await.unwrap());
    let reading = served(waiter, freed).await;
    let waiter = writer(&lock);
    stage.subscribed(1).await;
    let freed = Instant::now();
    assert!(elsewhere.read_lock().force_unlock().await.unwrap());
    let next = served(waiter, freed).await;
    drop((writing, reading));
    next.unlock().await.unwrap();
    stage.end().await;
}

/// One name for two kinds of lock is a mistake that must not end in two holders.
#[tokio::test]
async fn a_lock_of_another_kind_is_somebody_elses() {
    let stage = Stage::set("kinds").await;
    let client = stage.client();
    let (lock, other) = (stage.lock_of(&client), client.rlock(&stage.name));
    let guard = other.lock().await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    for forced in [
        lock.read_lock().force_unlock().await,
        lock.write_lock().force_unlock().await,
    ] {
        assert!(!forced.unwrap());
    }
    assert!(!lock.read_lock().is_locked().await.unwrap());
    assert!(!lock.write_lock().is_locked().await.unwrap());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);

    let reading = lock.read().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    let writing = reading.try_upgrade().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    writing.unlock().await.unwrap();

    let _: () = stage.redis(&["SET", &stage.name, "data"]).await;
    for error in [
        lock.try_read().await.map(drop).unwrap_err(),
        lock.try_write().await.map(drop).unwrap_err(),
        lock.read_lock().force_unlock().await.map(drop).unwrap_err(),
        lock.write_lock()
            .force_unlock()
            .await
            .map(drop)
            .unwrap_err(),
        lock.read_lock().is_locked().await.map(drop).unwrap_err(),
        lock.write_lock().is_locked().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    let _: bool = stage.redis(&["DEL", &stage.name]).await;
    stage.end().await;
}

/// Once, a reader whose lock was forced reported held until its next verification, beside a writer of
/// the same client.
#[tokio::test]
async fn a_forced_reader_is_lost_as_soon_as_its_own_client_writes() {
    let stage = Stage::set("forced-reader").await;
    let (client, other) = (stage.client(), stage.client());
    let lock = stage.lock_of(&client);
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    let elsewhere = stage.lock_of(&other).read_lock();
    assert!(elsewhere.force_unlock().await.unwrap());
    let writing = lock.write().await.unwrap();
    for reader in &readers {
        assert_eq!(reader.state(), GuardState::Lost(LostReason::Taken));
    }
    assert!(writing.is_valid());
    writing.unlock().await.unwrap();
    drop(readers);
    stage.end().await;
}
