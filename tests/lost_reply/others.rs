//! Calls that concern no hold of their own.

use redlock_rt::{ErrorKind, Unlocked};
use tests::{Loss, Place, Which, calls, within};

use crate::{DEADLINE, each, stage::Stage};

/// At the time of the repeat another client had the lock.
pub(crate) async fn a_force_unlock_whose_reply_was_lost_freed_the_lock_of_the_next_holder(
    place: Place,
) {
    let stage = Stage::set(place, "forced").await;
    // Loads the script.
    assert!(!stage.lock.force_unlock().await.unwrap());
    let guard = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let forced = calls("rlock_force_release").mentioning(&stage.name);
    let gate = stage.proxy().hold_reply(forced);
    let lock = stage.lock.clone();
    let forcing = tokio::spawn(async move { lock.force_unlock().await });
    within(DEADLINE, gate.reached()).await;
    let next = within(DEADLINE, stage.other.lock()).await.unwrap();
    stage.proxy().cut(Which::Connection(connection));
    gate.open();
    let error = within(DEADLINE, forcing).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let holder = stage.other.holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(next.hold_id()));
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    drop(guard);
    stage.assert_clean().await;
}

/// Calls that only read are repeated.
pub(crate) async fn questions_are_repeated(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "questions").await;
        let guard = stage.lock.lock().await.unwrap();
        stage
            .proxy()
            .lose(loss, calls("rlock_inspect").mentioning(&stage.name), 1);
        let holder = stage.lock.holder().await.unwrap();
        assert_eq!(holder.as_ref(), Some(guard.hold_id()), "{loss:?}");
        stage.proxy().lose(
            loss,
            calls("rlock_force_release").mentioning(&stage.name),
            1,
        );
        // This call changes the lock, so it is sent once.
        let error = stage.lock.force_unlock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        stage.lock.force_unlock().await.unwrap();
        stage.assert_free().await;
        drop(guard);
        stage.assert_clean().await;
    })
    .await;
}
