//! RLock beside Redisson's.

use std::time::{Duration, Instant};

use redlock_rt::{Client, ClientBuilder, LockOptions, LostReason, RLock, RLockGuard, Unlocked};
use tests::{
    DEADLINE, RedissonClient, RedissonRLock, RedissonUnlock, eventually, shared_server, unique,
    within,
};
use tokio::task::{JoinHandle, JoinSet};

use crate::{LATE, LEASE, Listener, Room};

/// How soon a waiter usually gets a lock of the other side; its lease would end after 30 s.
const WAKES: Duration = Duration::from_secs(3);
const ROUNDS: usize = 7;

type Both = crate::Both<RLock, RedissonRLock>;

impl Both {
    async fn open(what: &str) -> Self {
        let name = unique(what);
        Self::named(&name, &name, &name, |builder| builder).await
    }

    /// `ours` and `theirs`: the name of the lock on each side.
    async fn named(
        prefix: &str,
        ours: &str,
        theirs: &str,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let java = RedissonClient::connect(&shared_server().url())
            .await
            .unwrap();
        let (rust, java_lock) = (
            |client: &Client, name: &str| client.rlock(name),
            |java: &RedissonClient, name: &str| java.rlock(name),
        );
        Self::with(prefix, [ours, theirs], options, java, rust, java_lock).await
    }

    /// Waits until this many connections are subscribed to the lock's channel.
    async fn subscribed(&self, count: usize) {
        let channel = self.theirs.channel();
        self.subscribed_to(&channel, count).await;
    }

    /// A waiter of ours that sleeps.
    async fn we_wait(&self) -> JoinHandle<(RLockGuard, Instant)> {
        let lock = self.ours.clone();
        let waiter = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
        self.subscribed(1).await;
        waiter
    }

    /// A waiter of theirs that sleeps.
    async fn they_wait(&self, thread: u64) -> JoinHandle<Instant> {
        let lock = self.theirs.clone();
        let waiter = tokio::spawn(async move {
            assert!(lock.lock(thread, None).await.unwrap());
            Instant::now()
        });
        self.subscribed(1).await;
        waiter
    }
}

/// The median of several hand-overs, since a thread may once have to wait for a processor.
async fn assert_wakes_soon(mut hand_over: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        took.push(hand_over().await);
    }
    took.sort();
    assert!(took[ROUNDS / 2] < WAKES, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_holds_and_our_waiter_wakes() {
    let both = Both::open("theirs").await;
    assert_wakes_soon(async || {
        assert!(both.theirs.try_lock(1, None).await.unwrap());
        assert!(both.ours.try_lock().await.unwrap().is_none());
        assert_eq!(
            both.ours.holder().await.unwrap().unwrap().as_str(),
            both.theirs.owner(1)
        );
        let waiter = both.we_wait().await;
        assert!(!waiter.is_finished());
        let freed = Instant::now();
        assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
        let (guard, woke) = within(DEADLINE, waiter).await.unwrap();
        assert!(!both.theirs.try_lock(1, None).await.unwrap());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        both.subscribed(0).await;
        woke.saturating_duration_since(freed)
    })
    .await;
    both.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hold_and_it_waits_and_wakes() {
    let both = Both::open("ours").await;
    // Unlocked and dropped in turn.
    let mut round = 0;
    assert_wakes_soon(async || {
        let guard = both.ours.lock().await.unwrap();
        let waiter = both.they_wait(7).await;
        assert!(!waiter.is_finished());
        let freed = Instant::now();
        round += 1;
        if round % 2 == 0 {
            drop(guard);
        } else {
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        }
        let woke = within(DEADLINE, waiter).await.unwrap();
        assert!(both.theirs.is_held_by(7).await.unwrap());
        assert!(both.ours.try_lock().await.unwrap().is_none());
        assert_eq!(both.theirs.unlock(7).await.unwrap(), RedissonUnlock::Freed);
        woke.saturating_duration_since(freed)
    })
    .await;
    both.end().await;
}

#[tokio::test]
async fn its_re_entries_keep_us_waiting() {
    let both = Both::open("its-re-entry").await;
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    assert_eq!(both.ours.hold_count().await.unwrap(), 2);
    let waiter = both.we_wait().await;
    assert_eq!(
        both.theirs.unlock(1).await.unwrap(),
        RedissonUnlock::StillHeld
    );
    assert_eq!(both.ours.hold_count().await.unwrap(), 1);
    assert!(both.ours.try_lock().await.unwrap().is_none());
    assert!(!waiter.is_finished());
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    let (guard, _) = within(DEADLINE, waiter).await.unwrap();
    guard.unlock().await.unwrap();
    both.end().await;
}

#[tokio::test]
async fn our_re_entries_keep_it_waiting() {
    let both = Both::open("our-re-entry").await;
    let outer = both.ours.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let number = outer.hold_id().as_str().rsplit_once(':').unwrap().1;
    let fields: Vec<(String, String)> = both.redis(&["HGETALL", &both.name]).await;
    let owner = format!("{}:{number}", both.client.uuid());
    assert_eq!(fields, [(owner, "2".to_owned())]);

    let waiter = both.they_wait(1).await;
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(!both.theirs.try_lock(2, None).await.unwrap());
    assert!(!waiter.is_finished());
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    within(DEADLINE, waiter).await.unwrap();
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    both.end().await;
}

#[tokio::test]
async fn its_force_unlock_frees_ours() {
    let both = Both::open("its-force").await;
    let options = LockOptions::new().renew(Duration::from_millis(50));
    let guard = both.ours.lock_with(options).await.unwrap();
    let waiter = both.we_wait().await;
    assert!(both.theirs.force_unlock().await.unwrap());
    let (next, _) = within(DEADLINE, waiter).await.unwrap();
    let reason = within(DEADLINE, guard.lost()).await;
    assert!(
        matches!(reason, LostReason::Deleted | LostReason::Taken),
        "{reason}"
    );
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(next.is_valid());
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    assert!(!both.theirs.force_unlock().await.unwrap());
    both.end().await;
}

/// Its holder sees what its own `forceUnlock` would show it.
#[tokio::test]
async fn we_steal_its_lock() {
    let both = Both::open("steal").await;
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    let waiter = both.they_wait(2).await;
    let guard = both.ours.steal("stuck").await.unwrap();
    assert!(!both.theirs.is_held_by(1).await.unwrap());
    assert_eq!(
        both.theirs.unlock(1).await.unwrap(),
        RedissonUnlock::NotOwner
    );
    assert!(guard.is_valid() && !waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    within(DEADLINE, waiter).await.unwrap();
    assert_eq!(both.theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
    both.world.forget_thefts().await;
    both.end().await;
}

/// Its holder came when the lease of our ticket was over.
#[tokio::test]
async fn we_adopt_nothing_that_it_has() {
    let both = Both::open("ticket").await;
    let options = LockOptions::new().lease(LEASE);
    let guard = both.ours.lock_with(options).await.unwrap();
    let ticket = guard.into_ticket().unwrap();
    assert!(within(DEADLINE, both.theirs.lock(1, None)).await.unwrap());
    let client = both.world.client();
    let adopted = client.adopt::<redlock_rt::Reentrant>(&ticket).await;
    assert!(adopted.unwrap_err().is_not_owner());
    assert!(both.theirs.is_held_by(1).await.unwrap());
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    both.end().await;
}

#[tokio::test]
async fn our_force_unlock_frees_its() {
    let both = Both::open("our-force").await;
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    let waiter = both.they_wait(2).await;
    assert!(both.ours.force_unlock().await.unwrap());
    within(DEADLINE, waiter).await.unwrap();
    assert_eq!(
        both.theirs.unlock(1).await.unwrap(),
        RedissonUnlock::NotOwner
    );
    assert!(both.theirs.is_held_by(2).await.unwrap());
    assert_eq!(both.theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
    assert!(!both.ours.force_unlock().await.unwrap());
    both.end().await;
}

#[tokio::test]
async fn its_lease_runs_out_and_we_have_it() {
    let both = Both::open("its-lease").await;
    let start = Instant::now();
    assert!(both.theirs.try_lock(1, Some(LEASE)).await.unwrap());
    let sent = start.elapsed();
    let guard = within(DEADLINE, both.ours.lock()).await.unwrap();
    let after = start.elapsed();
    assert!(after >= LEASE && after < LEASE + sent + LATE, "{after:?}");
    // Redisson's late unlock is refused, and our lock stays.
    assert_eq!(
        both.theirs.unlock(1).await.unwrap(),
        RedissonUnlock::NotOwner
    );
    assert!(!both.theirs.renew(&[1]).await.unwrap());
    assert_eq!(
        both.ours.holder().await.unwrap().as_ref(),
        Some(guard.hold_id())
    );
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    both.end().await;
}

#[tokio::test]
async fn our_lease_runs_out_and_it_has_it() {
    let both = Both::open("our-lease").await;
    let start = Instant::now();
    let options = LockOptions::new().lease(LEASE).renew(false);
    let guard = both.ours.lock_with(options).await.unwrap();
    let sent = start.elapsed();
    assert!(within(DEADLINE, both.theirs.lock(1, None)).await.unwrap());
    let after = start.elapsed();
    assert!(after >= LEASE && after < LEASE + sent + LATE, "{after:?}");
    assert!(!guard.is_valid(), "never both");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(both.theirs.is_held_by(1).await.unwrap());
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    both.end().await;
}

/// Redisson waits for our renewed hold beyond the TTL that it knows.
#[tokio::test]
async fn our_renewal_keeps_it_waiting() {
    let both = Both::open("renewal").await;
    let options = LockOptions::new().lease(2 * LEASE);
    let guard = both.ours.lock_with(options).await.unwrap();
    let waiter = both.they_wait(1).await;
    tokio::time::sleep(3 * LEASE).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    within(DEADLINE, waiter).await.unwrap();
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    both.end().await;
}

#[tokio::test]
async fn redis_has_the_same_data_as_with_redisson() {
    let both = Both::open("shape").await;
    let pattern = format!("*{}*", both.name);
    let shape = async |ttl: u64| {
        let keys: Vec<String> = both.redis(&["KEYS", &pattern]).await;
        assert_eq!(keys, [&*both.name], "nothing beside the lock");
        let kind: String = both.redis(&["TYPE", &both.name]).await;
        let pttl: u64 = both.redis(&["PTTL", &both.name]).await;
        assert!(pttl <= ttl && pttl + 2000 > ttl, "{pttl}");
        let fields: Vec<(String, String)> = both.redis(&["HGETALL", &both.name]).await;
        let [(field, count)] = &fields[..] else {
            panic!("{fields:?}");
        };
        let (uuid, number) = field.split_once(':').unwrap();
        let encoding: String = both.redis(&["OBJECT", "ENCODING", &both.name]).await;
        let number: u64 = number.parse().unwrap();
        assert!(i64::try_from(number).is_ok(), "no thread id of Java");
        (kind, uuid.to_owned(), count.clone(), encoding)
    };
    assert!(both.theirs.try_lock(45, None).await.unwrap());
    let theirs = shape(30_000).await;
    both.theirs.unlock(45).await.unwrap();
    let guard = both.ours.lock().await.unwrap();
    let ours = shape(30_000).await;
    assert_eq!(
        (&*theirs.1, &*ours.1),
        (both.java.uuid(), both.client.uuid())
    );
    assert_eq!((ours.0, ours.2, ours.3), (theirs.0, theirs.2, theirs.3));
    // Redisson's questions about our lock.
    assert!(both.theirs.is_locked().await.unwrap());
    assert!(!both.theirs.is_held_by(45).await.unwrap());
    assert!(both.theirs.remaining_ttl().await.unwrap() > 28_000);
    assert!(both.theirs.attempt(45, None).await.unwrap().unwrap() > 28_000);
    guard.unlock().await.unwrap();
    let options = LockOptions::new().lease(Duration::from_secs(7));
    let guard = both.ours.lock_with(options).await.unwrap();
    shape(7_000).await;
    guard.unlock().await.unwrap();
    both.end().await;
}

#[tokio::test]
async fn a_release_publishes_one_zero_and_nothing_else_does() {
    let both = Both::open("publish").await;
    let mut listener = Listener::on(&both.name).await;
    let one_zero = [(
        format!("redisson_lock__channel:{{{}}}", both.name),
        "0".to_owned(),
    )];
    assert_eq!(one_zero[0].0, both.theirs.channel());

    // Redisson does so too.
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    both.theirs.unlock(1).await.unwrap();
    assert_eq!(listener.all().await, one_zero);

    let guard = both.ours.lock().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    guard.extend(Duration::from_secs(40)).await.unwrap();
    assert!(both.ours.try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    assert_eq!(listener.all().await, [], "it is still held");
    guard.unlock().await.unwrap();
    assert_eq!(listener.all().await, one_zero);

    let guard = both.ours.lock().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    drop(guard);
    drop(inner);
    eventually(DEADLINE, async || both.client.stats().names == 0).await;
    assert_eq!(listener.all().await, one_zero);

    // A lost hold is announced although no waiter can use the wake-up: the server is told before it
    // says that the hold is lost.
    let guard = both.ours.lock().await.unwrap();
    assert!(both.theirs.force_unlock().await.unwrap());
    assert_eq!(listener.all().await, one_zero);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(listener.all().await, one_zero);

    let guard = both.ours.lock().await.unwrap();
    assert!(both.ours.force_unlock().await.unwrap());
    assert_eq!(listener.all().await, one_zero);
    assert!(!both.ours.force_unlock().await.unwrap());
    drop(guard);
    eventually(DEADLINE, async || both.client.stats().names == 0).await;
    assert_eq!(listener.all().await, one_zero);
    both.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_of_each_are_never_two_at_once() {
    const EACH: u64 = 8;
    const TURNS: usize = 25;
    let both = Both::open("mixed").await;
    let name = &both.name;
    // Several clients on each side, since threads of one client share a subscription.
    let url = shared_server().url();
    let our_other = Client::connect(&url).await.unwrap();
    let their_other = RedissonClient::connect(&url).await.unwrap();
    let room = Room::at(name).await;
    let mut tasks = JoinSet::new();
    for index in 0..EACH {
        let client = [&both.client, &our_other][index as usize % 2];
        let (lock, mut inside) = (client.rlock(name), room.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                inside.enter_and_leave().await;
                assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            }
        });
        let client = [&both.java, &their_other][index as usize % 2];
        let (lock, mut inside) = (client.rlock(name.as_str()), room.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                assert!(lock.lock(index, None).await.unwrap());
                inside.enter_and_leave().await;
                assert_eq!(lock.unlock(index).await.unwrap(), RedissonUnlock::Freed);
            }
        });
    }
    within(3 * DEADLINE, tasks.join_all()).await;
    room.close().await;
    assert!(their_other.channels().is_empty());
    both.end().await;
}

/// Each side waits for the other under both forms of the name.
async fn assert_shared(both: &Both) {
    assert!(both.theirs.try_lock(1, None).await.unwrap());
    assert!(both.ours.try_lock().await.unwrap().is_none());
    let waiter = both.we_wait().await;
    assert_eq!(both.theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    let (guard, _) = within(DEADLINE, waiter).await.unwrap();
    assert_eq!(guard.name(), both.name);
    both.subscribed(0).await;
    let waiter = both.they_wait(2).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    within(DEADLINE, waiter).await.unwrap();
    assert_eq!(both.theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
}

#[tokio::test]
async fn a_namespace_is_a_name_mapper() {
    let name = unique("mapped");
    let mapped = format!("svc:{name}");
    let both = Both::named(&name, &name, &mapped, |builder| builder.namespace("svc")).await;
    assert_shared(&both).await;
    assert_eq!(
        both.theirs.channel(),
        format!("redisson_lock__channel:{{svc:{name}}}")
    );
    both.end().await;
}

#[tokio::test]
async fn names_with_braces_are_shared() {
    for (form, channel) in [
        ("{N}", "redisson_lock__channel:{N}"),
        ("{N}:b", "redisson_lock__channel:{N}:b"),
        ("a{N}c", "redisson_lock__channel:a{N}c"),
        ("{}N", "redisson_lock__channel:{}N"),
        ("{N", "redisson_lock__channel:{N"),
        ("N}", "redisson_lock__channel:{N}}"),
    ] {
        let prefix = unique("braces");
        let name = form.replace('N', &prefix);
        let both = Both::named(&prefix, &name, &name, |builder| builder).await;
        assert_eq!(both.theirs.channel(), channel.replace('N', &prefix));
        assert_shared(&both).await;
        both.end().await;
    }
}
