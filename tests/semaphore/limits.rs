//! The number of permits, and its changes.

use redlock_rt::Unlocked;
use std::time::Duration;

use crate::stage::Stage;

/// A permit without a lease is neither renewed nor verified, whatever happens to the connection.
#[tokio::test]
async fn nothing_is_sent_for_a_permit_without_a_lease() {
    let stage = Stage::with("quiet", |builder| builder.lease(Duration::from_secs(3))).await;
    let semaphore = stage.semaphore(2).await;
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    let guard = semaphore.acquire().await.unwrap();
    let permit = leased.acquire().await.unwrap();
    stage.proxy.cut_all();
    stage.proxy.mark();
    let renewals = tests::calls("renew");
    // Three renewals of the permit with a lease; the other permit would have been in the same calls.
    for _ in 0..3 {
        stage.proxy.wait_for_answer(renewals.clone()).await;
        stage.proxy.mark();
    }
    stage.proxy.wait_for_answer(renewals.clone()).await;
    for frame in stage.proxy.frames() {
        let names = frame
            .args
            .iter()
            .filter(|word| **word == stage.name.as_bytes());
        assert!(names.count() <= 1, "{frame:?}");
    }
    assert!(permit.is_valid());
    assert_eq!(stage.client.stats().held, 2);
    guard.release().await.unwrap();
    permit.release().await.unwrap();
    stage.end(2).await;
}

/// Held permits stay valid and are released to the new semaphore, so there are never more in use.
#[tokio::test]
async fn permits_that_are_held_count_in_a_semaphore_that_was_made_anew() {
    let stage = Stage::open("anew").await;
    let semaphore = stage.permits(2).await;
    let two = semaphore.acquire_many(2).await.unwrap();
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    assert!(semaphore.try_set_permits(3).await.unwrap());
    assert!(!semaphore.try_set_permits(4).await.unwrap());
    assert_eq!(semaphore.permits().await.unwrap(), 3);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    assert_eq!(two.release().await.unwrap(), Unlocked::Released);
    stage.end(3).await;
}

/// Once, its permits were given to the semaphore that `add_permits` or `release` had made anew.
#[tokio::test]
async fn a_guard_of_a_deleted_semaphore_gives_nothing_to_the_next_one() {
    let stage = Stage::open("made-anew").await;
    let semaphore = stage.client.semaphore(&stage.name);
    for anew in [true, false] {
        let _: () = stage.redis(&["SET", &stage.name, "1"]).await;
        let permit = semaphore.acquire().await.unwrap();
        let _: bool = stage.redis(&["DEL", &stage.name]).await;
        match anew {
            true => semaphore.add_permits(2).await.unwrap(),
            false => semaphore.release(2).await.unwrap(),
        }
        let released = permit.release().await.unwrap();
        assert_eq!(released, Unlocked::AlreadyExpired);
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    }
    stage.end(2).await;
}
