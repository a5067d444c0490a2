//! Calls that do not wait for another client.

use std::time::Duration;

use redlock_rt::{LockOptions, Owner, Reentrant, Unlocked};
use tests::{eventually, lock_and_unlock, within};
use tokio::task::yield_now;

use crate::{
    DEADLINE,
    stage::{At, NAME, Stage, ended, unlocked},
};

pub(crate) async fn lock(stage: &mut Stage, at: At) -> bool {
    let lock = stage.lock();
    unlocked(stage.drop_at(at, lock.lock()).await).await
}

pub(crate) async fn lock_that_connects_first(stage: &mut Stage, at: At) -> bool {
    stage.cool();
    lock(stage, at).await
}

pub(crate) async fn try_lock(stage: &mut Stage, at: At) -> bool {
    let lock = stage.lock();
    let outcome = stage.drop_at(at, lock.try_lock()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap().unwrap()))).await
}

pub(crate) async fn lock_with_a_body(stage: &mut Stage, at: At) -> bool {
    let lock = stage.lock();
    let call = lock.with(async |guard| {
        assert!(guard.is_valid());
        yield_now().await;
    });
    stage.drop_at(at, call).await.map(Result::unwrap).is_some()
}

pub(crate) async fn unlock(stage: &mut Stage, at: At) -> bool {
    let guard = stage.held().await;
    let outcome = stage.drop_at(at, guard.unlock()).await;
    ended(outcome, Unlocked::Released)
}

pub(crate) async fn unlock_of_one_guard_of_two(stage: &mut Stage, at: At) -> bool {
    let outer = stage.held().await;
    let inner = outer.reenter().await.unwrap();
    let outcome = stage.drop_at(at, inner.unlock()).await;
    stage.assert_held_once(outer, at).await;
    ended(outcome, Unlocked::StillHeld)
}

pub(crate) async fn reenter(stage: &mut Stage, at: At) -> bool {
    let outer = stage.held().await;
    let outcome = stage.drop_at(at, outer.reenter()).await;
    let completed = outcome.map(|guard| drop(guard.unwrap())).is_some();
    stage.assert_held_once(outer, at).await;
    completed
}

pub(crate) async fn lock_in_a_body_that_holds_it(stage: &mut Stage, at: At) -> bool {
    let outer = stage.held().await;
    let lock = stage.lock();
    let call = outer.run(async { lock_and_unlock(&lock).await });
    let outcome = stage.drop_at(at, call).await;
    stage.assert_held_once(outer, at).await;
    ended(outcome, Unlocked::StillHeld)
}

/// Whoever has the lock then gives it back.
pub(crate) async fn steal(stage: &mut Stage, at: At) -> bool {
    let victim = stage.other.rlock(NAME).lock().await.unwrap();
    let lock = stage.lock();
    let outcome = stage.drop_at(at, lock.steal("stuck")).await;
    drop(victim);
    unlocked(outcome).await
}

pub(crate) async fn steal_of_a_fenced_lock(stage: &mut Stage, at: At) -> bool {
    let lock = stage.fenced();
    let victim = stage.other.fenced_lock(NAME).lock().await.unwrap();
    let outcome = stage.drop_at(at, lock.steal("stuck")).await;
    drop(victim);
    unlocked(outcome).await
}

/// The ticket may be used up: the lock is free then, or the ticket's until its lease is over.
pub(crate) async fn adopt(stage: &mut Stage, at: At) -> bool {
    let guard = stage.other.rlock(NAME).lock().await.unwrap();
    let ticket = guard.into_ticket().unwrap();
    let client = stage.client.clone();
    let outcome = stage.drop_at(at, client.adopt::<Reentrant>(&ticket)).await;
    let completed = unlocked(outcome).await;
    let back = stage.other.adopt::<Reentrant>(&ticket).await;
    assert!(!completed || back.is_err());
    completed
}

pub(crate) async fn campaign(stage: &mut Stage, at: At) -> bool {
    stage.fenced();
    let election = stage.client.leader_election(NAME);
    let Some(leadership) = stage.drop_at(at, election.campaign()).await else {
        return false;
    };
    leadership.unwrap().resign().await.unwrap();
    true
}

/// One who has resigned stands back while another campaigns.
pub(crate) async fn campaign_of_one_who_has_resigned(stage: &mut Stage, at: At) -> bool {
    stage.fenced();
    let [election, other] = [&stage.client, &stage.other].map(|one| one.leader_election(NAME));
    let leadership = election.campaign().await.unwrap();
    let waiting = tokio::spawn(async move { other.campaign().await.unwrap() });
    eventually(DEADLINE, async || stage.other.stats().subscriptions == 1).await;
    leadership.resign().await.unwrap();
    let won = within(DEADLINE, waiting).await.unwrap();
    stage.then(move || drop(won));
    let outcome = stage.drop_at(at, election.campaign()).await;
    outcome.map(|again| drop(again.unwrap())).is_some()
}

pub(crate) async fn resign(stage: &mut Stage, at: At) -> bool {
    stage.fenced();
    let election = stage.client.leader_election(NAME);
    let leadership = election.campaign().await.unwrap();
    let outcome = stage.drop_at(at, leadership.resign()).await;
    outcome.map(Result::unwrap).is_some()
}

pub(crate) async fn lock_of_an_owner(stage: &mut Stage, at: At) -> bool {
    let owner = Owner::new();
    let lock = stage.lock();
    let options = || LockOptions::new().owner(&owner);
    let outcome = stage.drop_at(at, lock.lock_with(options())).await;
    let completed = unlocked(outcome).await;
    // The owner does not block itself.
    let again = lock.lock_with(options().wait(stage.next())).await;
    assert!(unlocked(Some(again)).await);
    completed
}

pub(crate) async fn lock_of_an_owner_that_holds_it(stage: &mut Stage, at: At) -> bool {
    let owner = Owner::new();
    let lock = stage.lock();
    let options = || LockOptions::new().owner(&owner);
    let outer = lock.lock_with(options()).await.unwrap();
    let outcome = stage.drop_at(at, lock.lock_with(options())).await;
    let completed = outcome.map(|guard| drop(guard.unwrap())).is_some();
    stage.assert_held_once(outer, at).await;
    completed
}

pub(crate) async fn extend(stage: &mut Stage, at: At) -> bool {
    let guard = stage.held().await;
    let outcome = stage
        .drop_at(at, guard.extend(Duration::from_secs(100)))
        .await;
    stage.assert_held_once(guard, at).await;
    outcome.map(Result::unwrap).is_some()
}
