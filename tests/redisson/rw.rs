//! The read-write lock beside Redisson's.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use redlock_rt::{Kind, Lock, LockGuard, LockOptions, LostReason, ReadWriteLock, Unlocked};
use tests::{
    DEADLINE, RedissonClient, RedissonModeLock, RedissonReadWriteLock, RedissonUnlock, eventually,
    shared_server, unique, within,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::{LATE, Listener, assert_soon};

const NEVER: Duration = Duration::from_secs(600);

type Both = crate::Both<ReadWriteLock, RedissonReadWriteLock>;

impl Both {
    async fn open(what: &str) -> Self {
        Self::polling(what, NEVER, Duration::from_secs(30)).await
    }

    async fn polling(what: &str, poll: Duration, watchdog: Duration) -> Self {
        let url = shared_server().url();
        let java = RedissonClient::connect_with_watchdog(&url, watchdog).await;
        let name = unique(what);
        Self::with(
            &name,
            [&name, &name],
            |builder| builder.poll_interval(poll),
            java.unwrap(),
            |client, name| client.read_write_lock(name),
            |java, name| java.read_write_lock(name),
        )
        .await
    }

    async fn ttl_of(&self, key: &str) -> Duration {
        let millis: i64 = self.redis(&["PTTL", key]).await;
        Duration::from_millis(millis.try_into().unwrap_or_default())
    }

    async fn ttl(&self) -> Duration {
        self.ttl_of(&self.name).await
    }

    /// Waits until this many connections are subscribed to the lock's channel.
    async fn subscribed(&self, count: usize) {
        let channel = self.theirs.read.channel();
        self.subscribed_to(&channel, count).await;
    }

    /// A waiter of ours that sleeps.
    async fn we_wait<K: Kind>(&self, lock: Lock<K>) -> JoinHandle<(LockGuard<K>, Instant)> {
        let waiter = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
        self.subscribed(1).await;
        waiter
    }

    /// A waiter of theirs that sleeps.
    async fn they_wait(&self, lock: &RedissonModeLock, thread: u64) -> JoinHandle<Instant> {
        let lock = lock.clone();
        let waiter = tokio::spawn(async move {
            assert!(lock.lock_for(thread, None, None).await.unwrap());
            Instant::now()
        });
        self.subscribed(1).await;
        waiter
    }

    async fn is_contended_for_everybody(&self) -> bool {
        let ours = self.ours.try_write().await.unwrap();
        ours.is_none() && !self.theirs.write.try_lock(99, None).await.unwrap()
    }
}

async fn freed(lock: &RedissonModeLock, thread: u64) {
    let unlocked = lock.unlock(thread).await.unwrap();
    assert_eq!(unlocked, RedissonUnlock::Freed);
}

#[tokio::test]
async fn both_read_together_and_the_last_one_frees_it() {
    let both = Both::open("together").await;
    for we_end_first in [true, false] {
        let guard = both.ours.read().await.unwrap();
        assert!(both.theirs.read.try_lock(1, None).await.unwrap());
        assert!(both.theirs.read.try_lock(1, None).await.unwrap());
        let again = both.ours.read().await.unwrap();
        assert!(both.is_contended_for_everybody().await);
        let holders = both.ours.read_lock().holders().await.unwrap();
        assert_eq!(holders.len(), 3);
        assert!(
            holders
                .iter()
                .any(|owner| owner.as_str() == both.theirs.read.field(1))
        );
        assert_eq!(both.ours.read_lock().hold_count().await.unwrap(), 4);
        assert!(both.theirs.read.is_locked().await.unwrap());
        again.unlock().await.unwrap();
        if we_end_first {
            let waiter = both.we_wait(both.ours.write_lock()).await;
            guard.unlock().await.unwrap();
            let still = both.theirs.read.unlock(1).await.unwrap();
            assert_eq!(still, RedissonUnlock::StillHeld);
            assert!(!waiter.is_finished());
            let end = Instant::now();
            freed(&both.theirs.read, 1).await;
            let (writing, woke) = within(DEADLINE, waiter).await.unwrap();
            assert_soon(woke, end);
            writing.unlock().await.unwrap();
        } else {
            let waiter = both.they_wait(&both.theirs.write, 7).await;
            for _ in 0..2 {
                let still = both.theirs.read.unlock(1).await.unwrap();
                assert_eq!(still, RedissonUnlock::StillHeld, "we read still");
            }
            assert!(!waiter.is_finished());
            let end = Instant::now();
            guard.unlock().await.unwrap();
            assert_soon(within(DEADLINE, waiter).await.unwrap(), end);
            freed(&both.theirs.write, 7).await;
        }
        both.subscribed(0).await;
    }
    both.end().await;
}

#[tokio::test]
async fn redisson_writes_and_our_waiter_wakes() {
    let both = Both::open("it-writes").await;
    for _ in 0..3 {
        assert!(both.theirs.write.try_lock(1, None).await.unwrap());
        assert!(both.ours.try_read().await.unwrap().is_none());
        assert!(both.ours.try_write().await.unwrap().is_none());
        let holder = both.ours.write_lock().holder().await.unwrap().unwrap();
        assert_eq!(format!("{holder}:write"), both.theirs.write.field(1));
        let readers = [
            both.we_wait(both.ours.read_lock()).await,
            both.we_wait(both.ours.read_lock()).await,
        ];
        let end = Instant::now();
        freed(&both.theirs.write, 1).await;
        for reader in readers {
            let (guard, woke) = within(DEADLINE, reader).await.unwrap();
            assert_soon(woke, end);
            assert!(guard.is_valid());
            guard.unlock().await.unwrap();
        }
        both.subscribed(0).await;

        assert!(both.theirs.write.try_lock(1, None).await.unwrap());
        let writer = both.we_wait(both.ours.write_lock()).await;
        let end = Instant::now();
        freed(&both.theirs.write, 1).await;
        let (guard, woke) = within(DEADLINE, writer).await.unwrap();
        assert_soon(woke, end);
        assert!(!both.theirs.read.try_lock(1, None).await.unwrap());
        guard.unlock().await.unwrap();
        both.subscribed(0).await;
    }
    both.end().await;
}

#[tokio::test]
async fn we_write_and_it_waits_and_wakes() {
    let both = Both::open("we-write").await;
    for round in 0..4 {
        let guard = both.ours.write().await.unwrap();
        assert!(both.theirs.write.is_locked().await.unwrap());
        assert!(!both.theirs.read.try_lock(1, None).await.unwrap());
        let inner = guard.reenter().await.unwrap();
        // One message wakes all of its readers.
        let readers = [1, 2, 3].map(|thread| both.they_wait(&both.theirs.read, thread));
        let mut waiting = Vec::new();
        for reader in readers {
            waiting.push(reader.await);
        }
        inner.unlock().await.unwrap();
        assert!(waiting.iter().all(|reader| !reader.is_finished()));
        let end = Instant::now();
        if round % 2 == 0 {
            guard.unlock().await.unwrap();
        } else {
            drop(guard);
        }
        for reader in waiting {
            assert_soon(within(DEADLINE, reader).await.unwrap(), end);
        }
        for thread in [1, 2] {
            let still = both.theirs.read.unlock(thread).await.unwrap();
            assert_eq!(still, RedissonUnlock::StillHeld);
        }
        freed(&both.theirs.read, 3).await;
        both.subscribed(0).await;

        let guard = both.ours.write().await.unwrap();
        let writer = both.they_wait(&both.theirs.write, 1).await;
        let end = Instant::now();
        guard.unlock().await.unwrap();
        assert_soon(within(DEADLINE, writer).await.unwrap(), end);
        freed(&both.theirs.write, 1).await;
        both.subscribed(0).await;
    }
    both.end().await;
}

/// Redisson itself announces nothing: its readers sleep until the TTL that they know.
#[tokio::test]
async fn our_downgrade_wakes_its_readers() {
    let both = Both::open("our-downgrade").await;
    let writing = both.ours.write().await.unwrap();
    let first = both.they_wait(&both.theirs.read, 1).await;
    let second = both.they_wait(&both.theirs.read, 2).await;
    let end = Instant::now();
    let reading = writing.downgrade().await.unwrap();
    assert_soon(within(DEADLINE, first).await.unwrap(), end);
    assert_soon(within(DEADLINE, second).await.unwrap(), end);
    assert!(both.is_contended_for_everybody().await);
    let refused = reading.try_upgrade().await.unwrap_err();
    assert!(refused.error().is_contended());
    for thread in [1, 2] {
        let still = both.theirs.read.unlock(thread).await.unwrap();
        assert_eq!(still, RedissonUnlock::StillHeld);
    }
    let writing = refused.into_guard().try_upgrade().await.unwrap();
    assert!(!both.theirs.read.try_lock(1, None).await.unwrap());
    writing.unlock().await.unwrap();
    both.end().await;
}

/// Redisson announces nothing, so we find out by polling.
#[tokio::test]
async fn its_downgrade_is_found_by_polling() {
    let poll = Duration::from_millis(100);
    let both = Both::polling("its-downgrade", poll, Duration::from_secs(30)).await;
    assert!(both.theirs.write.try_lock(1, None).await.unwrap());
    assert!(both.theirs.read.try_lock(1, None).await.unwrap());
    assert!(both.ours.read_lock().is_locked().await.unwrap());
    let reader = both.we_wait(both.ours.read_lock()).await;
    let end = Instant::now();
    freed(&both.theirs.write, 1).await;
    let (guard, woke) = within(DEADLINE, reader).await.unwrap();
    assert!(woke.saturating_duration_since(end) < 2 * poll + LATE);
    assert!(both.is_contended_for_everybody().await);
    let still = both.theirs.read.unlock(1).await.unwrap();
    assert_eq!(still, RedissonUnlock::StillHeld);
    guard.unlock().await.unwrap();
    both.end().await;
}

/// Redisson's renewal sets the TTL of the lock to its own lease, which cuts ours; then it dies.
#[tokio::test]
async fn its_renewal_cuts_no_lease_of_ours() {
    cuts_no_lease_of_ours(false).await;
}

/// Before 4.4.0 it sets the leases of all readers, and not only its own.
#[tokio::test]
async fn its_renewal_of_old_cuts_no_lease_of_ours() {
    cuts_no_lease_of_ours(true).await;
}

async fn cuts_no_lease_of_ours(is_old: bool) {
    let watchdog = Duration::from_millis(2500);
    let lease = Duration::from_secs(60);
    let both = Both::polling("cut", NEVER, watchdog).await;
    let options = LockOptions::new().lease(lease).renew(false);
    let guard = both.ours.read_with(options).await.unwrap();
    assert_eq!(both.client.stats().renewals, 0);
    assert!(both.theirs.read.try_lock(1, None).await.unwrap());
    let renew = async || match is_old {
        true => both.theirs.read.renew_as_of_old(1).await.unwrap(),
        false => both.theirs.read.renew(&[1]).await.unwrap(),
    };
    for _ in 0..3 {
        assert!(renew().await);
        assert!(both.ttl().await <= watchdog, "or this test shows nothing");
        sleep(watchdog / 3).await;
    }
    assert!(renew().await);
    // Redisson's client is dead.
    sleep(watchdog + Duration::from_millis(700)).await;
    assert!(guard.is_valid());
    assert!(both.is_contended_for_everybody().await);
    let ttl = both.ttl().await;
    assert!(ttl > lease - DEADLINE && ttl < lease, "{ttl:?}");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(both.theirs.write.try_lock(2, None).await.unwrap());
    freed(&both.theirs.write, 2).await;
    both.end().await;
}

/// When one of its readers ends, Redisson computes from our keys the longest lease of the remaining
/// guards, in whatever order ours ended.
#[tokio::test]
async fn its_release_finds_the_leases_of_our_guards() {
    let both = Both::open("leases").await;
    let (short, long) = (Duration::from_secs(3), Duration::from_secs(60));
    let fixed = |lease| LockOptions::new().lease(lease).renew(false);
    for (first, second) in [(short, long), (long, short)] {
        for outer_ends in [true, false] {
            let outer = both.ours.read_with(fixed(first)).await.unwrap();
            let inner = outer.run(both.ours.read_with(fixed(second))).await;
            let inner = inner.unwrap().unwrap();
            assert_eq!(inner.hold_id(), outer.hold_id());
            assert!(both.theirs.read.try_lock(1, Some(short)).await.unwrap());
            let (ends, stays) = if outer_ends {
                (outer, inner)
            } else {
                (inner, outer)
            };
            assert_eq!(ends.unlock().await.unwrap(), Unlocked::StillHeld);
            let still = both.theirs.read.unlock(1).await.unwrap();
            assert_eq!(still, RedissonUnlock::StillHeld);
            let ttl = both.ttl().await;
            assert!(ttl + LATE > long, "{ttl:?}: the longer lease was cut");
            assert!(stays.is_valid());
            assert_eq!(stays.unlock().await.unwrap(), Unlocked::Released);
        }
    }
    both.end().await;
}

/// And we compute it from Redisson's keys.
#[tokio::test]
async fn our_release_finds_its_leases() {
    let both = Both::open("its-leases").await;
    let lease = Duration::from_secs(7);
    let guard = both.ours.read().await.unwrap();
    assert!(both.theirs.read.try_lock(1, Some(lease)).await.unwrap());
    assert!(both.theirs.read.try_lock(1, Some(2 * lease)).await.unwrap());
    assert!(both.theirs.read.try_lock(2, Some(lease)).await.unwrap());
    assert!(both.ttl().await > 2 * lease);
    guard.unlock().await.unwrap();
    let ttl = both.ttl().await;
    assert!(ttl <= 2 * lease && ttl + LATE > 2 * lease, "{ttl:?}");
    assert_eq!(both.theirs.read.hold_count(1).await.unwrap(), 2);
    let rest = both
        .ours
        .read_lock()
        .remaining_ttl()
        .await
        .unwrap()
        .unwrap();
    assert!(rest <= ttl && rest + LATE > ttl, "{rest:?}");
    for thread in [1, 1] {
        let still = both.theirs.read.unlock(thread).await.unwrap();
        assert_eq!(still, RedissonUnlock::StillHeld);
    }
    freed(&both.theirs.read, 2).await;
    both.end().await;
}

/// Our readers do not keep a dead reader of Redisson alive.
#[tokio::test]
async fn its_dead_reader_is_dead() {
    let both = Both::open("dead").await;
    let lease = Duration::from_millis(700);
    let often = LockOptions::new().renew(Duration::from_millis(100));
    assert!(both.theirs.read.try_lock(1, Some(lease)).await.unwrap());
    let guard = both.ours.read_with(often).await.unwrap();
    let waiter = both.we_wait(both.ours.write_lock()).await;
    let key = format!("{}:1", both.theirs.read.lease_prefix(1));
    assert!(both.ttl_of(&key).await > Duration::ZERO);
    eventually(DEADLINE, async || both.ttl_of(&key).await.is_zero()).await;
    assert!(!waiter.is_finished());
    let end = Instant::now();
    guard.unlock().await.unwrap();
    let (writing, woke) = within(DEADLINE, waiter).await.unwrap();
    assert_soon(woke, end);
    // Its late release does not affect the writer.
    let late = both.theirs.read.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    assert!(!both.theirs.read.renew(&[1]).await.unwrap());
    assert!(both.ours.write_lock().is_locked().await.unwrap());
    writing.unlock().await.unwrap();
    both.end().await;
}

#[tokio::test]
async fn each_forces_the_others_lock_of_its_mode() {
    let both = Both::open("force").await;
    let soon = || LockOptions::new().renew(Duration::from_millis(50));
    let guard = both.ours.read_with(soon()).await.unwrap();
    assert!(!both.theirs.write.force_unlock().await.unwrap());
    let waiter = both.we_wait(both.ours.write_lock()).await;
    assert!(both.theirs.read.force_unlock().await.unwrap());
    let (writing, _) = within(DEADLINE, waiter).await.unwrap();
    let reason = within(DEADLINE, guard.lost()).await;
    let known = matches!(reason, LostReason::Deleted | LostReason::Taken);
    assert!(known, "{reason}");
    // Redisson's forced release leaves our keys to expire; our guard deletes them.
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(both.theirs.write.force_unlock().await.unwrap());
    drop(writing);
    eventually(DEADLINE, async || both.client.stats().releases == 0).await;

    assert!(both.theirs.read.try_lock(1, None).await.unwrap());
    assert!(!both.ours.write_lock().force_unlock().await.unwrap());
    let waiter = both.they_wait(&both.theirs.write, 2).await;
    let end = Instant::now();
    assert!(both.ours.read_lock().force_unlock().await.unwrap());
    assert_soon(within(DEADLINE, waiter).await.unwrap(), end);
    let late = both.theirs.read.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    let first = both.they_wait(&both.theirs.read, 3).await;
    let second = both.they_wait(&both.theirs.read, 4).await;
    let end = Instant::now();
    assert!(both.ours.write_lock().force_unlock().await.unwrap());
    assert_soon(within(DEADLINE, first).await.unwrap(), end);
    assert_soon(within(DEADLINE, second).await.unwrap(), end);
    let still = both.theirs.read.unlock(3).await.unwrap();
    assert_eq!(still, RedissonUnlock::StillHeld);
    freed(&both.theirs.read, 4).await;
    both.end().await;
}

/// Redisson's writer re-enters, and its leases add up; we wait for their sum.
#[tokio::test]
async fn its_re_entries_keep_us_waiting() {
    let both = Both::open("its-re-entry").await;
    for _ in 0..2 {
        assert!(both.theirs.write.try_lock(1, None).await.unwrap());
    }
    assert!(both.theirs.read.try_lock(1, None).await.unwrap());
    assert_eq!(both.ours.write_lock().hold_count().await.unwrap(), 2);
    assert_eq!(both.ours.read_lock().hold_count().await.unwrap(), 1);
    let waiter = both.we_wait(both.ours.read_lock()).await;
    let still = both.theirs.read.unlock(1).await.unwrap();
    assert_eq!(still, RedissonUnlock::StillHeld);
    let still = both.theirs.write.unlock(1).await.unwrap();
    assert_eq!(still, RedissonUnlock::StillHeld);
    assert!(!waiter.is_finished());
    freed(&both.theirs.write, 1).await;
    let (guard, _) = within(DEADLINE, waiter).await.unwrap();
    guard.unlock().await.unwrap();
    both.end().await;
}

#[tokio::test]
async fn leases_run_out_on_both_sides() {
    let both = Both::open("runs-out").await;
    let lease = Duration::from_millis(300);
    let start = Instant::now();
    assert!(both.theirs.write.try_lock(1, Some(lease)).await.unwrap());
    let guard = within(DEADLINE, both.ours.read()).await.unwrap();
    let after = start.elapsed();
    assert!(after >= lease && after < lease + LATE, "{after:?}");
    let late = both.theirs.write.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    guard.unlock().await.unwrap();
    both.subscribed(0).await;

    for writes in [true, false] {
        let options = LockOptions::new().lease(lease).renew(false);
        let start = Instant::now();
        let is_valid: Box<dyn Fn() -> bool> = if writes {
            let guard = both.ours.write_with(options).await.unwrap();
            Box::new(move || guard.is_valid())
        } else {
            let guard = both.ours.read_with(options).await.unwrap();
            Box::new(move || guard.is_valid())
        };
        let theirs = both.theirs.write.lock_for(1, None, None);
        assert!(within(DEADLINE, theirs).await.unwrap());
        let after = start.elapsed();
        assert!(after >= lease && after < lease + LATE, "{after:?}");
        assert!(!is_valid(), "never both");
        drop(is_valid);
        eventually(DEADLINE, async || both.client.stats().releases == 0).await;
        assert!(both.theirs.write.is_locked().await.unwrap());
        freed(&both.theirs.write, 1).await;
        both.subscribed(0).await;
    }
    both.end().await;
}

/// Type, fields, values and TTLs of all keys, with a uniform owner id.
async fn shape(both: &Both, owner: &str) -> BTreeMap<String, (String, String, Duration)> {
    let mut shapes = BTreeMap::new();
    let keys: Vec<String> = both.redis(&["KEYS", &format!("*{}*", both.name)]).await;
    for key in keys {
        let kind: String = both.redis(&["TYPE", &key]).await;
        let value = match &*kind {
            "hash" => {
                let fields: BTreeMap<String, String> = both.redis(&["HGETALL", &key]).await;
                format!("{fields:?}")
            }
            _ => both.redis(&["GET", &key]).await,
        };
        // To the second.
        let ttl = both.ttl_of(&key).await + Duration::from_millis(500);
        let ttl = Duration::from_secs(ttl.as_secs());
        let same = |text: &str| text.replace(owner, "OWNER");
        shapes.insert(same(&key), (kind, same(&value), ttl));
    }
    shapes
}

#[tokio::test]
async fn redis_has_the_same_data_as_with_redisson() {
    let both = Both::open("shape").await;
    let owner = both.theirs.read.field(45);
    assert!(both.theirs.read.try_lock(45, None).await.unwrap());
    assert!(both.theirs.read.try_lock(45, None).await.unwrap());
    let theirs = shape(&both, &owner).await;
    both.theirs.read.unlock(45).await.unwrap();
    both.theirs.read.unlock(45).await.unwrap();
    let guard = both.ours.read().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    assert_eq!(shape(&both, guard.hold_id().as_str()).await, theirs);
    assert_eq!(theirs.len(), 3, "{theirs:?}");
    drop((guard, inner));
    eventually(DEADLINE, async || both.client.stats().releases == 0).await;

    assert!(both.theirs.write.try_lock(45, None).await.unwrap());
    assert!(both.theirs.read.try_lock(45, None).await.unwrap());
    let theirs = shape(&both, &owner).await;
    both.theirs.read.unlock(45).await.unwrap();
    both.theirs.write.unlock(45).await.unwrap();
    let writing = both.ours.write().await.unwrap();
    let reading = writing.run(both.ours.read()).await.unwrap().unwrap();
    assert_eq!(shape(&both, writing.hold_id().as_str()).await, theirs);
    assert_eq!(theirs.len(), 2, "{theirs:?}");
    // Redisson's questions.
    assert!(both.theirs.read.is_locked().await.unwrap());
    assert!(both.theirs.write.is_locked().await.unwrap());
    assert_eq!(both.theirs.read.hold_count(45).await.unwrap(), 0);
    let told = both.theirs.write.attempt(45, None).await.unwrap().unwrap();
    assert!(told > 28_000, "{told}");
    drop((writing, reading));
    both.end().await;
}

/// Each of our calls publishes the message that Redisson's waiters expect.
#[tokio::test]
async fn what_we_publish() {
    let both = Both::open("publish").await;
    let mut listener = Listener::on(&both.name).await;
    let mut since = async || {
        let all = listener.all().await.into_iter();
        let texts = all.map(|(channel, text)| {
            assert_eq!(channel, both.theirs.read.channel());
            text
        });
        texts.collect::<Vec<_>>()
    };
    let first = both.ours.read().await.unwrap();
    let second = both.ours.read().await.unwrap();
    first.reenter().await.unwrap().unlock().await.unwrap();
    first.unlock().await.unwrap();
    assert!(since().await.is_empty());
    second.unlock().await.unwrap();
    assert_eq!(since().await, ["0"]);

    let writing = both.ours.write().await.unwrap();
    let reading = writing.run(both.ours.read()).await.unwrap().unwrap();
    writing.reenter().await.unwrap().unlock().await.unwrap();
    reading.unlock().await.unwrap();
    assert!(since().await.is_empty());
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(since().await, ["1"]);
    let writing = reading.try_upgrade().await.unwrap();
    assert!(since().await.is_empty());
    writing.unlock().await.unwrap();
    assert_eq!(since().await, ["1"]);
    both.end().await;
}

/// Our preference does not bind Redisson's waiting writers, and does not change its view of the lock.
#[tokio::test]
async fn its_readers_do_not_look_at_our_preference() {
    let both = Both::open("preference").await;
    let guard = both.ours.read().await.unwrap();
    let preferred = both.ours.clone().prefer_writers(true);
    let waiter = both.we_wait(preferred.write_lock()).await;
    eventually(DEADLINE, async || {
        both.ours.try_read().await.unwrap().is_none()
    })
    .await;
    assert!(both.theirs.read.try_lock(1, None).await.unwrap());
    guard.unlock().await.unwrap();
    assert!(!waiter.is_finished());
    let end = Instant::now();
    freed(&both.theirs.read, 1).await;
    let (writing, woke) = within(DEADLINE, waiter).await.unwrap();
    assert_soon(woke, end);
    writing.unlock().await.unwrap();
    both.end().await;
}
