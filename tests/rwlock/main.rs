//! The behaviour that only the read-write lock has. `tests/conformance` has the behaviour of all locks,
//! `redisson/rw.rs` that beside Redisson.

mod convert;
mod cost;
mod crowd;
mod forced;
mod leases;
mod lost_reply;
mod modes;
mod nesting;
mod preference;
mod random;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_rt::{Client, HoldId, ReadGuard, ReadWriteLock, Shutdown, WriteGuard};
use tests::{DEADLINE, World, eventually, shared_server, waits, within};
use tokio::{task::JoinHandle, time::Instant};

/// A poll interval longer than any test, so that only an announcement wakes.
const NEVER: Duration = Duration::from_secs(600);
/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a lease of 30 s, or [never](NEVER).
const LATE: Duration = Duration::from_secs(5);

/// One lock on the shared server, and its keys.
struct Stage {
    world: World,
}

tests::is_a_world!(Stage);

impl Stage {
    async fn set(what: &str) -> Self {
        let world = World::on(&shared_server(), what).await;
        Self { world }
    }

    /// The lock, through a separate client.
    fn lock(&self) -> ReadWriteLock {
        self.lock_of(&self.client())
    }

    fn lock_of(&self, client: &Client) -> ReadWriteLock {
        client.read_write_lock(&self.name)
    }

    async fn hash(&self) -> BTreeMap<String, String> {
        self.redis(&["HGETALL", &self.name]).await
    }

    /// `None` without the key.
    async fn ttl_of(&self, key: &str) -> Option<Duration> {
        let millis: i64 = self.redis(&["PTTL", key]).await;
        assert_ne!(millis, -1, "{key} has no TTL");
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    async fn ttl(&self) -> Option<Duration> {
        self.ttl_of(&self.name).await
    }

    fn lease_key(&self, owner: &HoldId, hold: u32) -> String {
        format!("{{{}}}:{owner}:rwlock_timeout:{hold}", self.name)
    }

    /// The key of preferred writers.
    fn writers_key(&self) -> String {
        format!("redlock_rw_writers:{{{}}}", self.name)
    }

    /// Waits until a preferred writer has noted its wish.
    async fn wished(&self) {
        let key = self.writers_key();
        eventually(DEADLINE, async || self.keys().await.contains(&key)).await;
    }

    /// All keys of the lock.
    async fn keys(&self) -> BTreeSet<String> {
        self.redis(&["KEYS", &format!("*{}*", self.name)]).await
    }

    /// Waits until this many clients are subscribed.
    async fn subscribed(&self, count: usize) {
        let channel = format!("redisson_rwlock:{{{}}}", self.name);
        self.subscribed_to(&channel, count).await;
    }

    /// A reader of a dead client, which is neither renewed nor released.
    async fn dead_reader(&self, lease: Duration) -> HoldId {
        let client = Client::builder().url(&shared_server().url()).build();
        let client = client.unwrap();
        let lock = client.read_write_lock(&self.name);
        let options = redlock_rt::LockOptions::new().lease(lease);
        let guard = lock.read_with(options).await.unwrap();
        let owner = guard.hold_id().clone();
        client.shutdown(Shutdown::Abandon).await.unwrap();
        drop(guard);
        owner
    }

    async fn end(self) {
        self.world.assert_clean().await;
    }
}

/// A task that waits for the lock, and returns it with the time of its acquisition.
fn reader(lock: &ReadWriteLock) -> JoinHandle<(ReadGuard, Instant)> {
    let lock = lock.clone();
    tokio::spawn(async move { (lock.read().await.unwrap(), Instant::now()) })
}

/// Likewise.
fn writer(lock: &ReadWriteLock) -> JoinHandle<(WriteGuard, Instant)> {
    let lock = lock.clone();
    tokio::spawn(async move { (lock.write().await.unwrap(), Instant::now()) })
}

/// The guard of a task that had the lock soon after it was free.
async fn served<G>(waiter: JoinHandle<(G, Instant)>, freed: Instant) -> G {
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    let late = served.saturating_duration_since(freed);
    assert!(late < LATE, "{late:?}");
    guard
}
