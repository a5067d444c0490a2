//! Locks that are taken together: all of them are free again.

use std::time::Duration;

use redlock_rt::{Error, LockOptions, MultiLock, MultiLockGuard, Owner, Unlocked};
use tests::within;
use tokio::task::yield_now;

use crate::DEADLINE;
use crate::stage::{At, NAME, Stage, ended};

/// Names before and after the name that the stage checks.
fn lock(stage: &Stage) -> MultiLock {
    stage.client.multi_lock(["a", NAME, "z"])
}

/// Connects the client, and loads the scripts.
async fn warm(stage: &Stage) {
    assert!(unlocked(Some(lock(stage).lock().await)).await);
}

async fn unlocked(outcome: Option<Result<MultiLockGuard, Error>>) -> bool {
    let Some(guard) = outcome else {
        return false;
    };
    assert_eq!(guard.unwrap().unlock().await.unwrap(), Unlocked::Released);
    true
}

pub(crate) async fn lock_of_many(stage: &mut Stage, at: At) -> bool {
    let lock = lock(stage);
    unlocked(stage.drop_at(at, lock.lock()).await).await
}

pub(crate) async fn lock_of_many_that_connects_first(stage: &mut Stage, at: At) -> bool {
    stage.cool();
    lock_of_many(stage, at).await
}

pub(crate) async fn try_lock_of_many(stage: &mut Stage, at: At) -> bool {
    let lock = lock(stage);
    let outcome = stage.drop_at(at, lock.try_lock()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap().unwrap()))).await
}

/// With an owner, the locks are not taken in one call.
pub(crate) async fn lock_of_many_one_by_one(stage: &mut Stage, at: At) -> bool {
    let (lock, owner) = (lock(stage), Owner::new());
    let options = LockOptions::new().owner(&owner);
    unlocked(stage.drop_at(at, lock.lock_with(options)).await).await
}

pub(crate) async fn lock_of_many_behind_another_client(stage: &mut Stage, at: At) -> bool {
    stage.held_elsewhere().await;
    lock_of_many(stage, at).await
}

/// The call waits while it holds the other locks.
pub(crate) async fn lock_of_many_behind_the_last(stage: &mut Stage, at: At) -> bool {
    let last = stage.other.rlock("z").lock().await.unwrap();
    stage.then(move || drop(last));
    lock_of_many(stage, at).await
}

/// At the end, the leases of the first locks start anew.
pub(crate) async fn lock_of_many_without_renewal(stage: &mut Stage, at: At) -> bool {
    let (lock, owner) = (lock(stage), Owner::new());
    let options = LockOptions::new().owner(&owner).renew(false);
    unlocked(stage.drop_at(at, lock.lock_with(options)).await).await
}

pub(crate) async fn lock_of_many_with_a_body(stage: &mut Stage, at: At) -> bool {
    let lock = lock(stage);
    let call = lock.with(async |guard| {
        assert!(guard.is_valid());
        yield_now().await;
    });
    stage.drop_at(at, call).await.map(Result::unwrap).is_some()
}

pub(crate) async fn unlock_of_many(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage).lock().await.unwrap();
    let outcome = stage.drop_at(at, guard.unlock()).await;
    ended(outcome, Unlocked::Released)
}

pub(crate) async fn lock_of_many_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_reply();
    lock_of_many(stage, at).await
}

pub(crate) async fn lock_of_many_whose_request_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_request();
    lock_of_many(stage, at).await
}

pub(crate) async fn reenter_of_many(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage).lock().await.unwrap();
    let inner = stage.drop_at(at, guard.reenter()).await;
    let completed = inner.map(|inner| drop(inner.unwrap())).is_some();
    // The counts of the dropped call are reset after it, on the same connections.
    within(DEADLINE, guard.extend(Duration::from_secs(60)))
        .await
        .unwrap();
    assert_eq!(guard.hold_count(), 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    completed
}

/// Through two clients of one server with two addresses.
pub(crate) async fn lock_of_many_under_two_addresses(stage: &mut Stage, at: At) -> bool {
    let both = [stage.client.rlock(NAME), stage.other.rlock(NAME)];
    let lock = MultiLock::new(both);
    unlocked(stage.drop_at(at, lock.lock()).await).await
}
