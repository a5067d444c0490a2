//! Many locks leave nothing behind, neither in the client nor in Redis.

use std::time::Duration;

use futures::{
    StreamExt,
    future::try_join_all,
    stream::{self, TryStreamExt},
};
use redlock_rt::{
    Client, ClientBuilder, LockOptions, Owner, RLockGuard, Unlocked, embedded::Engine,
};
use tests::{
    DEADLINE, LeakCheck, connection_over, eventually, processor_time, shared_server, unique, within,
};

const LOCKS: usize = 10_000;
/// The number of concurrent calls of this client.
const AT_ONCE: usize = 256;

struct Fixture {
    client: Client,
    prefix: String,
    leaks: LeakCheck,
}

/// A client for a busy machine: no lease ends and no reply times out while thousands of calls wait for
/// the processor. The tests look for leftovers, not for speed.
fn patient(builder: ClientBuilder) -> Client {
    let builder = builder.lease(Duration::from_secs(600));
    builder.response_timeout(DEADLINE * 3).build().unwrap()
}

impl Fixture {
    async fn redis(what: &str) -> Self {
        let server = shared_server();
        let client = patient(Client::builder().url(&server.url()));
        let prefix = unique(what);
        let leaks = LeakCheck::on(&server, &prefix).await.client(&client);
        Self {
            client,
            prefix,
            leaks,
        }
    }

    async fn embedded(what: &str) -> Self {
        let engine = Engine::new();
        let client = patient(Client::builder().embedded(&engine));
        let prefix = unique(what);
        let connection = connection_over(engine.connect()).await.unwrap();
        let leaks = LeakCheck::over(connection, &prefix).client(&client);
        Self {
            client,
            prefix,
            leaks,
        }
    }

    /// Locks that are all held at once.
    async fn hold_all(&self, options: LockOptions) -> Vec<RLockGuard> {
        let held = stream::iter(0..LOCKS).map(|index| {
            let lock = self.client.rlock(format!("{}:{index}", self.prefix));
            let options = options.clone();
            async move { lock.lock_with(options).await }
        });
        let guards: Vec<_> = held.buffer_unordered(AT_ONCE).try_collect().await.unwrap();
        let stats = self.client.stats();
        assert_eq!((stats.held, stats.names), (LOCKS, LOCKS));
        guards
    }
}

async fn take_and_drop(fixture: Fixture) {
    let mut guards = fixture.hold_all(LockOptions::new()).await;
    assert_eq!(fixture.client.stats().renewals, LOCKS);
    assert!(guards.iter().all(RLockGuard::is_valid));
    // One half is unlocked, the other half goes through the release queue.
    let half = guards.split_off(LOCKS / 2);
    drop(guards);
    let unlocks = stream::iter(half).map(RLockGuard::unlock);
    let unlocked: Vec<_> = unlocks
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
        .unwrap();
    assert!(
        unlocked
            .iter()
            .all(|&unlocked| unlocked == Unlocked::Released)
    );
    fixture.leaks.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_taken_and_dropped_leave_nothing_on_redis() {
    take_and_drop(Fixture::redis("leak").await).await;
}

#[tokio::test]
async fn ten_thousand_locks_taken_and_dropped_leave_nothing_on_the_embedded_engine() {
    take_and_drop(Fixture::embedded("leak").await).await;
}

/// Locks that are never released end by the clock.
#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_that_run_out_leave_nothing() {
    let fixture = Fixture::embedded("expire").await;
    let options = LockOptions::new()
        .lease(Duration::from_secs(5))
        .renew(false);
    let guards = fixture.hold_all(options).await;
    assert_eq!(fixture.client.stats().renewals, 0);
    for guard in &guards {
        within(DEADLINE, guard.lost()).await;
    }
    // Although their guards are still there.
    eventually(DEADLINE, async || fixture.client.stats().held == 0).await;
    drop(guards);
    fixture.leaks.assert_clean().await;
}

/// A long-lived owner that locks many names: the cost of a name does not grow with their number.
#[tokio::test]
async fn an_owner_may_hold_ten_thousand_names() {
    let fixture = Fixture::embedded("owner").await;
    let owner = Owner::new();
    let options = LockOptions::new().owner(&owner);
    let before = processor_time();
    let guards = fixture.hold_all(options).await;
    // About a second; most of a minute if each name looked at all others. All of the work is in this
    // thread, whose processor time does not depend on other processes.
    let took = processor_time() - before;
    assert!(took < Duration::from_secs(10), "{took:?} of a processor");
    drop(guards);
    fixture.leaks.assert_clean().await;
}

/// Waits for many names at once. Each name has a channel, and in the end all are unsubscribed, more
/// than may linger.
#[tokio::test]
async fn thousands_of_names_waited_for_leave_no_subscription() {
    const NAMES: usize = 3_000;
    let fixture = Fixture::redis("wait").await;
    let other = patient(Client::builder().url(&shared_server().url()));
    let leaks = fixture.leaks.client(&other);
    let name = |index| format!("{}:{index}", fixture.prefix);
    let locks = (0..NAMES).map(|index| other.rlock(name(index)));
    let held = try_join_all(locks.map(|lock| async move { lock.lock().await }));
    let held = held.await.unwrap();
    let waiters: Vec<_> = (0..NAMES)
        .map(|index| {
            let lock = fixture.client.rlock(name(index));
            tokio::spawn(async move { lock.lock().await })
        })
        .collect();
    eventually(DEADLINE, async || {
        let stats = fixture.client.stats();
        if (stats.waiting, stats.subscriptions) == (NAMES, NAMES) {
            Ok(())
        } else {
            Err(format!("{stats:?}"))
        }
    })
    .await;
    // One half is served, the other half gives up.
    let mut served = Vec::new();
    for (index, (waiter, guard)) in waiters.into_iter().zip(held).enumerate() {
        if index % 2 == 0 {
            drop(guard);
            served.push(waiter);
        } else {
            waiter.abort();
        }
    }
    for waiter in served {
        drop(within(DEADLINE, waiter).await.unwrap().unwrap());
    }
    leaks.assert_clean().await;
}
