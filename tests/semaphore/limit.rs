//! A limit: the first acquisition sets the number of permits.

use std::time::Duration;

use redlock_rt::{Error, PermitExpirableSemaphore, PermitOptions, Semaphore};
use tests::{CALL, Loss, Matcher, calls, within};

use crate::stage::{DEADLINE, Stage};

async fn soon<T>(acquired: impl Future<Output = Result<T, Error>>) -> T {
    within(DEADLINE, acquired).await.unwrap()
}

/// Both kinds of semaphores, with this limit.
fn both(stage: &Stage, limit: u32) -> (Semaphore, PermitExpirableSemaphore) {
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    let plain = stage.client.semaphore(&stage.name);
    (plain.limit(limit), leased.limit(limit))
}

#[tokio::test]
async fn the_first_acquisition_sets_the_number_and_costs_one_call() {
    let stage = Stage::open("first").await;
    let (semaphore, leased) = both(&stage, 3);
    // Loads both scripts.
    drop(semaphore.try_acquire().await.unwrap().unwrap());
    drop(leased.try_acquire().await.unwrap().unwrap());
    for is_leased in [false, true] {
        stage.free_is(3).await;
        let _: () = stage.redis(&["DEL", &stage.name]).await;
        stage.proxy.mark();
        match is_leased {
            true => drop(soon(leased.acquire_many(2)).await),
            false => drop(soon(semaphore.acquire_many(2)).await),
        }
        stage.free_is(3).await;
        // And one that gives them back.
        assert_eq!(stage.proxy.count(CALL), 2);
    }
    stage.end(3).await;
}

/// The caller asks for more permits than the limit: the semaphore is created, and the caller waits.
#[tokio::test]
async fn a_limit_below_what_is_asked_for_is_a_wait() {
    let stage = Stage::open("below").await;
    let (semaphore, leased) = both(&stage, 1);
    let short = semaphore
        .acquire_with(PermitOptions::new().permits(2).wait(Duration::from_secs(1)))
        .await;
    assert!(short.unwrap_err().is_timed_out());
    let short = PermitOptions::new().wait(Duration::from_secs(1));
    let short = leased.acquire_with(short.permits(2)).await;
    assert!(short.unwrap_err().is_timed_out());
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
            let (plain, expirable) = both(&stage, 2);
            if leased {
                soon(expirable.acquire()).await.release().await.unwrap();
            } else {
                soon(plain.acquire()).await.release().await.unwrap();
            }
            stage.end(2).await;
        }
    }
}
