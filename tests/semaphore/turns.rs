//! A waiter behind another of the same process gets the permits that the other leaves.

use std::time::{Duration, Instant};

use redlock_rt::PermitOptions;
use tests::{calls, within};

use crate::stage::{DEADLINE, Stage};

/// The head asks for three permits, two are free, and the waiter behind it needs one.
#[tokio::test]
async fn a_waiter_that_gives_up_on_several_permits_wakes_the_next_one() {
    for leased in [false, true] {
        for times_out in [false, true] {
            let stage = Stage::open("gives-up").await;
            let semaphore = stage.semaphore(3).await;
            let permits = stage.client.permit_expirable_semaphore(&stage.name);
            let one = semaphore.acquire().await.unwrap();
            let wait = times_out.then_some(Duration::from_secs(3));
            let greedy = tokio::spawn({
                let (semaphore, permits) = (semaphore.clone(), permits.clone());
                async move {
                    match leased {
                        false => semaphore
                            .acquire_with(PermitOptions::new().permits(3).wait(wait))
                            .await
                            .map(drop),
                        true => {
                            let options = PermitOptions::new().wait(wait);
                            permits.acquire_with(options.permits(3)).await.map(drop)
                        }
                    }
                }
            });
            stage.listening(1).await;
            let modest = tokio::spawn(async move {
                match leased {
                    false => semaphore.acquire().await.map(drop),
                    true => permits.acquire().await.map(drop),
                }
            });
            stage.waiting(2).await;
            match times_out {
                true => {
                    let gave_up = within(DEADLINE, greedy).await.unwrap();
                    assert!(gave_up.unwrap_err().is_timed_out());
                }
                false => greedy.abort(),
            }
            within(DEADLINE, modest).await.unwrap().unwrap();
            one.release().await.unwrap();
            stage.end(3).await;
        }
    }
}

/// The permit is not released, no client polls, and the waiter that knew the end of its lease was
/// served meanwhile.
#[tokio::test]
async fn the_next_in_line_takes_a_permit_when_its_lease_is_over() {
    const LEASE: Duration = Duration::from_secs(3);
    for refused in [true, false] {
        let stage = Stage::open("next").await;
        let semaphore = stage.permits(2).await;
        let dead = stage.other().permit_expirable_semaphore(&stage.name);
        let held = semaphore.acquire().await.unwrap();
        let options = PermitOptions::new().lease(LEASE);
        let begin = Instant::now();
        dead.acquire_with(options).await.unwrap().forget();
        let calls = calls("permits_acquire").mentioning(&stage.name);
        let (held, gate) = match refused {
            true => (Some(held), None),
            // Both waiters come before the first reply.
            false => {
                held.release().await.unwrap();
                (None, Some(stage.proxy.hold_request(calls)))
            }
        };
        let waits = || {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.unwrap() })
        };
        let first = waits();
        stage.waiting(1).await;
        let second = waits();
        stage.waiting(2).await;
        match gate {
            Some(gate) => {
                gate.reached().await;
                gate.open();
            }
            None => stage.listening(2).await,
        }
        drop(held);
        let first = within(DEADLINE, first).await.unwrap();
        let second = within(DEADLINE, second).await.unwrap();
        let waited = begin.elapsed();
        // Nothing would wake them later.
        assert!(waited <= LEASE + DEADLINE / 4, "{waited:?}");
        drop((first, second));
        stage.end(2).await;
    }
}
