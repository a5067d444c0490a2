//! A caller that is dropped at any point leaves no permit taken.

use std::future::poll_fn;
use std::task::Poll;

use tests::{calls, eventually, within};

use crate::stage::{DEADLINE, Stage};

/// Polls at most this often, then drops; returns the output if it completed before.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(cx);
        if left == 0 && polled.is_pending() {
            return Poll::Ready(None);
        }
        polled.map(Some)
    })
    .await
}

#[tokio::test]
async fn an_acquisition_dropped_at_any_await_takes_nothing() {
    let stage = Stage::open("cancel").await;
    let semaphore = stage.semaphore(2).await;
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    for free in [true, false] {
        for times in 0..30 {
            let held = match free {
                true => None,
                false => Some(semaphore.acquire_many(2).await.unwrap()),
            };
            let release = async {
                tokio::task::yield_now().await;
                drop(held);
            };
            let plain = polled(times, semaphore.acquire_many(2));
            let (guard, ()) = within(DEADLINE, async { tokio::join!(plain, release) }).await;
            drop(guard.map(Result::unwrap));
            stage.free_is(2).await;
            let guard = polled(times, leased.acquire_many(2)).await;
            drop(guard.map(Result::unwrap));
            stage.free_is(2).await;
        }
    }
    stage.end(2).await;
}

/// Whatever happens to the reply of a dropped call.
#[tokio::test]
async fn an_acquisition_dropped_before_its_reply_takes_nothing() {
    let stage = Stage::open("reply").await;
    let semaphore = stage.semaphore(2).await;
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    drop(semaphore.acquire().await.unwrap());
    drop(leased.acquire().await.unwrap());
    stage.free_is(2).await;
    for request in [true, false] {
        for calls in [calls("semaphore_acquire"), calls("permits_acquire")] {
            let gate = match request {
                true => stage.proxy.hold_request(calls),
                false => stage.proxy.hold_reply(calls),
            };
            let task = tokio::spawn({
                let (semaphore, leased) = (semaphore.clone(), leased.clone());
                async move {
                    tokio::join!(semaphore.acquire(), leased.acquire())
                        .0
                        .map(drop)
                }
            });
            within(DEADLINE, gate.reached()).await;
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
            gate.open();
            stage.free_is(2).await;
            eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
            assert_eq!(stage.free().await, 2);
        }
    }
    stage.end(2).await;
}
