//! Lease, renewal and the longest hold are independent.

use std::time::Duration;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, LockOptions, LostReason, Unlocked, embedded::Engine};
use tests::{
    Matcher, Proxy, ask, assert_clean, assert_clean_in, connection_over, shared_server, trace_init,
    unique, within,
};
use tokio::time::{Instant, sleep};

use crate::{DEADLINE, LATE};

const DEFAULT: Duration = Duration::from_millis(450);
const EXPLICIT: Duration = Duration::from_millis(600);
const LONGEST: Duration = Duration::from_millis(900);
/// The times are this much longer with a server, so that its client renews in time if threads have to
/// wait for a processor.
const SLOWER: u32 = 6;
/// The interval in which the TTL is read.
const LOOK: Duration = Duration::from_millis(10);

/// One of the eight combinations.
#[derive(Clone, Copy, Debug)]
struct Terms {
    lease: Option<Duration>,
    renew: bool,
    max_hold: Option<Duration>,
    slower: u32,
}

/// All of them, this many times as long.
fn combinations(slower: u32) -> Vec<Terms> {
    let mut all = Vec::new();
    for lease in [None, Some(EXPLICIT * slower)] {
        for renew in [true, false] {
            for max_hold in [None, Some(LONGEST * slower)] {
                all.push(Terms {
                    slower,
                    lease,
                    renew,
                    max_hold,
                });
            }
        }
    }
    all
}

impl Terms {
    fn lease(self) -> Duration {
        self.lease.unwrap_or(DEFAULT * self.slower)
    }

    fn options(self) -> LockOptions {
        let options = LockOptions::new().renew(self.renew).max_hold(self.max_hold);
        match self.lease {
            Some(lease) => options.lease(lease),
            None => options,
        }
    }

    /// The time at which the key ends and the reason of the loss; `None`: not during the guard's life.
    fn end(self) -> Option<(Duration, LostReason)> {
        match (self.renew, self.max_hold) {
            (true, None) => None,
            (true, Some(longest)) => Some((longest, LostReason::MaxHold)),
            (false, _) => Some((self.lease(), LostReason::Expired)),
        }
    }
}

/// Acquires a lock, and reads its TTL until it is gone, or for long enough. `late`: the tolerance for
/// delays of the machine.
async fn observe(client: &Client, redis: &MultiplexedConnection, terms: Terms, late: Duration) {
    let name = unique("terms");
    let before = Instant::now();
    let guard = client
        .rlock(&name)
        .lock_with(terms.options())
        .await
        .unwrap();
    let after = Instant::now();
    let end = terms.end();
    let mut shortest = terms.lease();
    let gone = loop {
        let asked = Instant::now();
        let ttl: i64 = ask(redis, &["PTTL", &name]).await;
        assert_ne!(ttl, -1, "{terms:?}: a key without a TTL");
        let Ok(ttl) = u64::try_from(ttl).map(Duration::from_millis) else {
            break true;
        };
        shortest = shortest.min(ttl);
        assert!(ttl <= terms.lease(), "{terms:?}: {ttl:?}");
        if let Some((end, _)) = end {
            let expires = asked + ttl;
            assert!(expires <= after + end + late, "{terms:?}: {ttl:?}");
        }
        if before.elapsed() > 2 * LONGEST * terms.slower {
            break false;
        }
        sleep(LOOK).await;
    };
    let passed = before.elapsed();
    assert_eq!(gone, end.is_some(), "{terms:?}: after {passed:?}");
    if let Some((end, reason)) = end {
        assert!(!guard.is_valid(), "{terms:?}: valid without a key");
        assert!(
            passed + LOOK >= end && passed <= end + late + 2 * LOOK,
            "{terms:?}: {passed:?}"
        );
        assert_eq!(within(DEADLINE, guard.lost()).await, reason, "{terms:?}");
    } else {
        assert!(guard.is_valid(), "{terms:?}");
        // Renewed at a third, so two thirds remained at all times.
        let least = terms.lease() * 2 / 3 - late.min(terms.lease() / 3);
        assert!(shortest >= least, "{terms:?}: down to {shortest:?}");
    }
    drop(guard);
}

/// With a paused clock: only waiting takes time.
#[tokio::test(start_paused = true)]
async fn the_eight_combinations_to_the_millisecond() {
    let engine = Engine::new();
    let client = Client::builder()
        .embedded(&engine)
        .lease(DEFAULT)
        .build()
        .unwrap();
    let redis = connection_over(engine.connect()).await.unwrap();
    for terms in combinations(1) {
        observe(&client, &redis, terms, Duration::from_millis(2)).await;
    }
    assert_clean_in(&engine, "test:terms", [&client]).await;
}

#[tokio::test]
async fn the_eight_combinations_on_a_server() {
    trace_init();
    let server = shared_server();
    let client = Client::builder()
        .url(&server.url())
        .lease(DEFAULT * SLOWER)
        .build()
        .unwrap();
    let redis = server.connect().await.unwrap();
    let (client, redis) = (&client, &redis);
    join_all(
        combinations(SLOWER)
            .into_iter()
            .map(|terms| observe(client, redis, terms, LATE)),
    )
    .await;
    assert_clean(&server, "test:terms", [client]).await;
}

/// The guard is invalid after its longest hold, also if another guard shares the hold and renews it.
#[tokio::test(start_paused = true)]
async fn the_longest_hold_is_the_guards_own() {
    let (engine, name) = (Engine::new(), unique("own"));
    let client = Client::builder()
        .embedded(&engine)
        .lease(DEFAULT)
        .build()
        .unwrap();
    let lock = client.rlock(&name);
    let outer = lock.lock().await.unwrap();
    let start = Instant::now();
    let options = LockOptions::new().max_hold(LONGEST);
    let inner = outer.run(lock.lock_with(options)).await.unwrap().unwrap();
    assert_eq!(within(DEADLINE, inner.lost()).await, LostReason::MaxHold);
    assert_eq!(start.elapsed(), LONGEST);
    sleep(2 * DEFAULT).await;
    assert!(outer.is_valid() && !inner.is_valid());
    assert!(inner.reenter().await.unwrap_err().is_lost());
    assert_eq!(lock.holder().await.unwrap().as_ref(), Some(outer.hold_id()));
    drop((inner, outer));
    assert_clean_in(&engine, &name, [&client]).await;
}

/// The reason of a loss does not change.
#[tokio::test(start_paused = true)]
async fn the_reason_of_a_loss_stays() {
    let (engine, name) = (Engine::new(), unique("reason"));
    let client = Client::builder().embedded(&engine).build().unwrap();
    let options = LockOptions::new()
        .lease(DEFAULT)
        .renew(false)
        .max_hold(LONGEST);
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Expired);
    sleep(2 * LONGEST).await;
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Expired);
    drop(guard);
    assert_clean_in(&engine, &name, [&client]).await;
}

/// Once, a renewal that the server read behind the release made a lease of what was left.
#[tokio::test]
async fn a_late_renewal_made_the_rest_of_min_hold_a_whole_lease() {
    const REST: Duration = Duration::from_secs(4);
    let proxy = Proxy::to(&shared_server());
    let client = Client::connect(&proxy.url()).await.unwrap();
    let renewed = |seconds| {
        let lease = LockOptions::new().lease(Duration::from_secs(seconds));
        lease.renew(Duration::from_millis(100))
    };
    let calls = |millis: &'static str| {
        Matcher::when(move |frame| frame.is_call() && frame.mentions(millis))
    };
    // Renewed on the same connection. The server has the script after its second renewal.
    let other = client.rlock(unique("other"));
    let other = other.lock_with(renewed(21)).await.unwrap();
    proxy.wait_for_count(calls("21000"), 3).await;
    let lock = client.rlock(unique("late-renewal"));
    let guard = lock.lock_with(renewed(20).min_hold(REST)).await.unwrap();
    let gate = proxy.hold_request(calls("20000"));
    gate.reached().await;
    let unlocked = guard.unlock().await.unwrap();
    assert!(matches!(unlocked, Unlocked::Kept { .. }), "{unlocked:?}");
    assert!(lock.remaining_ttl().await.unwrap().unwrap() <= REST);
    gate.open();
    proxy.mark();
    // The second one was sent behind the answer to the late one.
    proxy.wait_for_count(calls("21000"), 2).await;
    assert!(lock.remaining_ttl().await.unwrap().unwrap() <= REST);
    lock.force_unlock().await.unwrap();
    other.unlock().await.unwrap();
}

/// It was accepted, and no renewal was ever sent.
#[tokio::test(start_paused = true)]
async fn an_interval_behind_the_deadline_of_the_guard_is_refused() {
    let lock = Client::embedded().rlock("late");
    for (lease, least) in [(10_000, 9_898), (10, 9)] {
        let options = |every| {
            let [lease, every] = [lease, every].map(Duration::from_millis);
            LockOptions::new().lease(lease).renew(every)
        };
        let error = lock.lock_with(options(least)).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        let guard = lock.lock_with(options(least - 1)).await.unwrap();
        sleep(Duration::from_millis(3 * lease)).await;
        assert!(guard.is_valid(), "{:?}", guard.state());
        guard.unlock().await.unwrap();
    }
}
