//! Calls of the fair lock, which also leave its queue.

use futures::poll;
use redlock_rt::{FairLock, Unlocked};
use tokio::{
    task::{JoinHandle, yield_now},
    time::timeout,
};

use crate::stage::{At, Stage, ended, unlocked};

/// Connects the client, and loads the scripts.
async fn warm(stage: &mut Stage) {
    assert!(unlocked(Some(stage.fair().lock().await)).await);
}

async fn held_elsewhere(stage: &mut Stage) {
    let guard = stage.fair_of_the_other().lock().await.unwrap();
    stage.then(move || drop(guard));
}

/// Waits behind all other waiters.
async fn queued(lock: FairLock, others: u64) -> JoinHandle<bool> {
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { unlocked(Some(lock.lock().await)).await }
    });
    while lock.queue_len().await.unwrap() <= others {
        yield_now().await;
    }
    waiting
}

async fn assert_served(stage: &Stage, at: At, waiting: JoinHandle<bool>) {
    let served = timeout(stage.next() * 5, waiting).await;
    let served = served.unwrap_or_else(|_| panic!("{at:?}: the other is not served"));
    assert!(served.unwrap());
}

pub(crate) async fn fair_lock(stage: &mut Stage, at: At) -> bool {
    let lock = stage.fair();
    unlocked(stage.drop_at(at, lock.lock()).await).await
}

pub(crate) async fn fair_try_lock(stage: &mut Stage, at: At) -> bool {
    let lock = stage.fair();
    let outcome = stage.drop_at(at, lock.try_lock()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap().unwrap()))).await
}

pub(crate) async fn fair_unlock(stage: &mut Stage, at: At) -> bool {
    let guard = stage.fair().lock().await.unwrap();
    let outcome = stage.drop_at(at, guard.unlock()).await;
    ended(outcome, Unlocked::Released)
}

/// The dropped call gives the lock to the waiter.
pub(crate) async fn fair_unlock_before_a_waiter(stage: &mut Stage, at: At) -> bool {
    unlock_before_a_waiter(stage, at, |_| {}).await
}

pub(crate) async fn fair_unlock_before_a_waiter_whose_reply_is_lost(
    stage: &mut Stage,
    at: At,
) -> bool {
    warm(stage).await;
    unlock_before_a_waiter(stage, at, Stage::lose_reply).await
}

async fn unlock_before_a_waiter(stage: &mut Stage, at: At, fault: impl Fn(&mut Stage)) -> bool {
    let guard = stage.fair().lock().await.unwrap();
    let waiting = queued(stage.fair(), 0).await;
    fault(stage);
    let outcome = stage.drop_at(at, guard.unlock()).await;
    stage.finish_events();
    assert_served(stage, at, waiting).await;
    ended(outcome, Unlocked::Released)
}

/// The dropped call is given the lock by a guard of its client, and another one waits behind it.
pub(crate) async fn fair_lock_that_is_given_before_another_waiter(
    stage: &mut Stage,
    at: At,
) -> bool {
    let guard = stage.fair().lock().await.unwrap();
    let mut call = Box::pin({
        let lock = stage.fair();
        async move { lock.lock().await }
    });
    assert!(poll!(&mut call).is_pending());
    let behind = queued(stage.fair(), 0).await;
    stage.then(move || drop(guard));
    let completed = unlocked(stage.drop_at(at, call).await).await;
    stage.finish_events();
    assert_served(stage, at, behind).await;
    completed
}

pub(crate) async fn fair_lock_behind_another_client(stage: &mut Stage, at: At) -> bool {
    held_elsewhere(stage).await;
    fair_lock(stage, at).await
}

pub(crate) async fn fair_lock_that_connects_first_behind_another_client(
    stage: &mut Stage,
    at: At,
) -> bool {
    stage.cool();
    fair_lock_behind_another_client(stage, at).await
}

pub(crate) async fn fair_lock_behind_another_waiter(stage: &mut Stage, at: At) -> bool {
    let guard = stage.fair().lock().await.unwrap();
    let first = queued(stage.fair(), 0).await;
    stage.then(move || drop(guard));
    let completed = fair_lock(stage, at).await;
    stage.finish_events();
    assert_served(stage, at, first).await;
    completed
}

/// The dropped call holds the lock or is the head, and the other waiter comes after it.
pub(crate) async fn fair_lock_before_another_waiter(stage: &mut Stage, at: At) -> bool {
    let (lock, second) = (stage.fair(), stage.fair());
    let mut call = Box::pin(async move { lock.lock().await });
    assert!(poll!(&mut call).is_pending());
    let second = tokio::spawn(async move { unlocked(Some(second.lock().await)).await });
    while stage.client.stats().waiting < 2 {
        yield_now().await;
    }
    let completed = unlocked(stage.drop_at(at, call).await).await;
    stage.finish_events();
    assert_served(stage, at, second).await;
    completed
}

/// A call that leaves the queue or the lock wakes the next waiter, in another process.
pub(crate) async fn fair_lock_before_a_waiter_of_another_client(stage: &mut Stage, at: At) -> bool {
    held_elsewhere(stage).await;
    let mut call = Box::pin({
        let lock = stage.fair();
        async move { lock.lock().await }
    });
    assert!(poll!(&mut call).is_pending());
    let behind = queued(stage.fair_of_the_other(), 0).await;
    let completed = unlocked(stage.drop_at(at, call).await).await;
    stage.finish_events();
    assert_served(stage, at, behind).await;
    completed
}

pub(crate) async fn fair_lock_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_reply();
    fair_lock(stage, at).await
}

pub(crate) async fn fair_lock_whose_request_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_request();
    fair_lock(stage, at).await
}
