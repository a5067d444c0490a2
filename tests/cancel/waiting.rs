//! Calls that wait in a queue, for another client, for a subscription.

use futures::poll;
use redlock_rt::{Kind, Lock};
use tokio::{task::yield_now, time::timeout};

use crate::{
    calls::lock,
    stage::{At, Stage, unlocked},
};

/// Waits until this many calls of the client wait.
async fn waiting(stage: &Stage, count: usize) {
    while stage.client.stats().waiting < count {
        yield_now().await;
    }
}

async fn behind_another_waiter<K: Kind>(stage: &mut Stage, at: At, lock: Lock<K>) -> bool {
    let guard = lock.lock().await.unwrap();
    let first = lock.clone();
    let first = tokio::spawn(async move { unlocked(Some(first.lock().await)).await });
    waiting(stage, 1).await;
    stage.then(move || drop(guard));
    let call = async move { lock.lock().await };
    let completed = unlocked(stage.drop_at(at, call).await).await;
    stage.finish_events();
    let served = timeout(stage.next(), first).await;
    assert!(
        served
            .unwrap_or_else(|_| panic!("{at:?}: the first is not served"))
            .unwrap()
    );
    completed
}

pub(crate) async fn lock_behind_another_waiter(stage: &mut Stage, at: At) -> bool {
    let lock = stage.lock();
    behind_another_waiter(stage, at, lock).await
}

pub(crate) async fn fenced_lock_behind_another_waiter(stage: &mut Stage, at: At) -> bool {
    let lock = stage.fenced();
    behind_another_waiter(stage, at, lock).await
}

pub(crate) async fn lock_behind_another_waiter_without_hand_over(
    stage: &mut Stage,
    at: At,
) -> bool {
    stage.without_hand_over();
    lock_behind_another_waiter(stage, at).await
}

/// The dropped call is the head of the queue, and the next waiter becomes the head.
pub(crate) async fn lock_before_another_waiter(stage: &mut Stage, at: At) -> bool {
    let (lock, second) = (stage.lock(), stage.lock());
    let mut call = Box::pin(async move { lock.lock().await });
    assert!(poll!(&mut call).is_pending());
    let second = tokio::spawn(async move { unlocked(Some(second.lock().await)).await });
    waiting(stage, 2).await;
    let completed = unlocked(stage.drop_at(at, call).await).await;
    stage.finish_events();
    let served = timeout(stage.next(), second).await;
    assert!(
        served
            .unwrap_or_else(|_| panic!("{at:?}: the next is not served"))
            .unwrap()
    );
    completed
}

pub(crate) async fn lock_that_connects_first_before_another_waiter(
    stage: &mut Stage,
    at: At,
) -> bool {
    stage.cool();
    lock_before_another_waiter(stage, at).await
}

pub(crate) async fn lock_behind_another_client(stage: &mut Stage, at: At) -> bool {
    stage.held_elsewhere().await;
    lock(stage, at).await
}

pub(crate) async fn lock_that_connects_first_behind_another_client(
    stage: &mut Stage,
    at: At,
) -> bool {
    stage.cool();
    lock_behind_another_client(stage, at).await
}

pub(crate) async fn lock_behind_another_client_and_before_another_waiter(
    stage: &mut Stage,
    at: At,
) -> bool {
    stage.held_elsewhere().await;
    lock_before_another_waiter(stage, at).await
}

/// The subscribing connection is cut while it waits.
pub(crate) async fn lock_that_subscribes_again(stage: &mut Stage, at: At) -> bool {
    stage.may_subscribe().await;
    let cut = stage.then_cut_subscriber();
    // The pause before the client reconnects.
    stage.then_time_passes(3);
    stage.held_elsewhere().await;
    let completed = lock(stage, at).await;
    assert!(!completed || cut.get(), "it was not subscribed");
    completed
}
