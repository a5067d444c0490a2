//! Calls of a lock with a fixed lease, which is passed on to the next task of the client by one call.

use std::time::Duration;

use futures::poll;
use redlock_rt::{Error, LockOptions, RLock, RLockGuard, Unlocked};
use tokio::{
    task::{JoinHandle, yield_now},
    time::timeout,
};

use crate::stage::{At, Stage, unlocked};

async fn lock(lock: RLock) -> Result<RLockGuard, Error> {
    let fixed = LockOptions::new().lease(Duration::from_secs(60));
    lock.lock_with(fixed.renew(false)).await
}

/// Waits in a separate task, as one of so many.
async fn waits(stage: &Stage, count: usize) -> JoinHandle<bool> {
    let next = stage.lock();
    let next = tokio::spawn(async move { unlocked(Some(lock(next).await)).await });
    while stage.client.stats().waiting < count {
        yield_now().await;
    }
    next
}

async fn assert_served(stage: &mut Stage, at: At, waiting: JoinHandle<bool>) {
    stage.finish_events();
    let served = timeout(stage.next(), waiting).await;
    let served = served.unwrap_or_else(|_| panic!("{at:?}: the other is not served"));
    assert!(served.unwrap());
}

/// The dropped call passes the lock on.
pub(crate) async fn unlock_that_passes_on(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage.lock()).await.unwrap();
    let next = waits(stage, 1).await;
    let outcome = stage.drop_at(at, guard.unlock()).await;
    assert_served(stage, at, next).await;
    outcome
        .map(|outcome| assert_eq!(outcome.unwrap(), Unlocked::Released))
        .is_some()
}

/// The dropped call is passed the lock.
pub(crate) async fn lock_that_is_passed_on(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage.lock()).await.unwrap();
    stage.then(move || drop(guard));
    unlocked(stage.drop_at(at, lock(stage.lock())).await).await
}

pub(crate) async fn lock_that_is_passed_on_before_another_waiter(
    stage: &mut Stage,
    at: At,
) -> bool {
    let guard = lock(stage.lock()).await.unwrap();
    let mut call = Box::pin(lock(stage.lock()));
    assert!(poll!(&mut call).is_pending());
    let behind = waits(stage, 2).await;
    stage.then(move || drop(guard));
    let completed = unlocked(stage.drop_at(at, call).await).await;
    assert_served(stage, at, behind).await;
    completed
}
