//! Calls dropped between any two polls, while every connection moves a few bytes at a time.

use std::time::Duration;

use redlock_rt::{Client, Fire};
use tests::{LeakCheck, Wires, at_every_await, polled, within};

use crate::stage::{DEADLINE, fire_time, run};

struct Case {
    client: Client,
    /// On separate, fast wires.
    other: Client,
}

impl Case {
    fn new() -> Self {
        let (_, client, other) = Wires::slow_beside_fast();
        Self { client, other }
    }

    /// The fire for the other client, which waits for nobody.
    async fn fate(&self) -> Fire {
        let once = self.other.once("job", fire_time()).attempts(1);
        let once = once.wait(Duration::ZERO);
        within(DEADLINE, once.start()).await.unwrap()
    }

    /// Asserts that the client has left nothing.
    async fn assert_clean(&self) {
        let check = LeakCheck::without_redis("job").client(&self.client);
        check.assert_clean().await;
    }
}

#[test]
fn a_start_that_is_dropped_leaves_nothing_and_counts_for_nothing() {
    at_every_await(10, async |times| {
        let case = Case::new();
        let once = case.client.once("job", fire_time()).attempts(1);
        let mut fire = None;
        let done = polled(async { fire = Some(once.start().await) }, times).await;
        let ran = matches!(fire.take(), Some(Ok(Fire::Run(_))));
        case.assert_clean().await;
        match case.fate().await {
            Fire::Failed => assert!(ran),
            Fire::Run(_) => assert!(!ran),
            other => panic!("{other:?}"),
        }
        done
    });
}

#[test]
fn a_mark_that_is_dropped_is_made_once_it_has_begun() {
    at_every_await(3, async |times| {
        let case = Case::new();
        let guard = run(&case.client.once("job", fire_time()).attempts(1)).await;
        let done = polled(guard.done(), times).await;
        case.assert_clean().await;
        match case.fate().await {
            Fire::Done(_) => assert!(times > 0),
            Fire::Failed => assert_eq!(times, 0),
            other => panic!("{other:?}"),
        }
        done
    });
}

#[test]
fn a_wait_that_is_dropped_while_it_is_done_leaves_nothing() {
    at_every_await(3, async |times| {
        let case = Case::new();
        let guard = run(&case.other.once("job", fire_time())).await;
        let once = case.client.once("job", fire_time());
        let mut call = Box::pin(once.start());
        // Asked, subscribed, asked again.
        assert!(!polled(call.as_mut(), 300).await);
        guard.done().await.unwrap();
        let done = polled(call, times).await;
        case.assert_clean().await;
        assert!(matches!(case.fate().await, Fire::Done(_)));
        done
    });
}
