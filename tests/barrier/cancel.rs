//! Calls dropped between any two polls, while every connection moves a few bytes at a time.

use std::time::Duration;

use redlock_rt::Client;
use tests::{LeakCheck, Wires, at_every_await, polled, waits, within};

use crate::world::DEADLINE;

const NAME: &str = "cancelled";

struct Case {
    wires: Wires,
    client: Client,
    /// On separate, fast wires.
    other: Client,
}

impl Case {
    async fn new() -> Self {
        let (wires, client, other) = Wires::slow_beside_fast();
        let case = Self {
            wires,
            client,
            other,
        };
        // Loads the scripts, which are long for slow wires.
        assert!(!case.is_one_there().await);
        case
    }

    /// Asserts that the client has left nothing.
    async fn assert_clean(&self) {
        let check = LeakCheck::without_redis(NAME).client(&self.client);
        check.assert_clean().await;
    }

    /// Whether a party is there: then another one passes at once.
    async fn is_one_there(&self) -> bool {
        let barrier = self.other.cyclic_barrier(NAME, 2);
        match within(DEADLINE, barrier.wait_with(Duration::ZERO)).await {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is_timed_out(), "{error}");
                false
            }
        }
    }
}

#[test]
fn a_wait_that_is_dropped_leaves_the_barrier() {
    at_every_await(10, async |times| {
        let case = Case::new().await;
        let barrier = case.client.cyclic_barrier(NAME, 2);
        assert!(!polled(barrier.wait(), times).await, "it is alone");
        case.assert_clean().await;
        assert!(!case.is_one_there().await, "after {times}");
        times == 200
    });
}

#[test]
fn a_wait_whose_connection_is_cut_and_that_is_dropped_leaves_the_barrier() {
    at_every_await(10, async |times| {
        let case = Case::new().await;
        let barrier = case.client.cyclic_barrier(NAME, 2);
        {
            let mut call = Box::pin(barrier.wait());
            polled(call.as_mut(), times).await;
            case.wires.cut(tests::Which::All);
            polled(call, times / 3).await;
        }
        case.assert_clean().await;
        assert!(!case.is_one_there().await, "after {times}");
        times == 100
    });
}

#[test]
fn a_wait_that_is_dropped_while_it_ends_leaves_nothing() {
    at_every_await(3, async |times| {
        let case = Case::new().await;
        let barrier = case.client.cyclic_barrier(NAME, 2);
        let mut call = Box::pin(barrier.wait());
        // Arrived, looked, subscribed, looked again.
        assert!(!polled(call.as_mut(), 300).await);
        assert!(case.is_one_there().await);
        let done = polled(call, times).await;
        case.assert_clean().await;
        assert!(!case.is_one_there().await);
        done
    });
}

#[test]
fn a_wait_that_completes_a_generation_and_is_dropped_is_counted_once_or_not_at_all() {
    at_every_await(10, async |times| {
        let case = Case::new().await;
        let other = case.other.cyclic_barrier(NAME, 2);
        let first = tokio::spawn({
            let other = other.clone();
            async move { other.wait().await }
        });
        waits(&case.other, 1).await;
        let done = polled(case.client.cyclic_barrier(NAME, 2).wait(), times).await;
        case.assert_clean().await;
        // If it had not arrived, this completes the generation in its place.
        let in_its_place = case.is_one_there().await;
        assert!(!done || !in_its_place, "after {times}");
        within(DEADLINE, first).await.unwrap().unwrap();
        assert!(!case.is_one_there().await, "after {times}");
        done
    });
}

#[test]
fn a_guard_that_is_dropped_while_it_leaves_has_left() {
    at_every_await(3, async |times| {
        let case = Case::new().await;
        let (ours, theirs) = (
            case.client.double_barrier(NAME, 2),
            case.other.double_barrier(NAME, 2),
        );
        let (guard, other) = within(DEADLINE, async {
            tokio::try_join!(ours.enter(), theirs.enter()).unwrap()
        })
        .await;
        assert!(!polled(guard.leave(), times).await, "the other is inside");
        within(DEADLINE, other.leave()).await.unwrap();
        case.assert_clean().await;
        times == 200
    });
}
