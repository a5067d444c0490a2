//! Re-entries, their ends, and longer leases.

use std::time::Duration;

use redlock_rt::{ErrorKind, LockOptions, Unlocked};
use tests::{Loss, Place, eventually};

use crate::{DEADLINE, each, stage::Stage, tries};

/// The hold count and the lease are right after each kind of loss.
pub(crate) async fn a_lost_reentry_counts_once(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "reentry").await;
        for &times in tries(loss) {
            let outer = stage.lock.lock().await.unwrap();
            stage.proxy().lose(loss, stage.calls("rlock_update"), times);
            let inner = outer.reenter().await.unwrap();
            stage.assert_held(&outer, 2).await;
            stage.proxy().lose(loss, stage.calls("rlock_update"), times);
            assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
            stage.assert_held(&outer, 1).await;
            stage.proxy().lose(loss, stage.calls("rlock_update"), times);
            outer.extend(Duration::from_secs(90)).await.unwrap();
            assert!(stage.ttl().await > Some(Duration::from_secs(80)));
            stage.assert_held(&outer, 1).await;
            assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
            stage.assert_free().await;
        }
        stage.assert_clean().await;
    })
    .await;
}

/// A re-entry whose wait ends with the outcome unknown is undone.
pub(crate) async fn a_reentry_with_the_outcome_unknown_is_set_back(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "back").await;
        let outer = stage.lock.lock().await.unwrap();
        stage.proxy().lose(loss, stage.calls("rlock_update"), 3);
        let wait = Duration::from_millis(80);
        let inner = outer.run(stage.lock.lock_with(LockOptions::new().wait(wait)));
        match inner.await.unwrap() {
            // The client notices a cut connection at once, so there is time for more tries.
            Ok(inner) if matches!(loss, Loss::CutAfter | Loss::CutBefore) => drop(inner),
            Ok(inner) => panic!("{loss:?}: {inner:?} without a reply"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
            }
        }
        eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        stage.assert_held(&outer, 1).await;
        assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
        stage.assert_free().await;
        stage.assert_clean().await;
    })
    .await;
}
