//! FencedLock beside Redisson's: the tokens of both grow.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{FencedLock, FencedLockGuard, LockOptions, Unlocked};
use tests::{DEADLINE, RedissonFencedLock, RedissonUnlock, lock_and_unlock, unique, within};
use tokio::task::{JoinHandle, JoinSet};

use crate::LEASE;

type Both = crate::Both<FencedLock, RedissonFencedLock>;

impl Both {
    async fn open(what: &str) -> Self {
        let name = unique(what);
        Self::named(&name, &name).await
    }

    async fn named(prefix: &str, name: &str) -> Self {
        Self::shared(
            prefix,
            name,
            |client, name| client.fenced_lock(name),
            |java, name| java.fenced_lock(name),
        )
        .await
    }

    /// Waits until this many connections are subscribed to the lock's channel.
    async fn subscribed(&self, count: usize) {
        let channel = self.theirs.as_rlock().channel();
        self.subscribed_to(&channel, count).await;
    }

    /// A waiter of ours that sleeps.
    async fn we_wait(&self) -> JoinHandle<FencedLockGuard> {
        let lock = self.ours.clone();
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        self.subscribed(1).await;
        waiter
    }

    /// A waiter of theirs, asleep; the token that it gets.
    async fn they_wait(&self, thread: u64) -> JoinHandle<u64> {
        let lock = self.theirs.clone();
        let waiter = tokio::spawn(async move {
            let token = lock.lock_and_get_token(thread, None).await.unwrap();
            u64::try_from(token.unwrap()).unwrap()
        });
        self.subscribed(1).await;
        waiter
    }

    /// Redisson acquires the lock, which must be free.
    async fn they_take(&self, thread: u64) -> u64 {
        let token = self.theirs.attempt(thread, None).await.unwrap();
        u64::try_from(token.unwrap()).unwrap()
    }

    async fn they_free(&self, thread: u64) {
        let freed = self.theirs.unlock(thread).await.unwrap();
        assert_eq!(freed, RedissonUnlock::Freed);
    }

    /// The counter of tokens stays.
    async fn end_without_counter(self) {
        let _: bool = self.redis(&["DEL", &self.theirs.counter()]).await;
        self.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_holds_and_our_waiter_wakes() {
    let both = Both::open("theirs").await;
    let mut last = 0;
    for _ in 0..3 {
        let its = both.they_take(1).await;
        assert!(its > last);
        assert!(both.ours.try_lock().await.unwrap().is_none());
        assert_eq!(both.ours.token().await.unwrap(), Some(its));
        let waiter = both.we_wait().await;
        assert!(!waiter.is_finished());
        both.they_free(1).await;
        let guard = within(DEADLINE, waiter).await.unwrap();
        assert!(guard.token() > its);
        last = guard.token();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        both.subscribed(0).await;
    }
    both.end_without_counter().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hold_and_it_waits_and_wakes() {
    let both = Both::open("ours").await;
    for _ in 0..3 {
        let guard = both.ours.lock().await.unwrap();
        let ours = guard.token();
        assert_eq!(both.theirs.token().await.unwrap(), i64::try_from(ours).ok());
        let refused = both.theirs.attempt(7, None).await.unwrap();
        assert!(refused.is_err_and(|ttl| ttl > 28_000));
        let waiter = both.they_wait(7).await;
        assert!(!waiter.is_finished());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let its = within(DEADLINE, waiter).await.unwrap();
        assert_eq!(its, ours + 1, "its INCR goes on from ours");
        both.they_free(7).await;
    }
    both.end_without_counter().await;
}

#[tokio::test]
async fn its_re_entries_count_on_and_ours_do_not() {
    let both = Both::open("re-entry").await;
    let first = both.they_take(1).await;
    assert_eq!(both.they_take(1).await, first + 1, "a re-entry of its own");
    let refused = both.theirs.unlock(1).await.unwrap();
    assert_eq!(refused, RedissonUnlock::StillHeld);
    both.they_free(1).await;

    let outer = both.ours.lock().await.unwrap();
    assert!(outer.token() > first + 1);
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    let stored = both.theirs.token().await.unwrap();
    assert_eq!(stored, i64::try_from(outer.token()).ok());
    let last = outer.token();
    inner.unlock().await.unwrap();
    assert!(both.theirs.attempt(1, None).await.unwrap().is_err());
    outer.unlock().await.unwrap();
    assert_eq!(both.they_take(1).await, last + 1);
    both.they_free(1).await;
    both.end_without_counter().await;
}

/// Redisson's counter starts at 1. Our next token follows the clock, and Redisson counts on from it.
#[tokio::test]
async fn a_counter_that_it_began_goes_on_with_ours() {
    let both = Both::open("began").await;
    assert_eq!(both.they_take(1).await, 1);
    both.they_free(1).await;
    let guard = both.ours.lock().await.unwrap();
    assert!(guard.token() > 1 << 50);
    let last = guard.token();
    guard.unlock().await.unwrap();
    assert_eq!(both.they_take(1).await, last + 1);
    both.they_free(1).await;
    // Our TTL stays, since INCR keeps it.
    let brief = both.ours.clone().token_ttl(Duration::from_secs(60));
    lock_and_unlock(&brief).await;
    let token = both.they_take(1).await;
    assert!(token > last + 1);
    let ttl: i64 = both.redis(&["PTTL", &both.theirs.counter()]).await;
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    both.they_free(1).await;
    both.end_without_counter().await;
}

#[tokio::test]
async fn redis_has_the_same_data_as_with_redisson() {
    let both = Both::open("shape").await;
    let pattern = format!("*{}*", both.name);
    let shape = async || {
        let mut keys: Vec<String> = both.redis(&["KEYS", &pattern]).await;
        keys.sort();
        let mut shape = Vec::new();
        for key in keys {
            let kind: String = both.redis(&["TYPE", &key]).await;
            let ttl: i64 = both.redis(&["PTTL", &key]).await;
            shape.push((key, kind, ttl.clamp(-2, 0)));
        }
        shape
    };
    both.they_take(45).await;
    let theirs = shape().await;
    assert_eq!(theirs.len(), 2, "{theirs:?}");
    both.they_free(45).await;
    let theirs_after = shape().await;
    assert_eq!(theirs_after.len(), 1);
    let _: bool = both.redis(&["DEL", &both.theirs.counter()]).await;

    let guard = both.ours.lock().await.unwrap();
    assert_eq!(shape().await, theirs);
    let fields: Vec<(String, String)> = both.redis(&["HGETALL", &both.name]).await;
    assert_eq!(fields, [(guard.hold_id().to_string(), "1".to_owned())]);
    guard.unlock().await.unwrap();
    assert_eq!(shape().await, theirs_after);
    both.end_without_counter().await;
}

#[tokio::test]
async fn a_forced_release_wakes_the_other_side() {
    let both = Both::open("force").await;
    let guard = both.ours.lock().await.unwrap();
    let waiter = both.we_wait().await;
    assert!(both.theirs.as_rlock().force_unlock().await.unwrap());
    let next = within(DEADLINE, waiter).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    both.subscribed(0).await;
    let waiter = both.they_wait(2).await;
    let last = next.token();
    assert!(both.ours.force_unlock().await.unwrap());
    assert!(within(DEADLINE, waiter).await.unwrap() > last);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    both.they_free(2).await;
    both.end_without_counter().await;
}

#[tokio::test]
async fn holder_whose_lease_ran_out_has_the_older_token() {
    let both = Both::open("lease").await;
    let its = both.theirs.attempt(1, Some(LEASE)).await.unwrap().unwrap();
    let waiter = both.we_wait().await;
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert!(guard.token() > u64::try_from(its).unwrap());
    let late = both.theirs.unlock(1).await.unwrap();
    assert_eq!(late, RedissonUnlock::NotOwner);
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    both.subscribed(0).await;

    let options = LockOptions::new().lease(LEASE).renew(false);
    let guard = both.ours.lock_with(options).await.unwrap();
    let waiter = both.they_wait(1).await;
    let its = within(DEADLINE, waiter).await.unwrap();
    assert!(!guard.is_valid(), "never both");
    assert!(its > guard.token());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    both.they_free(1).await;
    both.end_without_counter().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_four_of_each_are_in_the_order_of_their_holds() {
    const TURNS: usize = 20;
    let both = Both::open("mixed").await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for thread in 0..4 {
        let (lock, held) = (both.ours.clone(), Arc::clone(&tokens));
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                held.lock().unwrap().push(guard.token());
                assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            }
        });
        let (lock, held) = (both.theirs.clone(), Arc::clone(&tokens));
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let token = lock.lock_and_get_token(thread, None).await.unwrap();
                held.lock()
                    .unwrap()
                    .push(u64::try_from(token.unwrap()).unwrap());
                let freed = lock.unlock(thread).await.unwrap();
                assert_eq!(freed, RedissonUnlock::Freed);
            }
        });
    }
    within(3 * DEADLINE, tasks.join_all()).await;
    let tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 8 * TURNS);
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
    both.end_without_counter().await;
}

#[tokio::test]
async fn names_with_braces_have_one_counter() {
    for (form, counter) in [
        ("{N}:b", "redisson_lock_token:{N}:b"),
        ("a{N}c", "redisson_lock_token:a{N}c"),
        ("N}", "redisson_lock_token:{N}}"),
    ] {
        let prefix = unique("braces");
        let both = Both::named(&prefix, &form.replace('N', &prefix)).await;
        assert_eq!(both.theirs.counter(), counter.replace('N', &prefix));
        let its = both.they_take(1).await;
        assert_eq!(both.ours.token().await.unwrap(), Some(its));
        both.they_free(1).await;
        let guard = both.ours.lock().await.unwrap();
        assert_eq!(
            both.theirs.token().await.unwrap(),
            i64::try_from(guard.token()).ok()
        );
        guard.unlock().await.unwrap();
        both.end_without_counter().await;
    }
}
