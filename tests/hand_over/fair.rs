//! The release of a fair lock gives the lock to the next waiter of the same client, in one call.

use std::{sync::Arc, task::Poll, time::Duration};

use redlock_rt::{
    ClientBuilder, Fair, FairLockGuard, LockOptions, LostReason, Owner, Shutdown, Unlocked,
};
use tests::{Which, assert_held};
use tokio::{
    sync::Mutex,
    task::{JoinSet, yield_now},
    time::sleep,
};
use tokio_test::{assert_pending, assert_ready};

use crate::stage::{self, MS, NAME, settle, waiter};

type Stage = stage::Stage<Fair>;

impl Stage {
    async fn open() -> Self {
        Self::open_with(|builder| builder).await
    }

    async fn open_with(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::connect(options, |client| client.fair_lock(NAME), 1).await
    }

    /// The scripts that were called since: releases, acquisitions.
    fn called(&self, before: usize) -> [usize; 2] {
        self.calls_of(before, ["fair_release", "fair_acquire"])
    }

    async fn is_free(&self) -> bool {
        !self.other.is_locked().await.unwrap() && self.other.queue_len().await.unwrap() == 0
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_take_turns_in_the_order_of_their_coming_with_one_call_each() {
    const TASKS: usize = 32;
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let before = stage.wires.count();
    for task in 0..TASKS {
        let (lock, order) = (stage.lock.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.hold_count(), 1);
            order.try_lock().unwrap().push(task);
            yield_now().await;
            match task % 2 {
                0 => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
                _ => drop(guard),
            }
        });
        settle().await;
    }
    assert_eq!(stage.called(before), [0, TASKS], "each has queued");
    let before = stage.wires.count();
    drop(guard);
    tasks.join_all().await;
    settle().await;
    let order = Arc::into_inner(order).unwrap().into_inner();
    assert_eq!(order, (0..TASKS).collect::<Vec<_>>());
    assert_eq!(stage.called(before), [TASKS + 1, 0]);
    assert!(stage.is_free().await);
    assert_eq!(stage.client.stats().releases, 0);
}

/// Each waiter has its own number, lease and owner, whatever those of the guard before.
#[tokio::test(start_paused = true)]
async fn whoever_is_given_the_lock_has_it_on_its_own_terms() {
    let stage = Stage::open().await;
    let owner = Owner::new();
    let lease = |ms| LockOptions::new().lease(MS * ms).renew(false);
    for options in [
        lease(150),
        lease(9_000),
        LockOptions::new().owner(&owner),
        LockOptions::new().wait(Duration::from_secs(3)),
    ] {
        let (guard, next) = stage.followed(stage.lock.lock_with(options.clone())).await;
        sleep(MS * 30).await;
        let before = stage.wires.count();
        let first = guard.hold_id().clone();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let next = next.await.unwrap();
        assert_eq!(stage.called(before), [1, 0], "{options:?}");
        assert_ne!(next.hold_id(), &first);
        let holder = stage.other.holder().await.unwrap().unwrap();
        assert_eq!(&holder, next.hold_id());
        let until = assert_held(&next.state());
        let left = until - tokio::time::Instant::now().into_std();
        let told = stage.other.remaining_ttl().await.unwrap().unwrap();
        assert!(
            told >= left && told < left * 51 / 50 + MS * 5,
            "{told:?} {left:?}"
        );
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_given_lock_ends_with_its_lease_and_is_lost_like_any_other() {
    let stage = Stage::open().await;
    let fixed = LockOptions::new().lease(MS * 100).renew(false);
    let (guard, next) = stage.followed(stage.lock.lock_with(fixed)).await;
    drop(guard);
    let next = next.await.unwrap();
    assert_eq!(next.lost().await, LostReason::Expired);
    // The guard ends a little earlier than the key.
    sleep(MS * 5).await;
    assert!(stage.is_free().await);

    let (guard, next) = stage.followed(stage.lock.lock()).await;
    drop(guard);
    let next = next.await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(next.is_valid(), "it is renewed");
    assert!(stage.other.force_unlock().await.unwrap());
    assert_eq!(next.lost().await, LostReason::Deleted);
}

/// The queue of all clients decides who is next.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_another_client_that_came_before_has_its_turn_before() {
    let stage = Stage::open().await;
    let (guard, second) = stage.followed(stage.other.lock()).await;
    let mut third = waiter(stage.lock.lock()).await;
    guard.unlock().await.unwrap();
    let guard = second.await.unwrap();
    assert_pending!(third.poll());
    guard.unlock().await.unwrap();
    third.await.unwrap().unlock().await.unwrap();
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn without_a_time_each_waiter_asks_by_itself() {
    let stage = Stage::open_with(|builder| builder.hand_over(None)).await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    let before = stage.wires.count();
    guard.unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(stage.called(before), [1, 1]);
    next.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_with_a_shortest_hold_is_not_given_before_its_end() {
    let stage = Stage::open().await;
    let least = LockOptions::new().min_hold(MS * 50);
    let guard = stage.lock.lock_with(least).await.unwrap();
    let taken = tokio::time::Instant::now();
    let next = waiter(stage.lock.lock()).await;
    assert!(matches!(
        guard.unlock().await.unwrap(),
        Unlocked::Kept { .. }
    ));
    let next = next.await.unwrap();
    assert!(taken.elapsed() >= MS * 50);
    next.unlock().await.unwrap();
}

/// Nobody is left to take what was given: the next one gets it, or nobody has it.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_while_it_is_given_the_lock_leaves_it_to_the_next() {
    let stage = Stage::open().await;
    let (guard, first) = stage.followed(stage.lock.lock()).await;
    let mut second = waiter(stage.lock.lock()).await;
    stage.wires.hang();
    drop(guard);
    settle().await;
    drop(first);
    settle().await;
    assert_pending!(second.poll());
    stage.wires.speak();
    let second = second.await.unwrap();
    assert!(second.is_valid());

    let third = waiter(stage.lock.lock()).await;
    stage.wires.hang();
    drop(second);
    settle().await;
    drop(third);
    stage.wires.speak();
    settle().await;
    assert!(stage.is_free().await);
    assert_eq!(stage.client.stats().releases, 0);
}

/// The wait is over when the answer comes.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_too_late_goes_to_the_next() {
    let stage = Stage::open().await;
    let brief = LockOptions::new().wait(MS * 50);
    let (guard, mut first) = stage.followed(stage.lock.lock_with(brief)).await;
    let second = waiter(stage.lock.lock()).await;
    stage.wires.hang();
    drop(guard);
    sleep(MS * 60).await;
    stage.wires.speak();
    settle().await;
    assert!(assert_ready!(first.poll()).unwrap_err().is_timed_out());
    drop(first);
    second.await.unwrap().unlock().await.unwrap();
    assert!(stage.is_free().await);
}

/// The connection breaks before the release arrives, or with its reply on the way.
#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_gives_the_lock_to_one_waiter() {
    let stage = Stage::open().await;
    for arrives in [false, true] {
        let (guard, next) = stage.followed(stage.lock.lock()).await;
        let mut later = waiter(stage.lock.lock()).await;
        match arrives {
            false => stage.wires.lose_next("CALL"),
            true => stage.wires.hang(),
        }
        let mut unlock = tokio_test::task::spawn(guard.unlock());
        assert_pending!(unlock.poll());
        settle().await;
        if arrives {
            assert!(stage.wires.cut(Which::Scripts) > 0);
            stage.wires.speak();
        }
        let before = stage.wires.count();
        assert_eq!(unlock.await.unwrap(), Unlocked::Released);
        let next = next.await.unwrap();
        assert_eq!(stage.called(before)[1], 0, "it did not ask");
        let holder = stage.other.holder().await.unwrap().unwrap();
        assert_eq!(&holder, next.hold_id());
        settle().await;
        assert_pending!(later.poll());
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        later.await.unwrap().unlock().await.unwrap();
        assert!(stage.is_free().await);
    }
}

/// The first try has given the lock, and the second one finds it there.
#[tokio::test(start_paused = true)]
async fn a_guard_outlived_its_key_when_the_reply_that_gave_it_was_lost() {
    let stage = Stage::open().await;
    let fixed = LockOptions::new().lease(MS * 300).renew(false);
    let (guard, next) = stage.followed(stage.lock.lock_with(fixed)).await;
    stage.wires.hang();
    let mut unlock = tokio_test::task::spawn(guard.unlock());
    assert_pending!(unlock.poll());
    sleep(MS * 100).await;
    assert!(stage.wires.cut(Which::Scripts) > 0);
    stage.wires.speak();
    assert_eq!(unlock.await.unwrap(), Unlocked::Released);
    let next = next.await.unwrap();
    let until = assert_held(&next.state());
    let left = until - tokio::time::Instant::now().into_std();
    let told = stage.other.remaining_ttl().await.unwrap().unwrap();
    assert!(left <= told, "{left:?}, and the key for {told:?}");
    next.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_cancelled_gives_the_lock_all_the_same() {
    let stage = Stage::open().await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    let before = stage.wires.count();
    stage.wires.hang();
    let mut unlock = tokio_test::task::spawn(guard.unlock());
    assert_pending!(unlock.poll());
    settle().await;
    drop(unlock);
    stage.wires.speak();
    let next = next.await.unwrap();
    assert_eq!(stage.called(before), [1, 0]);
    next.unlock().await.unwrap();
}

/// Nobody reads the reply that says who has the lock: the waiter learns it by a heartbeat.
#[tokio::test(start_paused = true)]
async fn a_waiter_did_not_learn_that_it_has_the_lock_while_nobody_polled_the_unlock() {
    let stage = Stage::open().await;
    let long = LockOptions::new().lease(Duration::from_secs(600));
    let (guard, next) = stage.followed(stage.lock.lock_with(long)).await;
    let mut unlock = tokio_test::task::spawn(guard.unlock());
    assert_pending!(unlock.poll());
    let started = tokio::time::Instant::now();
    let next = next.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(
        stage.other.holder().await.unwrap().as_ref(),
        Some(next.hold_id())
    );
    next.unlock().await.unwrap();
    drop(unlock);
    settle().await;
    assert!(stage.is_free().await);
}

/// The reply is lost, and the server away until the lease of the giver is over.
#[tokio::test(start_paused = true)]
async fn a_waiter_learns_that_it_has_the_lock_after_an_outage() {
    let stage = Stage::open().await;
    let fixed = LockOptions::new().lease(MS * 300).renew(false);
    let (guard, next) = stage.followed(stage.lock.lock_with(fixed)).await;
    let long = LockOptions::new().lease(Duration::from_secs(600));
    let last = waiter(stage.lock.lock_with(long)).await;
    // Nobody has told the last one that it is next.
    drop(guard);
    let guard = next.await.unwrap();
    let next = last;
    stage.wires.hang();
    drop(guard);
    settle().await;
    stage.wires.refuse();
    assert!(stage.wires.cut(Which::All) > 0);
    stage.wires.speak();
    sleep(Duration::from_secs(10)).await;
    stage.wires.accept();
    let started = tokio::time::Instant::now();
    let next = next.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(
        stage.other.holder().await.unwrap().as_ref(),
        Some(next.hold_id())
    );
    next.unlock().await.unwrap();
    settle().await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_releases_what_was_given_meanwhile() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    stage.wires.hang();
    drop(guard);
    let mut end = tokio_test::task::spawn(stage.client.shutdown(Shutdown::ReleaseAll));
    assert_pending!(end.poll());
    settle().await;
    assert!(assert_ready!(next.poll()).unwrap_err().is_shut_down());
    drop(next);
    stage.wires.speak();
    end.await.unwrap();
    assert!(stage.is_free().await);
}

/// This client frees the lock by force after it was given to a waiter that has not taken it yet.
#[tokio::test(start_paused = true)]
async fn what_is_freed_by_force_before_it_is_taken_is_asked_for_again() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    let unlocked = tokio_test::task::spawn(guard.unlock()).await.unwrap();
    assert_eq!(unlocked, Unlocked::Released);
    assert!(stage.lock.force_unlock().await.unwrap());
    let taken: Result<FairLockGuard, _> = match next.poll() {
        Poll::Ready(taken) => taken,
        Poll::Pending => next.await,
    };
    let taken = taken.unwrap();
    let holder = stage.other.holder().await.unwrap().unwrap();
    assert_eq!(&holder, taken.hold_id());
    assert_eq!(taken.unlock().await.unwrap(), Unlocked::Released);
}

/// Another client holds the lock since the lease of the guard has ended.
#[tokio::test(start_paused = true)]
async fn a_guard_that_has_expired_gives_nothing() {
    let stage = Stage::open().await;
    let fixed = LockOptions::new().lease(MS * 60).renew(false);
    let guard = stage.lock.lock_with(fixed).await.unwrap();
    let others = waiter(stage.other.lock()).await;
    let mut next = waiter(stage.lock.lock()).await;
    sleep(MS * 61).await;
    let others = others.await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    settle().await;
    assert_pending!(next.poll());
    assert!(others.is_valid());
    others.unlock().await.unwrap();
    next.await.unwrap().unlock().await.unwrap();
    assert!(stage.is_free().await);
}
