//! A latch that ends without being counted down: early and late waiters get the error.

use std::time::Duration;

use redlock_rt::ErrorKind;
use tests::eventually;

use crate::stage::{DEADLINE, Stage, ended, wait};

/// No client was subscribed: both the message and the latch are gone.
#[tokio::test]
async fn deleted_while_nobody_could_hear_it() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-unheard").await;
    let waits = wait(&stage.latch());
    stage.subscribed(1).await;
    proxy.refuse();
    proxy.cut_all();
    stage.subscribed(0).await;
    latch.delete().await.unwrap();
    proxy.accept();
    let error = ended(waits).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LatchDeleted, "{error}");
    stage.assert_clean().await;
}

/// Redisson counts down without changing our mark: a latch that is gone before the time in the mark
/// counts as counted down, also later.
#[tokio::test]
async fn ended_by_another_client_before_its_time_it_was_counted_down() {
    let stage = Stage::open("latch-java-end").await;
    let time = Duration::from_millis(400);
    let latch = stage.latch().ttl(time);
    latch.try_set_count(1).await.unwrap();
    let till: u64 = stage.mark().await.unwrap().parse().unwrap();
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    latch.wait().await.unwrap();
    assert_eq!(stage.mark().await, None);
    let past = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_millis() > u128::from(till) + 1
    };
    eventually(DEADLINE, async || past()).await;
    latch.wait().await.unwrap();
    stage.assert_clean().await;
}

/// A latch of Redisson after a deleted latch of ours: the old mark does not apply to it.
#[tokio::test]
async fn the_mark_of_an_older_latch_is_not_taken_for_that_of_the_next() {
    let stage = Stage::open("latch-old-mark").await;
    let latch = stage.latch();
    latch.try_set_count(1).await.unwrap();
    latch.delete().await.unwrap();
    let _: () = stage.redis(&["SET", &stage.name, "1"]).await;
    let waits = wait(&latch);
    stage.subscribed(1).await;
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    let _: usize = stage.redis(&["PUBLISH", &stage.channel(), "0"]).await;
    ended(waits).await.unwrap();
    // The same if our client counts it down.
    latch.try_set_count(1).await.unwrap();
    latch.delete().await.unwrap();
    let _: () = stage.redis(&["SET", &stage.name, "1"]).await;
    latch.count_down().await.unwrap();
    latch.wait().await.unwrap();
    stage.assert_clean().await;
}
