//! Commands that arrive after all later ones, as happens if an ACL forbids to kill the broken
//! connection.

use std::time::Duration;

use bytes::Bytes;
use redlock_rt::PermitOptions;
use tests::{Loss, calls, eventually, within};

use crate::stage::{DEADLINE, Stage};

/// The first call of a script since the proxy's mark, which is lost.
struct Late(Vec<Bytes>);

impl Late {
    fn first(stage: &Stage) -> Self {
        let calls = stage.proxy.frames().into_iter();
        let mut calls = calls.filter(|frame| frame.is_call());
        Self(calls.next().unwrap().args)
    }

    async fn arrive(self, stage: &Stage) -> redis::Value {
        stage.redis_raw(&self.0).await
    }
}

#[tokio::test]
async fn a_late_acquisition_that_was_refused_meanwhile_takes_nothing_after_the_release() {
    let stage = Stage::hasty("late-refused").await;
    let semaphore = stage.semaphore(1).await;
    let guard = semaphore.acquire().await.unwrap();
    let acquires = calls("semaphore_acquire");
    stage.proxy.mark();
    stage.lose(Loss::Request, &acquires, 1);
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    // Its second try was refused.
    stage.listening(1).await;
    let late = Late::first(&stage);
    guard.release().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_eq!(stage.free().await, 1);
    late.arrive(&stage).await;
    assert_eq!(stage.free().await, 1, "a permit that nobody has is taken");
    stage.end(1).await;
}

#[tokio::test]
async fn a_late_acquisition_that_was_refused_meanwhile_takes_nothing_after_the_wait() {
    for cancelled in [false, true] {
        let stage = Stage::hasty("late-over").await;
        let semaphore = stage.semaphore(1).await;
        let guard = semaphore.acquire().await.unwrap();
        let acquires = calls("semaphore_acquire");
        stage.proxy.mark();
        stage.lose(Loss::Request, &acquires, 1);
        let wait = match cancelled {
            true => None,
            // Longer than the response time-out: the second try is refused, and the waiter subscribes.
            false => Some(Duration::from_secs(3)),
        };
        let waiter = tokio::spawn({
            let semaphore = semaphore.clone();
            async move {
                semaphore
                    .acquire_with(PermitOptions::new().wait(wait))
                    .await
            }
        });
        stage.listening(1).await;
        match cancelled {
            true => waiter.abort(),
            false => {
                let error = within(DEADLINE, waiter).await.unwrap().unwrap_err();
                assert!(error.is_timed_out(), "{error}");
            }
        }
        stage.waiting(0).await;
        eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        let late = Late::first(&stage);
        guard.release().await.unwrap();
        late.arrive(&stage).await;
        assert_eq!(stage.free().await, 1, "a permit that nobody has is taken");
        stage.end(1).await;
    }
}

#[tokio::test]
async fn a_late_acquisition_of_what_was_forgotten_takes_nothing_more() {
    let stage = Stage::hasty("late-forgotten").await;
    let semaphore = stage.semaphore(2).await;
    let acquires = calls("semaphore_acquire");
    stage.proxy.mark();
    stage.lose(Loss::Request, &acquires, 1);
    semaphore.acquire().await.unwrap().forget();
    eventually(DEADLINE, async || stage.client.stats().names == 0).await;
    Late::first(&stage).arrive(&stage).await;
    assert_eq!(stage.free().await, 1, "a permit that nobody has is taken");
    semaphore.release(1).await.unwrap();
    stage.end(2).await;
}

/// The lease may be long.
#[tokio::test]
async fn a_late_acquisition_of_a_leased_permit_takes_nothing_after_the_release() {
    let stage = Stage::hasty("late-leased").await;
    let semaphore = stage.permits(2).await;
    let acquires = calls("permits_acquire");
    let options = || PermitOptions::new().lease(Duration::from_secs(3600));
    for released in [true, false] {
        stage.proxy.mark();
        if released {
            stage.lose(Loss::Request, &acquires, 1);
            let permit = semaphore.acquire_with(options()).await.unwrap();
            permit.release().await.unwrap();
        } else {
            // A call that ended with an unknown outcome.
            let gate = stage
                .proxy
                .hold_request(acquires.clone().mentioning(&stage.name));
            let options = options().wait(Duration::from_millis(50));
            semaphore.acquire_with(options).await.unwrap_err();
            gate.reached().await;
            gate.open();
            eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        }
        Late::first(&stage).arrive(&stage).await;
        assert_eq!(stage.free().await, 2, "a permit that nobody has is taken");
    }
    stage.end(2).await;
}

/// There were no permits to drain when the repeat came.
#[tokio::test]
async fn a_late_drain_of_what_was_not_there_takes_nothing() {
    let stage = Stage::hasty("late-drain").await;
    let semaphore = stage.client.semaphore(&stage.name);
    stage.proxy.mark();
    stage.lose(Loss::Request, &calls("semaphore_drain"), 1);
    assert_eq!(semaphore.drain().await.unwrap(), 0);
    assert!(semaphore.try_set_permits(3).await.unwrap());
    Late::first(&stage).arrive(&stage).await;
    assert_eq!(stage.free().await, 3);
    stage.end(3).await;
}
