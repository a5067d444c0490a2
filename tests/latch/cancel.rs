//! Calls dropped between any two polls, while every connection moves a few bytes at a time.

use std::{future::poll_fn, pin::pin, task::Poll};

use redlock_rt::{Client, CountDownLatch};
use tests::{LeakCheck, Wires, at_every_await, polled, within};

use crate::stage::{DEADLINE, ended, wait, waiting};

const NAME: &str = "cancelled";

struct Case {
    wires: Wires,
    client: Client,
    latch: CountDownLatch,
    /// On separate, fast wires.
    other: CountDownLatch,
}

impl Case {
    fn new() -> Self {
        let (wires, client, other) = Wires::slow_beside_fast();
        Self {
            latch: client.count_down_latch(NAME),
            other: other.count_down_latch(NAME),
            client,
            wires,
        }
    }

    /// Asserts that the client has left nothing.
    async fn assert_clean(&self) {
        let check = LeakCheck::without_redis(NAME).client(&self.client);
        check.assert_clean().await;
    }
}

#[test]
fn a_wait_that_is_dropped_leaves_nothing() {
    at_every_await(10, async |times| {
        let case = Case::new();
        case.other.try_set_count(1).await.unwrap();
        assert!(!polled(case.latch.wait(), times).await, "it is closed");
        case.assert_clean().await;
        times == 200
    });
}

#[test]
fn a_wait_that_is_dropped_while_it_opens_leaves_nothing() {
    at_every_await(3, async |times| {
        let case = Case::new();
        case.other.try_set_count(1).await.unwrap();
        let mut call = Box::pin(case.latch.wait());
        // Looked, subscribed, looked again.
        assert!(!polled(call.as_mut(), 200).await);
        case.other.count_down().await.unwrap();
        let done = polled(call, times).await;
        case.assert_clean().await;
        done
    });
}

#[test]
fn a_dropped_head_wakes_the_next_waiter() {
    at_every_await(10, async |times| {
        let case = Case::new();
        case.other.try_set_count(1).await.unwrap();
        let behind = {
            let first = case.latch.wait();
            let mut first = pin!(first);
            let once = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_ready())).await;
            assert!(!once);
            let behind = wait(&case.latch);
            waiting(&case.client, 2).await;
            polled(first, times).await;
            behind
        };
        waiting(&case.client, 1).await;
        case.other.count_down().await.unwrap();
        ended(behind).await.unwrap();
        case.assert_clean().await;
        times == 120
    });
}

#[test]
fn a_count_down_that_is_dropped_counts_once_at_most() {
    at_every_await(10, async |times| {
        let case = Case::new();
        case.other.try_set_count(3).await.unwrap();
        let done = polled(case.latch.count_down(), times).await;
        case.assert_clean().await;
        // Later commands on the same connection run after it.
        let left = within(DEADLINE, case.latch.count()).await.unwrap();
        assert!(left == 2 || (left == 3 && !done), "{left} after {times}");
        done
    });
}

#[test]
fn a_guard_whose_count_down_is_dropped_counts_all_the_same() {
    at_every_await(10, async |times| {
        let case = Case::new();
        case.other.try_set_count(3).await.unwrap();
        let guard = case.latch.count_down_guard().unwrap();
        let done = polled(guard.count_down(), times).await;
        case.assert_clean().await;
        assert_eq!(case.other.count().await.unwrap(), 2, "after {times}");
        done
    });
}

#[test]
fn a_guard_counts_once_where_the_connection_is_cut_and_the_call_dropped() {
    at_every_await(10, async |times| {
        let case = Case::new();
        case.other.try_set_count(3).await.unwrap();
        case.latch.count().await.unwrap();
        let done = {
            let guard = case.latch.count_down_guard().unwrap();
            let mut call = pin!(guard.count_down());
            let done = polled(call.as_mut(), times / 2).await;
            case.wires.cut(tests::Which::All);
            done || polled(call, times - times / 2).await
        };
        case.assert_clean().await;
        assert_eq!(case.other.count().await.unwrap(), 2, "after {times}");
        done
    });
}
