//! Nothing is announced: whoever is next is called by the beats of its client. The server is in the
//! process, and the clock jumps.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, FairLockGuard, LockOptions, Unlocked, embedded::Engine};
use tests::{Wires, ask, calls, connection_over, eventually, unique, within};
use tokio::{task::JoinHandle, time::Instant};

use crate::stage::{DEADLINE, NEVER};

const S: Duration = Duration::from_secs(1);
/// What a client of Redisson writes.
const JAVA: &str = "00000000-0000-4000-8000-000000000000:1";

struct Silent {
    engine: Engine,
    name: String,
    redis: MultiplexedConnection,
    client: Client,
    wires: Wires,
}

impl Silent {
    async fn open(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let engine = Engine::new();
        let redis = connection_over(engine.connect()).await.unwrap();
        let wires = Wires::to_engine(&engine);
        let client = options(wires.builder()).build().unwrap();
        let name = unique("fair-silent");
        // Each script is loaded once.
        let known = client.fair_lock(&name).lock().await.unwrap();
        known.unlock().await.unwrap();
        wires.mark();
        Self {
            engine,
            name,
            redis,
            client,
            wires,
        }
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    /// A client of Redisson takes the lock.
    async fn java_locks(&self, lease: Duration) {
        let _: i64 = self.ask(&["HSET", &self.name, JAVA, "1"]).await;
        self.java_renews(lease).await;
    }

    async fn java_renews(&self, lease: Duration) {
        let lease = lease.as_millis().to_string();
        assert!(self.ask::<bool>(&["PEXPIRE", &self.name, &lease]).await);
    }

    /// Starts a waiter, and waits until it is queued.
    async fn waiter(&self) -> JoinHandle<FairLockGuard> {
        self.waiter_of(&self.client, LockOptions::new()).await
    }

    async fn waiter_of(&self, client: &Client, options: LockOptions) -> JoinHandle<FairLockGuard> {
        let lock = client.fair_lock(&self.name);
        let waiter = lock.clone();
        let before = lock.queue_len().await.unwrap();
        let waiting = tokio::spawn(async move { waiter.lock_with(options).await.unwrap() });
        eventually(DEADLINE, async || lock.queue_len().await.unwrap() > before).await;
        waiting
    }

    /// Another client of the same server.
    fn other_client(&self) -> Client {
        self.client_that_beats(NEVER)
    }

    /// Another client of the same server, with this time-out of its waiters.
    fn client_that_beats(&self, waiter_timeout: Duration) -> Client {
        let engine = self.engine.clone();
        let connect = move || std::future::ready(Ok(engine.connect()));
        let builder = Client::builder().connector(connect);
        let builder = builder.poll_interval(NEVER).waiter_timeout(waiter_timeout);
        builder.build().unwrap()
    }

    /// A waiter of a client of ours that was last heard of so that it is alive for this long.
    async fn dying_waiter(&self, alive: Duration) {
        const DYING: &str = "00000000-0000-8fa1-8000-000000000000";
        let (seconds, _): (u64, u64) = self.ask(&["TIME"]).await;
        let ms = |after: Duration| (u128::from(seconds) * 1000 + after.as_millis()).to_string();
        let key = |prefix: &str| format!("{prefix}:{{{}}}", self.name);
        let owner = format!("{DYING}:1");
        let _: i64 = self
            .ask(&["RPUSH", &key("redisson_lock_queue"), &owner])
            .await;
        let deadlines = key("redisson_lock_timeout");
        let _: i64 = self.ask(&["ZADD", &deadlines, &ms(NEVER), &owner]).await;
        let notes = key("redlock_fair");
        let _: i64 = self.ask(&["HSET", &notes, DYING, &ms(alive)]).await;
    }
}

fn fixed(lease: Duration) -> LockOptions {
    LockOptions::new().lease(lease).renew(false)
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_freed_without_a_word_is_taken_within_two_poll_intervals() {
    let silent = Silent::open(|builder| builder.poll_interval(S).waiter_timeout(NEVER)).await;
    silent.java_locks(NEVER).await;
    let waiting = silent.waiter().await;
    tokio::time::sleep(20 * S).await;
    let _: i64 = silent.ask(&["DEL", &silent.name]).await;
    let freed = Instant::now();
    let guard = within(DEADLINE, waiting).await.unwrap();
    assert!(freed.elapsed() <= 2 * S, "{:?}", freed.elapsed());
    assert_eq!(
        silent.wires.matching(calls("fair_acquire")),
        2,
        "one to queue, one to take"
    );
    guard.unlock().await.unwrap();
}

/// The watchdog of its client lengthens the lease, which is announced to nobody; then the client dies.
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_java_holder_is_looked_at_again_when_it_was_to_be_over() {
    let silent = Silent::open(|builder| builder.poll_interval(NEVER).waiter_timeout(NEVER)).await;
    silent.java_locks(3 * S).await;
    let started = Instant::now();
    let waiting = silent.waiter().await;
    for at in [2, 6] {
        tokio::time::sleep_until(started + at * S).await;
        silent.java_renews(5 * S).await;
    }
    let guard = within(DEADLINE, waiting).await.unwrap();
    let late = started.elapsed() - 11 * S;
    assert!(late < S / 10, "{late:?} after the end of the lease");
    assert_eq!(
        silent.wires.matching(calls("fair_acquire")),
        2,
        "one to queue, one to take"
    );
    // When it is queued and when a channel is heard; then at 3, 7 and 11 s.
    let beats = silent.wires.matching(calls("fair_beat"));
    assert!((4..=6).contains(&beats), "{beats} beats");
    guard.unlock().await.unwrap();
}

/// The connection for beats does not succeed: they use that for commands.
#[tokio::test(start_paused = true)]
async fn beats_were_not_sent_where_they_had_no_connection_of_their_own() {
    let silent = Silent::open(|builder| builder.poll_interval(S)).await;
    silent.wires.refuse();
    silent.java_locks(NEVER).await;
    let waiting = silent.waiter().await;
    tokio::time::sleep(20 * S).await;
    let beats = silent.wires.matching(calls("fair_beat"));
    assert!((10..=21).contains(&beats), "{beats} beats");
    assert_eq!(silent.wires.matching(calls("fair_acquire")), 1);
    let _: i64 = silent.ask(&["DEL", &silent.name]).await;
    let freed = Instant::now();
    let guard = within(DEADLINE, waiting).await.unwrap();
    assert!(freed.elapsed() <= 4 * S, "{:?}", freed.elapsed());
    guard.unlock().await.unwrap();
}

/// The lease of a holder that neither releases nor dies ends without an announcement.
#[tokio::test(start_paused = true)]
async fn a_lock_stayed_free_for_up_to_a_beat_after_the_lease_of_who_came_before() {
    for same_client in [true, false] {
        let silent = Silent::open(|b| b.poll_interval(NEVER).waiter_timeout(NEVER)).await;
        let behind = match same_client {
            true => silent.client.clone(),
            false => silent.other_client(),
        };
        let first = silent.client.fair_lock(&silent.name).lock().await.unwrap();
        let second = silent.waiter_of(&silent.client, fixed(S)).await;
        let third = silent.waiter_of(&behind, LockOptions::new()).await;
        first.unlock().await.unwrap();
        let second = within(DEADLINE, second).await.unwrap();
        let taken = Instant::now();
        let third = within(DEADLINE, third).await.unwrap();
        let late = taken.elapsed() - S;
        assert!(late < S / 100, "{late:?} after the end of the lease");
        assert!(!second.is_valid());
        third.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_found_the_lock_free_woke_nobody() {
    let silent = Silent::open(|b| b.poll_interval(NEVER).waiter_timeout(NEVER)).await;
    let first = silent.client.fair_lock(&silent.name).lock().await.unwrap();
    let waiting = silent.waiter().await;
    let _: i64 = silent.ask(&["DEL", &silent.name]).await;
    let released = Instant::now();
    assert_eq!(first.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let second = within(DEADLINE, waiting).await.unwrap();
    assert!(released.elapsed() < S / 100, "{:?}", released.elapsed());
    second.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_one_that_gave_up_learned_the_end_of_the_lease_by_a_beat_only() {
    let silent = Silent::open(|b| b.poll_interval(NEVER).waiter_timeout(NEVER)).await;
    silent.java_locks(3 * S).await;
    let started = Instant::now();
    let gives_up = silent.waiter().await;
    let waiting = silent
        .waiter_of(&silent.other_client(), LockOptions::new())
        .await;
    gives_up.abort();
    let guard = within(DEADLINE, waiting).await.unwrap();
    let late = started.elapsed() - 3 * S;
    assert!(late < S / 100, "{late:?} after the end of the lease");
    guard.unlock().await.unwrap();
}

/// A call of a client that is not next removes the dead waiter.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_one_that_died_learned_the_end_of_the_lease_by_a_beat_only() {
    for call in ["fair_acquire", "fair_beat", "fair_release"] {
        let silent = Silent::open(|b| b.poll_interval(NEVER).waiter_timeout(NEVER)).await;
        silent.java_locks(20 * S).await;
        let started = Instant::now();
        silent.dying_waiter(5 * S).await;
        let waiting = silent.waiter().await;
        let third = match call {
            "fair_beat" => silent.client_that_beats(6 * S),
            _ => silent.other_client(),
        };
        let behind = match call {
            "fair_acquire" => None,
            _ => Some(silent.waiter_of(&third, LockOptions::new()).await),
        };
        tokio::time::sleep_until(started + 10 * S).await;
        match (call, behind) {
            ("fair_acquire", _) => {
                let lock = third.fair_lock(&silent.name);
                assert!(lock.try_lock().await.unwrap().is_none());
            }
            (_, Some(behind)) => behind.abort(),
            (_, None) => unreachable!(),
        }
        let guard = within(DEADLINE * 2, waiting).await.unwrap();
        let late = started.elapsed() - 20 * S;
        assert!(late < S / 10, "{call}: {late:?} after the end of the lease");
        guard.unlock().await.unwrap();
    }
}
