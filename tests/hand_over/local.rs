//! Tasks of one client hand a lock over to each other without a call to Redis.

use std::{sync::Arc, time::Duration};

use redlock_rt::{ClientBuilder, HoldId, LockOptions, LostReason, Reentrant, Shutdown, Unlocked};
use tests::Which;
use tokio::{
    sync::Mutex,
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tokio_test::{assert_pending, assert_ready};

use crate::stage::{self, CHAIN, MS, NAME, parked, settle, waiter};

type Stage = stage::Stage<Reentrant>;

impl Stage {
    async fn open() -> Self {
        Self::open_with(|builder| builder).await
    }

    async fn open_with(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::connect(options, |client| client.rlock(NAME), 1).await
    }

    fn scripts(&self, before: usize) -> usize {
        let frames = self.wires.frames(before);
        let scripts = frames.iter().filter(|frame| frame.is_call());
        scripts.count()
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_take_turns_in_their_order_without_a_call() {
    const TASKS: usize = 32;
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let id = guard.hold_id().clone();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (lock, order) = (stage.lock.clone(), Arc::clone(&order));
        let id = id.clone();
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!((guard.hold_id(), guard.hold_count()), (&id, 1));
            order.try_lock().unwrap().push(task);
            yield_now().await;
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
        settle().await;
    }
    let before = stage.wires.count();
    drop(guard);
    tasks.join_all().await;
    settle().await;
    let order = Arc::into_inner(order).unwrap().into_inner();
    assert_eq!(order, (0..TASKS).collect::<Vec<_>>());
    assert_eq!(stage.scripts(before), 1, "the last one releases");
    assert!(!stage.lock.is_locked().await.unwrap());
    assert_eq!(stage.client.stats().releases, 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_time_each_turn_is_a_release_and_an_acquisition() {
    for off in [None, Some(Duration::ZERO)] {
        let stage = Stage::open_with(|builder| builder.hand_over(off)).await;
        let mut guard = stage.held().await;
        let mut ids = vec![guard.hold_id().clone()];
        for _ in 0..4 {
            let next = waiter(stage.lock.lock()).await;
            let before = stage.wires.count();
            guard.unlock().await.unwrap();
            guard = next.await.unwrap();
            assert_eq!(stage.scripts(before), 2);
            assert!(!ids.contains(guard.hold_id()));
            ids.push(guard.hold_id().clone());
        }
    }
}

/// The first waiter subscribes and looks once more. Later ones send nothing, nor does a hand-over.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_hand_over_costs_a_subscription_and_a_try() {
    let stage = Stage::open().await;
    let mut guard = stage.held().await;
    for turn in 0..5 {
        let before = stage.wires.count();
        let mut next = waiter(stage.lock.lock()).await;
        let frames = stage.wires.frames(before);
        let sent = frames.iter().map(|frame| frame.command());
        // The rest is that of connecting.
        let asks = ["EVALSHA", "RESTORE", "SUBSCRIBE"];
        let sent = sent.filter(|command| asks.contains(&&**command));
        let mut sent: Vec<_> = sent.collect();
        sent.sort_unstable();
        let expected: &[&str] = match turn {
            // The server did not know the script.
            0 => &["EVALSHA", "EVALSHA", "RESTORE", "SUBSCRIBE"],
            _ => &[],
        };
        assert_eq!(sent, expected, "turn {turn}");
        let before = stage.wires.count();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        guard = assert_ready!(next.poll()).unwrap();
        assert_eq!(stage.wires.count(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_time_a_chain_is_really_released() {
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let id = guard.hold_id().clone();
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let lock = stage.lock.clone();
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            sleep(MS * 3).await;
            guard.hold_id().clone()
        });
    }
    settle().await;
    drop(guard);
    let ids = tasks.join_all().await;
    let first = ids.iter().filter(|one| **one == id).count();
    // At 0, 3, 6 and 9 ms; the guard that ends at 12 ms is released.
    assert_eq!(first, 4, "{ids:?}");
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 3, "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_passes_the_offer_on_or_releases() {
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let id = guard.hold_id().clone();
    let mut first = tokio_test::task::spawn(stage.lock.lock());
    let mut second = tokio_test::task::spawn(stage.lock.lock());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    parked(&mut first).await;
    let before = stage.wires.count();
    drop(guard);
    assert!(first.is_woken());
    drop(first);
    let guard = assert_ready!(second.poll()).unwrap();
    assert_eq!(*guard.hold_id(), id);
    assert_eq!(stage.wires.count(), before);

    let third = waiter(stage.lock.lock()).await;
    drop(guard);
    assert_eq!(stage.client.stats().releases, 1, "it is owed to Redis");
    assert!(stage.other.is_locked().await.unwrap());
    drop(third);
    assert!(!stage.other.is_locked().await.unwrap(), "released at once");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_never_polled_keeps_the_lock_until_the_chain_ends() {
    let stage = Stage::open().await;
    let (guard, mut stuck) = stage.followed(stage.lock.lock()).await;
    drop(guard);
    settle().await;
    assert!(stage.other.is_locked().await.unwrap());
    sleep(CHAIN + MS * 2).await;
    assert!(!stage.other.is_locked().await.unwrap());
    assert_eq!(stage.client.stats().releases, 0);
    // Whoever was stuck asks anew.
    let guard = stage.other.lock().await.unwrap();
    settle().await;
    assert_pending!(stuck.poll());
    guard.unlock().await.unwrap();
}

/// An offer that was made just before the timer looked was not looked at again.
#[tokio::test(start_paused = true)]
async fn each_chain_of_a_name_ends() {
    let stage = Stage::open().await;
    for wait in [0, 3, 7, 9, 10, 11, 15] {
        let (guard, next) = stage.followed(stage.lock.lock()).await;
        sleep(MS * wait).await;
        drop(guard);
        sleep(CHAIN * 2).await;
        assert!(!stage.other.is_locked().await.unwrap(), "after {wait} ms");
        drop(next);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_releases_what_nobody_has_taken() {
    let stage = Stage::open().await;
    let (guard, mut stuck) = stage.followed(stage.lock.lock()).await;
    drop(guard);
    assert_eq!(stage.client.stats().releases, 1);
    let end = Shutdown::ReleaseAll;
    stage.client.shutdown(end).await.unwrap();
    assert!(!stage.other.is_locked().await.unwrap());
    assert!(assert_ready!(stuck.poll()).unwrap_err().is_shut_down());
}

/// The connection breaks while nobody has taken the offer yet: the server at its other end may be
/// another one, which does not have the lock.
#[tokio::test(start_paused = true)]
async fn an_offer_in_doubt_is_not_taken() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    let id = guard.hold_id().clone();
    drop(guard);
    assert!(stage.wires.cut(Which::Scripts) > 0);
    settle().await;
    assert_pending!(next.poll());
    let guard = next.await.unwrap();
    assert_ne!(*guard.hold_id(), id);
}

#[tokio::test(start_paused = true)]
async fn only_a_request_with_the_same_terms_takes_an_offer() {
    let stage = Stage::open().await;
    let lease = |seconds| LockOptions::new().lease(Duration::from_secs(seconds));
    for options in [lease(7), LockOptions::new().renew(false)] {
        let (guard, next) = stage.followed(stage.lock.lock_with(options)).await;
        let id = guard.hold_id().clone();
        drop(guard);
        let next = next.await.unwrap();
        assert_ne!(*next.hold_id(), id);
        next.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reentered_hold_is_not_handed_over() {
    let stage = Stage::open().await;
    let guard = stage.held().await;
    let id = guard.hold_id().clone();
    guard.reenter().await.unwrap().unlock().await.unwrap();
    let next = waiter(stage.lock.lock()).await;
    guard.unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_ne!(*next.hold_id(), id);
}

/// A guard of a chain has its own longest hold, and its own loss.
#[tokio::test(start_paused = true)]
async fn a_guard_that_was_handed_over_has_its_own_times_and_its_own_loss() {
    let stage = Stage::open().await;
    let longest = MS * 450;
    let options = LockOptions::new().max_hold(longest);
    let (guard, mut next) = stage.followed(stage.lock.lock_with(options)).await;
    sleep(MS * 5).await;
    let taken = Instant::now();
    drop(guard);
    let next = assert_ready!(next.poll()).unwrap();
    assert!(next.is_valid());
    assert_eq!(next.lost().await, LostReason::MaxHold);
    // The last renewal ends with it, less a margin.
    let held = taken.elapsed();
    assert!(held <= longest && held + MS * 4 > longest, "{held:?}");
    next.unlock().await.unwrap();

    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    drop(guard);
    let next = assert_ready!(next.poll()).unwrap();
    assert!(stage.other.force_unlock().await.unwrap());
    assert_eq!(next.lost().await, LostReason::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_handed_over_keeps_the_lock_for_its_own_shortest_hold() {
    let stage = Stage::open().await;
    let least = MS * 50;
    let options = LockOptions::new().min_hold(least);
    let (guard, mut next) = stage.followed(stage.lock.lock_with(options)).await;
    sleep(MS * 5).await;
    let (id, taken) = (guard.hold_id().clone(), Instant::now());
    drop(guard);
    let next = assert_ready!(next.poll()).unwrap();
    assert_eq!(*next.hold_id(), id);
    let mut last = waiter(stage.lock.lock()).await;
    let kept = next.unlock().await.unwrap();
    assert!(matches!(kept, Unlocked::Kept { .. }), "{kept:?}");
    settle().await;
    assert_pending!(last.poll());
    assert_eq!(stage.other.holder().await.unwrap(), Some(id.clone()));
    let last = last.await.unwrap();
    assert!(taken.elapsed() >= least, "{:?}", taken.elapsed());
    assert_ne!(*last.hold_id(), id);
}

/// One turn of a task.
#[derive(Debug)]
struct Turn {
    hold: HoldId,
    /// Who had the lock when it began, as Redis says.
    holder: Option<HoldId>,
    /// The last moment at which its guard was valid.
    until: Instant,
    end: Unlocked,
}

/// Whoever is handed the lock does not ask Redis, so the end of the chain bounds what is not known.
#[tokio::test(start_paused = true)]
async fn a_busy_chain_ends_in_its_time_after_others_have_freed_the_lock() {
    for (by, after) in [("a client", 2), ("DEL", 0), ("DEL", 7), ("FLUSHALL", 4)] {
        let stage = Stage::open().await;
        let over = Instant::now() + CHAIN * 2;
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (lock, other) = (stage.lock.clone(), stage.other.clone());
            tasks.spawn(async move {
                let mut turns = Vec::new();
                while Instant::now() < over {
                    let guard = lock.lock().await.unwrap();
                    let hold = guard.hold_id().clone();
                    let holder = other.holder().await.unwrap();
                    let _ = timeout(MS, guard.lost()).await;
                    let until = Instant::now();
                    let end = guard.unlock().await.unwrap();
                    turns.push(Turn {
                        hold,
                        holder,
                        until,
                        end,
                    });
                }
                turns
            });
        }
        settle().await;
        sleep(MS * after).await;
        let hold = stage.other.holder().await.unwrap().unwrap();
        match by {
            "DEL" => stage.command(&["DEL", NAME]).await,
            "FLUSHALL" => stage.command(&["FLUSHALL"]).await,
            _ => assert!(stage.other.force_unlock().await.unwrap()),
        }
        let freed = Instant::now();
        let mut turns: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        turns.sort_by_key(|turn| turn.until);
        let (of_it, later): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|turn| turn.hold == hold);
        let last = of_it.last().unwrap();
        assert!(last.until <= freed + CHAIN, "{by}, {after} ms: {of_it:?}");
        assert_eq!(last.end, Unlocked::AlreadyExpired);
        assert!(!later.is_empty());
        for turn in later {
            assert_eq!(turn.holder, Some(turn.hold), "{by}, {after} ms");
            assert_eq!(turn.end, Unlocked::Released);
        }
    }
}

/// A lock that this client itself frees by force is not handed over by who had it.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_freed_by_force_is_not_handed_over() {
    let stage = Stage::open().await;
    let (guard, next) = stage.followed(stage.lock.lock()).await;
    let id = guard.hold_id().clone();
    // Of the offer, first.
    drop(guard);
    stage.lock.force_unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_ne!(*next.hold_id(), id);

    let last = waiter(stage.lock.lock()).await;
    let id = next.hold_id().clone();
    assert!(stage.lock.force_unlock().await.unwrap());
    drop(next);
    let last = last.await.unwrap();
    assert_ne!(*last.hold_id(), id);
}

#[tokio::test(start_paused = true)]
async fn behind_an_offer_a_lock_counts_as_held() {
    let stage = Stage::open().await;
    let (guard, mut next) = stage.followed(stage.lock.lock()).await;
    let before = stage.wires.count();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(stage.lock.try_lock().await.unwrap().is_none());
    assert_eq!(stage.wires.count(), before);
    assert!(stage.other.is_locked().await.unwrap());
    drop(assert_ready!(next.poll()).unwrap());
}

/// While others want the lock, two guards share a hold at most.
#[tokio::test(start_paused = true)]
async fn a_client_that_hands_over_still_shares_the_lock() {
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
    let others: usize = all
        .iter()
        .filter(|(task, _)| *task == 0)
        .map(|(_, own)| own)
        .sum();
    assert!(others >= turns / 4, "{all:?}");
}
