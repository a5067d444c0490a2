//! Waiting under a deadline.

use std::{cell::Cell, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tests::{eventually, within};

use crate::{DEADLINE, MOMENT};

async fn panic_message(future: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(future).catch_unwind().await.unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap()
}

#[tokio::test]
async fn the_probe_is_asked_until_it_says_yes() {
    let asked = Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        asked.get()
    };
    eventually(DEADLINE, async || count() == 3).await;
    assert_eq!(
        eventually(DEADLINE, async || (count() == 6).then_some("six")).await,
        "six"
    );
    assert_eq!(
        eventually(DEADLINE, async || if count() < 9 {
            Err("no")
        } else {
            Ok(9)
        })
        .await,
        9
    );
}

#[tokio::test]
async fn a_failure_names_the_line_and_the_last_answer() {
    let text = panic_message(eventually(MOMENT, async || Err::<(), _>("two keys left"))).await;
    assert!(
        text.contains("eventually.rs:") && text.ends_with("100ms: two keys left"),
        "{text}"
    );
    let text = panic_message(within(MOMENT, std::future::pending())).await;
    assert!(
        text.contains("eventually.rs:") && text.ends_with("within 100ms"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_in_time_gives_its_output() {
    assert_eq!(
        within(DEADLINE, tokio::time::sleep(Duration::ZERO).map(|()| 1)).await,
        1
    );
}
