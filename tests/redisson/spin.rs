//! SpinLock beside Redisson's: they exclude each other, both poll, and nothing is announced.

use std::time::{Duration, Instant};

use redlock_rt::{LockOptions, LostReason, SpinLock, SpinLockGuard, Unlocked};
use tests::{DEADLINE, RedissonSpinLock, RedissonUnlock, eventually, within};
use tokio::task::{JoinHandle, JoinSet};

use crate::{LATE, LEASE, Listener, Room};

/// The longest pause of either side's default back-off, with its random addition.
const PAUSE: Duration = Duration::from_millis(256);

type Both = crate::Both<SpinLock, RedissonSpinLock>;

impl Both {
    async fn open(what: &str) -> (Self, Listener) {
        let both = Self::of(
            what,
            |client, name| client.spin_lock(name),
            |java, name| java.spin_lock(name),
        )
        .await;
        let listener = Listener::on(&both.name).await;
        (both, listener)
    }

    /// A waiter of ours that was refused.
    async fn we_wait(&self) -> JoinHandle<(SpinLockGuard, Instant)> {
        let lock = self.ours.clone();
        let waiter = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
        eventually(DEADLINE, async || self.client.stats().waiting == 1).await;
        waiter
    }

    fn they_wait(&self, thread: u64) -> JoinHandle<Instant> {
        let lock = self.theirs.clone();
        tokio::spawn(async move {
            assert!(lock.lock(thread, None, None).await.unwrap());
            Instant::now()
        })
    }

    async fn they_take(&self, thread: u64) {
        assert!(
            self.theirs
                .lock(thread, Some(Duration::ZERO), None)
                .await
                .unwrap()
        );
    }

    async fn they_free(&self, thread: u64) {
        let freed = self.theirs.unlock(thread).await.unwrap();
        assert_eq!(freed, RedissonUnlock::Freed);
    }

    /// Asserts that nothing is left, and that nothing was published.
    async fn end_unheard(self, mut listener: Listener) {
        assert_eq!(listener.all().await, []);
        assert_eq!(self.client.stats().subscriptions, 0);
        self.end().await;
    }
}

#[track_caller]
fn assert_within_a_pause(freed: Instant, taken: Instant) {
    let late = taken.saturating_duration_since(freed);
    assert!(late < PAUSE + LATE, "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_holds_and_our_waiter_takes_the_lock() {
    let (both, listener) = Both::open("theirs").await;
    for _ in 0..3 {
        both.they_take(1).await;
        assert!(both.ours.try_lock().await.unwrap().is_none());
        let holder = both.ours.holder().await.unwrap().unwrap();
        assert_eq!(holder.as_str(), both.theirs.as_rlock().owner(1));
        let waiter = both.we_wait().await;
        assert!(!waiter.is_finished());
        let freed = Instant::now();
        both.they_free(1).await;
        let (guard, taken) = within(DEADLINE, waiter).await.unwrap();
        assert_within_a_pause(freed, taken);
        assert!(!both.theirs.as_rlock().try_lock(1, None).await.unwrap());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    both.end_unheard(listener).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hold_and_it_waits_and_takes_it() {
    let (both, listener) = Both::open("ours").await;
    for round in 0..4 {
        let guard = both.ours.lock().await.unwrap();
        let refused = both.theirs.lock(7, Some(PAUSE / 3), None).await;
        assert!(!refused.unwrap());
        let waiter = both.they_wait(7);
        let freed = Instant::now();
        if round % 2 == 0 {
            drop(guard);
        } else {
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        }
        assert_within_a_pause(freed, within(DEADLINE, waiter).await.unwrap());
        assert!(both.theirs.as_rlock().is_held_by(7).await.unwrap());
        assert!(both.ours.try_lock().await.unwrap().is_none());
        both.they_free(7).await;
    }
    both.end_unheard(listener).await;
}

#[tokio::test]
async fn re_entries_keep_the_other_side_out() {
    let (both, listener) = Both::open("re-entry").await;
    both.they_take(1).await;
    both.they_take(1).await;
    assert_eq!(both.ours.hold_count().await.unwrap(), 2);
    let first = both.theirs.unlock(1).await.unwrap();
    assert_eq!(first, RedissonUnlock::StillHeld);
    assert!(both.ours.try_lock().await.unwrap().is_none());
    both.they_free(1).await;

    let outer = both.ours.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let fields: Vec<(String, String)> = both.redis(&["HGETALL", &both.name]).await;
    assert_eq!(fields, [(outer.hold_id().to_string(), "2".to_owned())]);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(!both.theirs.as_rlock().try_lock(1, None).await.unwrap());
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    both.they_take(1).await;
    both.they_free(1).await;
    both.end_unheard(listener).await;
}

#[tokio::test]
async fn a_forced_release_frees_the_other_sides() {
    let (both, listener) = Both::open("force").await;
    let options = LockOptions::new().renew(Duration::from_millis(50));
    let guard = both.ours.lock_with(options).await.unwrap();
    assert!(both.theirs.force_unlock().await.unwrap());
    let reason = within(DEADLINE, guard.lost()).await;
    assert_eq!(reason, LostReason::Deleted);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);

    both.they_take(1).await;
    assert!(both.ours.force_unlock().await.unwrap());
    assert!(!both.ours.force_unlock().await.unwrap());
    let late = both.theirs.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    both.end_unheard(listener).await;
}

#[tokio::test]
async fn next_waiter_gets_the_lock_when_a_lease_runs_out() {
    let (both, listener) = Both::open("lease").await;
    let start = Instant::now();
    assert!(both.theirs.lock(1, None, Some(LEASE)).await.unwrap());
    let sent = Instant::now();
    let waiter = both.we_wait().await;
    let (guard, taken) = within(DEADLINE, waiter).await.unwrap();
    assert!(taken >= start + LEASE);
    assert_within_a_pause(sent + LEASE, taken);
    let late = both.theirs.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    guard.unlock().await.unwrap();

    let start = Instant::now();
    let options = LockOptions::new().lease(LEASE).renew(false);
    let guard = both.ours.lock_with(options).await.unwrap();
    let sent = Instant::now();
    let taken = within(DEADLINE, both.they_wait(1)).await.unwrap();
    assert!(taken >= start + LEASE);
    assert_within_a_pause(sent + LEASE, taken);
    assert!(!guard.is_valid(), "never both");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    both.they_free(1).await;
    both.end_unheard(listener).await;
}

/// A renewed hold of either side keeps the other waiting beyond its lease.
#[tokio::test]
async fn renewals_keep_the_other_side_waiting() {
    let (both, listener) = Both::open("renewal").await;
    let options = LockOptions::new().lease(LEASE);
    let guard = both.ours.lock_with(options).await.unwrap();
    let waiter = both.they_wait(1);
    tokio::time::sleep(2 * LEASE).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    guard.unlock().await.unwrap();
    within(DEADLINE, waiter).await.unwrap();
    assert!(both.theirs.as_rlock().renew(&[1]).await.unwrap());
    assert!(both.ours.remaining_ttl().await.unwrap().unwrap() > 50 * LEASE);
    both.they_free(1).await;
    both.end_unheard(listener).await;
}

#[tokio::test]
async fn redis_has_the_same_data_as_with_redisson() {
    let (both, listener) = Both::open("shape").await;
    let pattern = format!("*{}*", both.name);
    let shape = async || {
        let keys: Vec<String> = both.redis(&["KEYS", &pattern]).await;
        assert_eq!(keys, [&*both.name], "nothing beside the lock");
        let kind: String = both.redis(&["TYPE", &both.name]).await;
        let encoding: String = both.redis(&["OBJECT", "ENCODING", &both.name]).await;
        let ttl: u64 = both.redis(&["PTTL", &both.name]).await;
        assert!((28_000..=30_000).contains(&ttl), "{ttl}");
        let counts: Vec<String> = both.redis(&["HVALS", &both.name]).await;
        (kind, encoding, counts)
    };
    both.they_take(45).await;
    let theirs = shape().await;
    both.they_free(45).await;
    let guard = both.ours.lock().await.unwrap();
    assert_eq!(shape().await, theirs);
    guard.unlock().await.unwrap();
    both.end_unheard(listener).await;
}

/// The case that the documentation warns of: no announcement wakes them.
#[tokio::test]
async fn waiters_of_an_rlock_find_a_spin_lock_free_by_polling() {
    const POLL: Duration = Duration::from_millis(200);
    let (both, mut listener) = Both::open("mixed-kinds").await;
    let polls = both.client_with(|builder| builder.poll_interval(POLL));
    let guard = both.ours.lock().await.unwrap();
    let rlock = polls.rlock(&both.name);
    let waiter = tokio::spawn(async move { (rlock.lock().await.unwrap(), Instant::now()) });
    eventually(DEADLINE, async || polls.stats().subscriptions == 1).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    let (guard, taken) = within(DEADLINE, waiter).await.unwrap();
    let late = taken.saturating_duration_since(freed);
    assert!(late < 2 * POLL + LATE, "{late:?}");
    // In the other direction spinning is enough, and no client receives the message.
    let waiter = both.we_wait().await;
    eventually(DEADLINE, async || polls.stats().subscriptions == 0).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    let (guard, taken) = within(DEADLINE, waiter).await.unwrap();
    assert_within_a_pause(freed, taken);
    guard.unlock().await.unwrap();
    let texts = listener.all().await.into_iter().map(|(_, text)| text);
    assert_eq!(texts.collect::<Vec<_>>(), ["0"]);
    both.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_of_each_are_never_two_at_once() {
    const TURNS: usize = 15;
    let (both, listener) = Both::open("mixed").await;
    let room = Room::at(&both.name).await;
    let mut tasks = JoinSet::new();
    for thread in 0..4 {
        let (lock, mut inside) = (both.ours.clone(), room.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                inside.enter_and_leave().await;
                assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            }
        });
        let (lock, mut inside) = (both.theirs.clone(), room.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                assert!(lock.lock(thread, None, None).await.unwrap());
                inside.enter_and_leave().await;
                let freed = lock.unlock(thread).await.unwrap();
                assert_eq!(freed, RedissonUnlock::Freed);
            }
        });
    }
    within(3 * DEADLINE, tasks.join_all()).await;
    room.close().await;
    both.end_unheard(listener).await;
}
