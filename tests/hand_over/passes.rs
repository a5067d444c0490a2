//! A release that acquires for the next task of the same client, in one call: fenced locks, and locks
//! with a fixed lease.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redlock_rt::{
    ClientBuilder, Error, Fenced, FencedLock, FencedLockGuard, GuardState, LockOptions, LostReason,
    Owner, Shutdown, Unlocked,
};
use tests::Which;
use tokio::{
    sync::Mutex,
    task::{JoinSet, yield_now},
    time::sleep,
};
use tokio_test::{assert_pending, assert_ready, task::Spawn};

use crate::stage::{self, CHAIN, MS, NAME, parked, settle};

type Stage = stage::Stage<Fenced>;

impl Stage {
    async fn open() -> Self {
        Self::open_with(|builder| builder).await
    }

    async fn open_with(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let stage = Self::connect(options, |client| client.fenced_lock(NAME), 2).await;
        let (guard, next) = stage.followed(stage.lock.lock()).await;
        guard.unlock().await.unwrap();
        next.await.unwrap().unlock().await.unwrap();
        stage
    }

    /// Deletes the lock, and tells nobody.
    async fn delete(&self) {
        assert_eq!(self.command::<u8>(&["DEL", NAME]).await, 1);
    }

    /// The scripts that were called since: passes, releases, acquisitions.
    fn called(&self, before: usize) -> [usize; 3] {
        self.calls_of(before, ["fenced_pass", "rlock_release", "fenced_acquire"])
    }
}

#[tokio::test(start_paused = true)]
async fn each_turn_is_one_call_and_has_a_greater_token() {
    const TASKS: usize = 32;
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let seen = Arc::new(Mutex::new(vec![guard.token()]));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (lock, seen) = (stage.lock.clone(), Arc::clone(&seen));
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.hold_count(), 1);
            seen.try_lock().unwrap().push(guard.token());
            yield_now().await;
            match task % 2 {
                0 => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
                _ => drop(guard),
            }
        });
        settle().await;
    }
    let before = stage.wires.count();
    drop(guard);
    tasks.join_all().await;
    settle().await;
    assert_eq!(stage.called(before), [TASKS, 1, 0], "the last one releases");
    let tokens = Arc::into_inner(seen).unwrap().into_inner();
    assert_eq!(tokens.len(), TASKS + 1);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(stage.lock.token().await.unwrap(), tokens.last().copied());
    assert!(!stage.lock.is_locked().await.unwrap());
    assert_eq!(stage.client.stats().releases, 0);
}

/// A lock with a fixed lease is not renewed, so each turn needs a lease of its own.
#[tokio::test(start_paused = true)]
async fn a_fixed_lease_begins_anew_with_each_turn() {
    let stage = Stage::open().await;
    let (lock, options) = (
        stage.client.rlock(NAME),
        LockOptions::new().lease(MS * 100).renew(false),
    );
    let mut guard = lock.lock_with(options.clone()).await.unwrap();
    let mut ids = BTreeSet::from([guard.hold_id().to_string()]);
    for turn in 1..4 {
        let mut next = tokio_test::task::spawn(lock.lock_with(options.clone()));
        parked(&mut next).await;
        sleep(MS * 3).await;
        let before = stage.wires.count();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        guard = next.await.unwrap();
        let frames = stage.wires.frames(before);
        let sent = frames.iter().filter(|frame| frame.is_call()).count();
        // The server did not know the script.
        assert_eq!(sent, if turn == 1 { 2 } else { 1 }, "{frames:?}");
        assert!(ids.insert(guard.hold_id().to_string()), "a hold of its own");
        let GuardState::Held { until } = guard.state() else {
            panic!("{guard:?}");
        };
        let left = until - tokio::time::Instant::now().into_std();
        assert!(left > MS * 95, "{left:?}");
    }
    sleep(MS * 100).await;
    assert!(!guard.is_valid());
    assert!(!stage.other.is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_a_request_with_the_same_terms_is_passed_the_lock() {
    let stage = Stage::open().await;
    let lease = |seconds| LockOptions::new().lease(Duration::from_secs(seconds));
    let owner = Owner::new();
    let day = stage.lock.clone().token_ttl(Duration::from_secs(86_400));
    let others: [(&FencedLock, LockOptions); 4] = [
        (&stage.lock, lease(7)),
        (&stage.lock, LockOptions::new().renew(false)),
        (&stage.lock, LockOptions::new().owner(&owner)),
        (&day, LockOptions::new()),
    ];
    for (lock, options) in others {
        let (guard, next) = stage.followed(lock.lock_with(options.clone())).await;
        let before = stage.wires.count();
        guard.unlock().await.unwrap();
        next.await.unwrap().unlock().await.unwrap();
        assert_eq!(stage.called(before), [0, 2, 1], "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_passed_on_is_released() {
    let stage = Stage::open().await;
    let released = async |guard: FencedLockGuard, next: Spawn<_>, what: &str| {
        let before = stage.wires.count();
        let _ = guard.unlock().await.unwrap();
        let _: Result<FencedLockGuard, Error> = next.await;
        let [passes, ..] = stage.called(before);
        assert_eq!(passes, 0, "{what}");
    };
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    guard.reenter().await.unwrap().unlock().await.unwrap();
    released(guard, next, "a hold that was re-entered").await;

    let (guard, next) = stage.followed(stage.lock.lock()).await;
    sleep(CHAIN).await;
    released(guard, next, "a chain that is over").await;

    let (guard, next) = stage.followed(stage.lock.lock()).await;
    assert!(stage.wires.cut(Which::Scripts) > 0);
    settle().await;
    released(guard, next, "a hold in doubt").await;

    let least = LockOptions::new().min_hold(MS * 50);
    let guard = stage.lock.lock_with(least).await.unwrap();
    let mut next = tokio_test::task::spawn(stage.lock.lock());
    parked(&mut next).await;
    released(guard, next, "a shortest hold").await;
}

#[tokio::test(start_paused = true)]
async fn less_than_half_of_a_lease_is_not_passed_on() {
    let stage = Stage::open_with(|builder| builder.hand_over(MS * 300)).await;
    for (after, passes) in [(150, 1), (210, 0)] {
        let fixed = LockOptions::new().renew(false);
        let guard = stage.lock.lock_with(fixed.clone()).await.unwrap();
        let mut next = tokio_test::task::spawn(stage.lock.lock_with(fixed));
        parked(&mut next).await;
        sleep(MS * after).await;
        let before = stage.wires.count();
        guard.unlock().await.unwrap();
        next.await.unwrap().unlock().await.unwrap();
        assert_eq!(stage.called(before)[0], passes, "after {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_time_nothing_is_passed_on() {
    let stage = Stage::open_with(|builder| builder.hand_over(None)).await;
    for _ in 0..3 {
        let (guard, next) = stage.followed(stage.lock.lock()).await;
        let before = stage.wires.count();
        guard.unlock().await.unwrap();
        let next = next.await.unwrap();
        assert_eq!(stage.called(before), [0, 1, 1]);
        next.unlock().await.unwrap();
    }
}

/// Nobody else hears of a pass, so others have the lock when the chain is over.
#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_time_a_chain_is_really_released() {
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let lock = stage.lock.clone();
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            sleep(MS * 3).await;
            guard.unlock().await.unwrap();
        });
    }
    settle().await;
    let before = stage.wires.count();
    guard.unlock().await.unwrap();
    tasks.join_all().await;
    // Passed on at 0, 3, 6 and 9 ms; the guard that ends at 12 ms is released.
    assert_eq!(stage.called(before), [10, 3, 2]);
}

/// While others want the lock, two guards follow each other at most.
#[tokio::test(start_paused = true)]
async fn a_client_that_passes_on_still_shares_the_lock() {
    let stage = Stage::open().await;
    let turns = 200;
    let mut tasks = JoinSet::new();
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(turns));
    for task in 0..5 {
        let lock = [&stage.other, &stage.lock][usize::from(task > 0)].clone();
        let left = Arc::clone(&left);
        tasks.spawn(async move {
            let mut own = 0;
            let order = std::sync::atomic::Ordering::Relaxed;
            while left
                .fetch_update(order, order, |left| left.checked_sub(1))
                .is_ok()
            {
                let guard = lock.lock().await.unwrap();
                sleep(MS).await;
                guard.unlock().await.unwrap();
                own += 1;
            }
            (task, own)
        });
    }
    let all = tasks.join_all().await;
    let others = all.iter().filter(|(task, _)| *task == 0);
    let others: usize = others.map(|(_, own)| own).sum();
    assert!(others >= turns / 4, "{all:?}");
}

/// The hold was freed by another client: nobody has it, or somebody.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_lost_is_not_what_the_next_one_gets() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    assert!(stage.other.force_unlock().await.unwrap());
    // Whoever waits hears of it, tries, and so has the lock by itself.
    let token = guard.token();
    settle().await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let next = match next.poll() {
        std::task::Poll::Ready(next) => next.unwrap(),
        std::task::Poll::Pending => next.await.unwrap(),
    };
    assert!(next.token() > token);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);

    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    let token = guard.token();
    assert!(stage.other.force_unlock().await.unwrap());
    let taken = stage.other.lock().await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    settle().await;
    assert_pending!(next.poll());
    assert!(taken.token() > token);
    assert_eq!(taken.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(
        next.await.unwrap().unlock().await.unwrap(),
        Unlocked::Released
    );
}

/// The lock is gone, and nothing was announced: the pass is an acquisition.
#[tokio::test(start_paused = true)]
async fn a_pass_of_a_hold_that_is_gone_acquires_a_free_lock() {
    let stage = Stage::open().await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    let token = guard.token();
    stage.delete().await;
    let before = stage.wires.count();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let next = next.await.unwrap();
    assert_eq!(stage.called(before), [1, 0, 0]);
    assert!(next.token() > token);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
}

/// The client itself frees the lock by force, while it is held and while it is passed on.
#[tokio::test(start_paused = true)]
async fn what_this_client_frees_by_force_is_not_passed_on() {
    let stage = Stage::open().await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    assert!(stage.lock.force_unlock().await.unwrap());
    let before = stage.wires.count();
    drop(guard);
    next.await.unwrap().unlock().await.unwrap();
    assert_eq!(stage.called(before)[0], 0);

    let (guard, next) = stage.followed(stage.lock.lock()).await;
    stage.wires.hang();
    drop(guard);
    let mut force = tokio_test::task::spawn(stage.lock.force_unlock());
    assert_pending!(force.poll());
    settle().await;
    stage.wires.speak();
    assert!(force.await.unwrap());
    let next = next.await.unwrap();
    assert!(stage.other.is_locked().await.unwrap());
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_during_a_pass_leaves_the_lock_to_the_next_or_releases_it() {
    let stage = Stage::open().await;
    let (guard, first) = stage.followed(stage.lock.lock()).await;
    let mut second = tokio_test::task::spawn(stage.lock.lock());
    assert_pending!(second.poll());
    let before = stage.wires.count();
    stage.wires.hang();
    drop(guard);
    drop(first);
    settle().await;
    assert_pending!(second.poll());
    stage.wires.speak();
    settle().await;
    let guard = assert_ready!(second.poll()).unwrap();
    assert_eq!(stage.called(before), [1, 0, 0]);

    let mut third = tokio_test::task::spawn(stage.lock.lock());
    parked(&mut third).await;
    stage.wires.hang();
    drop(guard);
    assert_eq!(stage.client.stats().releases, 1, "it is owed to Redis");
    drop(third);
    settle().await;
    assert!(stage.other.is_locked().await.unwrap());
    stage.wires.speak();
    settle().await;
    assert!(!stage.other.is_locked().await.unwrap());
    assert_eq!(stage.client.stats().releases, 0);
    assert_eq!(stage.called(before), [2, 1, 0]);
}

/// Whoever comes while the pass is under way sends nothing, and is served by it.
#[tokio::test(start_paused = true)]
async fn who_comes_during_a_pass_waits_for_it() {
    let stage = Stage::open().await;
    let (guard, first) = stage.followed(stage.lock.lock()).await;
    let before = stage.wires.count();
    stage.wires.hang();
    drop(guard);
    drop(first);
    let mut late = tokio_test::task::spawn(stage.lock.lock());
    parked(&mut late).await;
    stage.wires.speak();
    settle().await;
    let late = assert_ready!(late.poll()).unwrap();
    assert_eq!(stage.called(before), [1, 0, 0]);
    late.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_cancelled_passes_on_all_the_same() {
    let stage = Stage::open().await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    let (token, before) = (guard.token(), stage.wires.count());
    stage.wires.hang();
    let mut unlock = tokio_test::task::spawn(guard.unlock());
    assert_pending!(unlock.poll());
    settle().await;
    drop(unlock);
    stage.wires.speak();
    let next = next.await.unwrap();
    assert!(next.token() > token);
    assert_eq!(stage.called(before), [1, 0, 0]);
    next.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_during_a_pass_releases_what_it_acquires() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    stage.wires.hang();
    drop(guard);
    let mut end = tokio_test::task::spawn(stage.client.shutdown(Shutdown::ReleaseAll));
    assert_pending!(end.poll());
    settle().await;
    assert!(assert_ready!(next.poll()).unwrap_err().is_shut_down());
    stage.wires.speak();
    end.await.unwrap();
    assert!(!stage.other.is_locked().await.unwrap());
}

/// A guard that was passed the lock has its own longest hold, and its own loss.
#[tokio::test(start_paused = true)]
async fn a_guard_that_was_passed_the_lock_has_its_own_times_and_its_own_loss() {
    let stage = Stage::open().await;
    let longest = MS * 450;
    let options = LockOptions::new().max_hold(longest);
    let (guard, next) = stage.followed(stage.lock.lock_with(options)).await;
    sleep(MS * 5).await;
    let taken = tokio::time::Instant::now();
    drop(guard);
    let next = next.await.unwrap();
    assert!(next.is_valid());
    assert_eq!(next.lost().await, LostReason::MaxHold);
    let held = taken.elapsed();
    assert!(held <= longest && held + MS * 4 > longest, "{held:?}");
    next.unlock().await.unwrap();

    let (guard, next) = stage.followed(stage.lock.lock()).await;
    drop(guard);
    let next = next.await.unwrap();
    assert!(stage.other.force_unlock().await.unwrap());
    assert_eq!(next.lost().await, LostReason::Deleted);

    let (guard, next) = stage
        .followed(stage.lock.lock_with(LockOptions::new().min_hold(MS * 50)))
        .await;
    drop(guard);
    let next = next.await.unwrap();
    assert!(matches!(
        next.unlock().await.unwrap(),
        Unlocked::Kept { .. }
    ));
    assert!(stage.other.is_locked().await.unwrap());
}

/// The connection breaks before the pass arrives, or with its reply on the way.
#[tokio::test(start_paused = true)]
async fn a_pass_without_an_answer_is_repeated() {
    let stage = Stage::open_with(|builder| builder.hand_over(MS * 300)).await;
    for arrives in [false, true] {
        // What was sent at the moment of a new connection is in doubt.
        sleep(MS).await;
        let (guard, next) = stage.followed(stage.lock.lock()).await;
        let (token, before) = (guard.token(), stage.wires.count());
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
        assert_eq!(unlock.await.unwrap(), Unlocked::Released);
        let next = next.await.unwrap();
        assert!(next.token() > token);
        let stored = stage.lock.token().await.unwrap();
        assert_eq!(stored, Some(next.token()), "the repeat created another");
        assert!(stage.called(before)[0] >= 1);
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        assert!(!stage.other.is_locked().await.unwrap());
    }
}
