//! A limit: the first acquisition sets the number of permits.

use std::time::Duration;

use redlock_rt::{Error, PermitOptions};
use tests::{Loss, Matcher, calls, within};

use crate::stage::{DEADLINE, Stage};

async fn soon<T>(acquired: impl Future<Output = Result<T, Error>>) -> T {
    within(DEADLINE, acquired).await.unwrap()
}

#[tokio::test]
async fn the_first_acquisition_sets_the_number_and_costs_one_call() {
    let stage = Stage::open("first").await;
    let semaphore = stage.client.semaphore(&stage.name).limit(3);
    drop(semaphore.try_acquire().await.unwrap().unwrap());
    stage.free_is(3).await;
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    stage.proxy.mark();
    let guard = soon(semaphore.acquire_many(2)).await;
    assert_eq!(stage.proxy.counts().len(), 1);
    assert_eq!(stage.free().await, 1);
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_none());
    guard.release().await.unwrap();
    stage.end(3).await;
}

#[tokio::test]
async fn the_first_leased_acquisition_sets_the_number_and_costs_one_call() {
    let stage = Stage::open("first-leased").await;
    let semaphore = stage
        .client
        .permit_expirable_semaphore(&stage.name)
        .limit(3);
    drop(semaphore.try_acquire().await.unwrap().unwrap());
    stage.free_is(3).await;
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    stage.proxy.mark();
    let two = soon(semaphore.acquire_many(2)).await;
    assert_eq!(stage.proxy.counts().len(), 1);
    assert_eq!(
        (stage.free().await, semaphore.permits().await.unwrap()),
        (1, 3)
    );
    two.release().await.unwrap();
    stage.end(3).await;
}

/// The caller asks for more permits than the limit: the semaphore is created, and the caller waits.
#[tokio::test]
async fn a_limit_below_what_is_asked_for_is_a_wait() {
    let stage = Stage::open("below").await;
    let semaphore = stage.client.semaphore(&stage.name).limit(1);
    let short = semaphore
        .acquire_with(PermitOptions::new().permits(2).wait(Duration::from_secs(1)))
        .await;
    assert!(short.unwrap_err().is_timed_out());
    let leased = stage
        .client
        .permit_expirable_semaphore(&stage.name)
        .limit(1);
    let short = PermitOptions::new().wait(Duration::from_secs(1));
    assert!(
        leased
            .acquire_with(short.permits(2))
            .await
            .unwrap_err()
            .is_timed_out()
    );
    stage.end(1).await;
}

/// Holds of a semaphore without leases do not count in a new one.
#[tokio::test]
async fn a_number_made_anew_knows_nothing_of_plain_holds() {
    let stage = Stage::open("anew-plain").await;
    let semaphore = stage.client.semaphore(&stage.name).limit(2);
    let held = soon(semaphore.acquire()).await;
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    let second = soon(semaphore.acquire_many(2)).await;
    assert_eq!(
        held.release().await.unwrap(),
        redlock_rt::Unlocked::AlreadyExpired
    );
    second.release().await.unwrap();
    stage.end(2).await;
}

#[tokio::test]
async fn a_lost_reply_neither_makes_permits_nor_loses_one() {
    for loss in Loss::ALL {
        for leased in [false, true] {
            let stage = Stage::hasty("limit-lost").await;
            let calls: Matcher = match leased {
                false => calls("semaphore_acquire"),
                true => calls("permits_acquire"),
            };
            stage.lose(loss, &calls, 1);
            if leased {
                let semaphore = stage
                    .client
                    .permit_expirable_semaphore(&stage.name)
                    .limit(2);
                soon(semaphore.acquire()).await.release().await.unwrap();
            } else {
                let semaphore = stage.client.semaphore(&stage.name).limit(2);
                soon(semaphore.acquire()).await.release().await.unwrap();
            }
            stage.end(2).await;
        }
    }
}
