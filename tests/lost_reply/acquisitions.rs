//! Acquisitions, and calls that only try.

use std::time::{Duration, Instant};

use redlock_rt::{ErrorKind, LockOptions, Unlocked};
use tests::{Loss, Place, within};

use crate::{DEADLINE, LATE, each, stage::Stage};

/// A lock is acquired once and not twice when commands or replies are lost.
pub(crate) async fn a_lost_acquisition_is_made_once(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "acquisition").await;
        for times in [1, 3] {
            stage
                .proxy()
                .lose(loss, stage.calls("rlock_acquire"), times);
            let options = LockOptions::new().wait(DEADLINE);
            let guard = stage.lock.lock_with(options).await.unwrap();
            stage.assert_held(&guard, 1).await;
            assert!(stage.other.try_lock().await.unwrap().is_none());
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            stage.assert_free().await;
        }
        stage.assert_clean().await;
    })
    .await;
}

/// A caller whose wait ends with the outcome unknown gets the error in time, and leaves no lock.
pub(crate) async fn a_wait_that_ends_with_the_outcome_unknown_leaves_nothing(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "unknown").await;
        let wait = Duration::from_millis(80);
        stage.proxy().lose(loss, stage.calls("rlock_acquire"), 1000);
        let start = Instant::now();
        let outcome = stage.lock.lock_with(LockOptions::new().wait(wait)).await;
        let error = outcome.unwrap_err();
        let waited = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        assert!(
            waited >= wait && waited < wait + LATE,
            "{loss:?}: {waited:?}"
        );
        // Far below the lease: a lock that may have been acquired is released in the background.
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}

pub(crate) async fn a_try_whose_outcome_is_unknown_leaves_nothing(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "try").await;
        stage.proxy().lose(loss, stage.calls("rlock_acquire"), 1);
        let error = stage.lock.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}
