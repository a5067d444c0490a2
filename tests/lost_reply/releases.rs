//! Releases: one that has run is no error, and it frees only its own hold.

use std::time::Duration;

use redlock_rt::{ErrorKind, LockOptions, RLock, Unlocked};
use tests::{Loss, Place, Which, eventually, within};

use crate::{DEADLINE, each, stage::Stage, tries};

/// A release that has run is reported as such, and a waiter gets the lock.
pub(crate) async fn a_lost_release_is_a_release(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "release").await;
        for &times in tries(loss) {
            let guard = stage.lock.lock().await.unwrap();
            let other = stage.other.clone();
            let waiter = tokio::spawn(async move { other.lock().await });
            stage.other_waits().await;
            stage
                .proxy()
                .lose(loss, stage.calls("rlock_release"), times);
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released, "{times}");
            let next = within(DEADLINE, waiter).await.unwrap().unwrap();
            stage.assert_held(&next, 1).await;
            assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        }
        stage.assert_clean().await;
    })
    .await;
}

pub(crate) async fn a_lock_is_kept_for_its_min_hold_whatever_is_lost(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        const LEAST: Duration = Duration::from_secs(600);
        let stage = Stage::set(place, "kept").await;
        for &times in tries(loss) {
            let options = LockOptions::new().min_hold(LEAST);
            let guard = stage.lock.lock_with(options).await.unwrap();
            let release = stage.calls("lock_min_hold");
            stage.proxy().lose(loss, release, times);
            let outcome = guard.unlock().await.unwrap();
            assert!(matches!(outcome, Unlocked::Kept { .. }), "{outcome:?}");
            assert!(stage.ttl().await > Some(LEAST / 2));
            assert!(stage.lock.force_unlock().await.unwrap());
        }
        stage.assert_clean().await;
    })
    .await;
}

pub(crate) async fn a_dropped_guard_whose_release_is_lost(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "drop").await;
        for times in [1, 2] {
            let guard = stage.lock.lock().await.unwrap();
            stage
                .proxy()
                .lose(loss, stage.calls("rlock_release"), times);
            drop(guard);
            let next = within(DEADLINE, stage.other.lock()).await.unwrap();
            stage.assert_held(&next, 1).await;
            next.unlock().await.unwrap();
        }
        stage.assert_clean().await;
    })
    .await;
}

/// The next holder does not wait until the last holder gets its reply.
pub(crate) async fn the_next_holder_has_it_while_the_reply_is_missing(place: Place) {
    let stage = Stage::set(place, "missing").await;
    let guard = stage.lock.lock().await.unwrap();
    let other = stage.other.clone();
    let waiter = tokio::spawn(async move { other.lock().await });
    stage.other_waits().await;
    let gate = stage.proxy().hold_reply(stage.calls("rlock_release"));
    let mut unlocking = Box::pin(guard.unlock());
    let next = tokio::select! {
        next = within(DEADLINE, waiter) => next.unwrap().unwrap(),
        outcome = &mut unlocking => panic!("{outcome:?} without a reply"),
    };
    stage.assert_held(&next, 1).await;
    gate.reached().await;
    gate.open();
    assert_eq!(unlocking.await.unwrap(), Unlocked::Released);
    stage.assert_held(&next, 1).await;
    next.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The reply is lost, and when the release is repeated, there is a newer hold.
async fn a_repeated_release_frees_no_newer_hold(place: Place, by: impl Fn(&Stage) -> &RLock) {
    let stage = Stage::set(place, "repeated").await;
    let guard = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let reply = stage.proxy().hold_reply(stage.calls("rlock_release"));
    let unlocking = tokio::spawn(guard.unlock());
    reply.reached().await;
    let repeat = stage.proxy().hold_request(stage.calls("rlock_release"));
    stage.proxy().cut(Which::Connection(connection));
    repeat.reached().await;
    let newer = within(DEADLINE, by(&stage).lock()).await.unwrap();
    assert!(!unlocking.is_finished());
    repeat.open();
    reply.open();
    let outcome = within(DEADLINE, unlocking).await.unwrap();
    assert_eq!(outcome.unwrap(), Unlocked::Released);
    stage.assert_held(&newer, 1).await;
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

pub(crate) async fn a_repeated_release_frees_no_newer_hold_of_another_client(place: Place) {
    a_repeated_release_frees_no_newer_hold(place, |stage| &stage.other).await;
}

/// The reply to a release is missing for longer than the lease; the lock counts as released.
pub(crate) async fn a_release_whose_reply_is_lost_for_longer_than_the_lease(place: Place) {
    each(place, &[Loss::Reply, Loss::CutAfter], async |loss| {
        let lease = Duration::from_millis(400);
        let stage = Stage::patient(place, "short", 2 * lease).await;
        let options = LockOptions::new().lease(lease).renew(false);
        let guard = stage.lock.lock_with(options).await.unwrap();
        stage.proxy().lose(loss, stage.calls("rlock_release"), 1);
        let outcome = guard.unlock().await;
        assert_eq!(outcome.unwrap(), Unlocked::Released, "{loss:?}");
        stage.assert_free().await;
        stage.assert_clean().await;
    })
    .await;
}

/// The only error of a release: no reply comes during the call. The release then continues in the
/// background, and frees only its own hold.
pub(crate) async fn a_release_that_is_never_answered_goes_on_in_the_background(place: Place) {
    let stage = Stage::set(place, "never").await;
    let guard = stage.lock.lock().await.unwrap();
    stage
        .proxy()
        .lose(Loss::Request, stage.calls("rlock_release"), 1000);
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(stage.hash().await.len(), 1);
    stage.proxy().clear();
    let next = within(DEADLINE, stage.other.lock()).await.unwrap();
    eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
    stage.assert_held(&next, 1).await;
    next.unlock().await.unwrap();
    stage.assert_clean().await;
}
