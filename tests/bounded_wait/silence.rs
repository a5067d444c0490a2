//! Redis is a black hole, with a paused clock: a wait has its exact length, to the millisecond, and
//! ends with `Unavailable`.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{
    Client, Error, ErrorKind, LockOptions, Owner, RLock, RLockGuard, Unlocked, distributed_lock,
    embedded::Engine,
};
use tests::{ask, assert_clean_in, connection_over, eventually, lock_and_unlock, unique, within};
use tokio::time::Instant;

use crate::{
    DEADLINE, assert_kind, ms,
    valve::{Dial, Valve},
};

const DIALS: [Dial; 2] = [Dial::Hangs, Dial::Succeeds];
const RESPONSE: Duration = ms_const(200);
const POLL: Duration = ms_const(50);

const fn ms_const(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A client whose way to the engine can be closed, and one whose way stays open.
struct Stage {
    name: String,
    engine: Engine,
    valve: Valve,
    client: Client,
    lock: RLock,
    other: Client,
}

impl Stage {
    fn set(what: &str, dial: Dial) -> Self {
        Self::at(&Engine::new(), what, dial)
    }

    fn at(engine: &Engine, what: &str, dial: Dial) -> Self {
        let (engine, name) = (engine.clone(), unique(what));
        let valve = Valve::open(&engine);
        let client = valve.client(dial).response_timeout(RESPONSE);
        let client = client.poll_interval(POLL).build().unwrap();
        Self {
            lock: client.rlock(&name),
            client,
            other: Client::builder().embedded(&engine).build().unwrap(),
            valve,
            engine,
            name,
        }
    }

    /// The other client holds the lock.
    async fn occupy(&self) -> RLockGuard {
        self.other.rlock(&self.name).lock().await.unwrap()
    }

    async fn subscribed(&self) {
        let redis = connection_over(self.engine.connect()).await.unwrap();
        eventually(DEADLINE, async || {
            let channels: Vec<String> =
                ask(&redis, &["PUBSUB", "CHANNELS", &format!("*{}*", self.name)]).await;
            channels.len() == 1
        })
        .await;
    }

    /// The way is open again: the lock can be acquired, and in the end nothing is left.
    async fn assert_recovers(self) {
        self.valve.turn();
        let guard = within(DEADLINE, self.lock.lock()).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert_clean_in(&self.engine, &self.name, [&self.client, &self.other]).await;
    }
}

/// Waits for the lock, and asserts the exact length of the wait.
async fn wait_in_vain(lock: &RLock, options: LockOptions, wait: Duration) -> ErrorKind {
    let start = Instant::now();
    let outcome = lock.lock_with(options.wait(wait)).await;
    let error = outcome.unwrap_err();
    assert_eq!(start.elapsed(), wait, "{error}");
    error.kind()
}

/// From a moment to several response time-outs and attempts to connect.
const WAITS: [u64; 7] = [1, 199, 200, 201, 1234, 3000, 10_000];

#[tokio::test(start_paused = true)]
async fn before_there_is_a_connection() {
    let engine = Engine::new();
    for dial in DIALS {
        for wait in WAITS {
            let stage = Stage::at(&engine, "before", dial);
            stage.valve.turn();
            let kind = wait_in_vain(&stage.lock, LockOptions::new(), ms(wait)).await;
            assert_eq!(kind, ErrorKind::Unavailable, "{dial:?} {wait}");
            stage.assert_recovers().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_connection_that_was_there() {
    let engine = Engine::new();
    for dial in DIALS {
        for wait in WAITS {
            let stage = Stage::at(&engine, "there", dial);
            lock_and_unlock(&stage.client.rlock("warm")).await;
            stage.valve.turn();
            let kind = wait_in_vain(&stage.lock, LockOptions::new(), ms(wait)).await;
            assert_eq!(kind, ErrorKind::Unavailable, "{dial:?} {wait}");
            stage.assert_recovers().await;
        }
    }
}

/// Another owner had the lock at the last answer of Redis, which then falls silent.
#[tokio::test(start_paused = true)]
async fn subscribed_and_queued() {
    for dial in DIALS {
        let stage = Stage::set("queued", dial);
        let holder = stage.occupy().await;
        let (lock, waits) = (&stage.lock, [500, 501, 503, 1000, 4000].map(ms));
        let wait = |wait| wait_in_vain(lock, LockOptions::new(), wait);
        let waiters = join_all(waits.map(wait));
        let close = async {
            stage.subscribed().await;
            stage.valve.turn();
        };
        let (kinds, ()) = tokio::join!(waiters, close);
        assert_eq!(kinds, [ErrorKind::Unavailable; 5], "{dial:?}");
        drop(holder);
        stage.assert_recovers().await;
    }
}

/// Only the head asks. Waiters behind it get the same error, whether their waits end during a try of
/// the head, between its tries, or together with its wait.
#[tokio::test(start_paused = true)]
async fn behind_a_head() {
    for dial in DIALS {
        let stage = Stage::set("behind", dial);
        lock_and_unlock(&stage.client.rlock("warm")).await;
        stage.valve.turn();
        let head = stage.lock.clone();
        let head = tokio::spawn(async move { head.lock().await });
        eventually(DEADLINE, async || stage.client.stats().waiting == 1).await;
        let lock = &stage.lock;
        let waits = (1..300).map(|step| ms(10 * step));
        let kinds = waits
            .map(|wait| async move { (wait, wait_in_vain(lock, LockOptions::new(), wait).await) });
        for (wait, kind) in join_all(kinds).await {
            assert_eq!(kind, ErrorKind::Unavailable, "{dial:?} {wait:?}");
        }
        head.abort();
        stage.assert_recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_whose_waits_end_at_once() {
    let engine = Engine::new();
    for dial in DIALS {
        for wait in [100, 200, 1000].map(ms) {
            let stage = Stage::at(&engine, "many", dial);
            stage.valve.turn();
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    let lock = stage.lock.clone();
                    tokio::spawn(async move { wait_in_vain(&lock, LockOptions::new(), wait).await })
                })
                .collect();
            for task in tasks {
                assert_eq!(
                    task.await.unwrap(),
                    ErrorKind::Unavailable,
                    "{dial:?} {wait:?}"
                );
            }
            stage.assert_recovers().await;
        }
    }
}

/// Re-entry asks Redis too. Its possible effect is undone, so the outcome is not unknown.
#[tokio::test(start_paused = true)]
async fn a_reentry() {
    let engine = Engine::new();
    for dial in DIALS {
        for wait in [20, 500, 5000].map(ms) {
            let stage = Stage::at(&engine, "reentry", dial);
            let outer = stage.lock.lock().await.unwrap();
            stage.valve.turn();
            let inner = wait_in_vain(&stage.lock, LockOptions::new(), wait);
            let kind = outer.run(inner).await.unwrap();
            assert_eq!(kind, ErrorKind::Unavailable, "{dial:?} {wait:?}");
            stage.valve.turn();
            eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
            assert_eq!(stage.lock.hold_count().await.unwrap(), 1);
            outer.unlock().await.unwrap();
            stage.valve.turn();
            stage.assert_recovers().await;
        }
    }
}

/// Callers that share an owner queue for it, and the first one waits for Redis.
#[tokio::test(start_paused = true)]
async fn of_one_owner() {
    for dial in DIALS {
        let stage = Stage::set("owner", dial);
        stage.valve.turn();
        let owner = Owner::new();
        let options = LockOptions::new().owner(&owner);
        let (lock, options) = (&stage.lock, &options);
        for waits in [[300, 301, 600, 2000], [1000, 500, 500, 1000]] {
            let wait = |wait| wait_in_vain(lock, options.clone(), ms(wait));
            let kinds = join_all(waits.map(wait)).await;
            assert_eq!(kinds, [ErrorKind::Unavailable; 4], "{dial:?} {waits:?}");
        }
        stage.assert_recovers().await;
    }
}

/// Bodies take turns under a lock that is held around them. The turn comes at the end of the wait, and
/// Redis is gone.
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_too_late() {
    #[distributed_lock(key = "<name>", client = client, wait = "500ms")]
    async fn body(client: &Client, name: &str) -> Result<(), Error> {
        tokio::time::sleep(ms(500)).await;
        Ok(())
    }
    let stage = Stage::set("turn", Dial::Succeeds);
    let outer = stage.lock.lock().await.unwrap();
    let first = async {
        body(&stage.client, &stage.name).await.unwrap();
        stage.valve.turn();
    };
    let second = async {
        let start = Instant::now();
        let outcome = body(&stage.client, &stage.name).await;
        assert_eq!(start.elapsed(), ms(500));
        assert_kind(outcome, ErrorKind::TimedOut);
    };
    outer
        .run(async { tokio::join!(first, second) })
        .await
        .unwrap();
    stage.valve.turn();
    outer.unlock().await.unwrap();
    stage.valve.turn();
    stage.assert_recovers().await;
}

/// A call without a wait ends with the response time-out, whatever the cause of the delay.
#[tokio::test(start_paused = true)]
async fn without_a_wait_of_its_own() {
    let patience = RESPONSE;
    for dial in DIALS {
        let stage = Stage::set("own", dial);
        let held = stage.client.rlock(format!("{}:held", stage.name));
        let guard = held.lock().await.unwrap();
        stage.valve.turn();
        let start = Instant::now();
        let (taken, taken_now, freed, asked, extended, unlocked) = tokio::join!(
            stage.lock.try_lock(),
            stage
                .lock
                .lock_with(LockOptions::new().wait(Duration::ZERO)),
            stage.lock.force_unlock(),
            stage.lock.is_locked(),
            guard.extend(Duration::from_secs(60)),
            async {
                let other = stage.client.rlock(format!("{}:other", stage.name));
                other.try_lock().await
            },
        );
        assert!(
            start.elapsed() <= patience,
            "{dial:?}: {:?}",
            start.elapsed()
        );
        assert_kind(taken, ErrorKind::Unavailable);
        assert_kind(taken_now, ErrorKind::Unavailable);
        // Sent once: a repeat might free the lock of the next holder.
        assert_kind(freed, ErrorKind::OutcomeUnknown);
        assert_kind(asked, ErrorKind::Unavailable);
        assert_kind(unlocked, ErrorKind::Unavailable);
        assert!(extended.is_err());
        let start = Instant::now();
        let error = guard.unlock().await.unwrap_err();
        assert!(
            start.elapsed() <= patience,
            "{dial:?}: {:?}",
            start.elapsed()
        );
        let kind = error.kind();
        assert!(
            matches!(kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown),
            "{error}"
        );
        stage.assert_recovers().await;
    }
}

/// The connections succeed: a client that connects eagerly also gets the error in time.
#[tokio::test(start_paused = true)]
async fn connecting() {
    for dial in DIALS {
        let valve = Valve::open(&Engine::new());
        valve.turn();
        let start = Instant::now();
        let outcome = valve.client(dial).connect_timeout(ms(700)).connect().await;
        assert_eq!(start.elapsed(), ms(700), "{dial:?}");
        assert_kind(outcome, ErrorKind::Unavailable);
    }
}
