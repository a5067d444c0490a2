//! Calls that concern no hold of their own.

use redlock_rt::{ErrorKind, LostReason, Reentrant, Unlocked};
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

/// A steal is repeated, and takes the lock once.
pub(crate) async fn a_steal_is_repeated(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "stolen").await;
        let why = "stuck";
        // Loads the script.
        drop(stage.lock.steal(why).await.unwrap());
        let victim = stage.other.lock().await.unwrap();
        stage.proxy().lose(loss, stage.calls("rlock_steal"), 1);
        let guard = stage.lock.steal(why).await.unwrap();
        stage.assert_held(&guard, 1).await;
        let error = victim.reenter().await.unwrap_err();
        assert!(
            matches!(error.lost_reason(), Some(LostReason::Stolen(theft)) if theft.why == why),
            "{loss:?}: {error}"
        );
        drop(victim);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        stage.forget_thefts().await;
        stage.assert_clean().await;
    })
    .await;
}

/// A steal whose reply was lost is repeated when somebody else has the lock: it names the holder that it saw.
pub(crate) async fn a_repeated_steal_takes_nothing_from_a_later_holder(place: Place) {
    let stage = Stage::set(place, "third").await;
    drop(stage.lock.steal("loads the script").await.unwrap());
    let victim = stage.other.lock().await.unwrap();
    let connection = stage.connection();
    let gate = stage.proxy().hold_reply(stage.calls("rlock_steal"));
    let lock = stage.lock.clone();
    let stealing = tokio::spawn(async move { lock.steal("stuck").await });
    within(DEADLINE, gate.reached()).await;
    // It has the lock by now, and loses it to a third.
    assert!(stage.other.force_unlock().await.unwrap());
    let third = within(DEADLINE, stage.other.lock()).await.unwrap();
    stage.proxy().cut(Which::Connection(connection));
    gate.open();
    let error = within(DEADLINE, stealing).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    let holder = stage.other.holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(third.hold_id()));
    assert_eq!(third.unlock().await.unwrap(), Unlocked::Released);
    drop(victim);
    stage.forget_thefts().await;
    stage.assert_clean().await;
}

pub(crate) async fn an_adoption_finds_its_own_hold(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "adopted").await;
        // Loads the script.
        drop(stage.lock.steal("loads the script").await.unwrap());
        let ticket = stage.other.lock().await.unwrap().into_ticket().unwrap();
        stage.proxy().lose(loss, stage.calls("rlock_steal"), 1);
        let guard = stage.client.adopt::<Reentrant>(&ticket).await.unwrap();
        stage.assert_held(&guard, 1).await;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        stage.assert_clean().await;
    })
    .await;
}

/// By the time of the repeat the lock is not the adopter's any more: another has it, or nobody.
pub(crate) async fn a_repeated_adoption_takes_nothing_from_a_later_holder(place: Place) {
    for is_free in [false, true] {
        let stage = Stage::set(place, "late-adoption").await;
        drop(stage.lock.steal("loads the script").await.unwrap());
        let ticket = stage.other.lock().await.unwrap().into_ticket().unwrap();
        let connection = stage.connection();
        let gate = stage.proxy().hold_reply(stage.calls("rlock_steal"));
        let client = stage.client.clone();
        let adopting = tokio::spawn(async move { client.adopt::<Reentrant>(&ticket).await });
        within(DEADLINE, gate.reached()).await;
        assert!(stage.other.force_unlock().await.unwrap());
        let third = within(DEADLINE, stage.other.lock()).await.unwrap();
        let third = match is_free {
            true => third.unlock().await.map(|_| None).unwrap(),
            false => Some(third),
        };
        stage.proxy().cut(Which::Connection(connection));
        gate.open();
        let error = within(DEADLINE, adopting).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotOwner, "{error}");
        let holder = stage.other.holder().await.unwrap();
        assert_eq!(holder.as_ref(), third.as_ref().map(|third| third.hold_id()));
        drop(third);
        stage.assert_clean().await;
    }
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
