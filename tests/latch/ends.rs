//! A latch that ends without being counted down: whoever waits is told, early or late.

use std::time::Duration;

use redlock_rt::{Error, ErrorKind};
use tests::{Proxy, eventually, shared_server};

use crate::stage::{DEADLINE, Stage, ended, wait};

#[track_caller]
fn assert_gone(outcome: Result<(), Error>, kind: ErrorKind, name: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_latch_gone() && !error.is_timed_out());
    let text = error.to_string();
    assert!(
        text.contains(&format!("wait for latch {name:?}: the latch ")),
        "{text}"
    );
}

#[tokio::test]
async fn deleted_while_waiting() {
    let stage = Stage::open("latch-delete").await;
    let (latch, other) = (stage.latch(), stage.latch());
    latch.try_set_count(1).await.unwrap();
    let waits = [wait(&latch), wait(&other), wait(&other)];
    stage.subscribed(2).await;
    assert!(latch.delete().await.unwrap());
    for waits in waits {
        assert_gone(ended(waits).await, ErrorKind::LatchDeleted, &stage.name);
    }
    // And who comes late.
    assert_gone(other.wait().await, ErrorKind::LatchDeleted, &stage.name);
    let looked = other.wait_with(Duration::ZERO).await;
    assert_gone(looked, ErrorKind::LatchDeleted, &stage.name);
    assert!(!latch.delete().await.unwrap());
    assert!(!other.delete().await.unwrap());
    assert_eq!(other.count_down().await.unwrap(), 0);
    assert_gone(latch.wait().await, ErrorKind::LatchDeleted, &stage.name);
    assert_eq!(latch.count().await.unwrap(), 0);
    // A new one has an end of its own.
    latch.try_set_count(1).await.unwrap();
    assert_eq!(stage.mark().await, None);
    latch.count_down().await.unwrap();
    other.wait().await.unwrap();
    stage.assert_clean().await;
}

/// Nobody heard of it: neither the message nor the latch is there any more.
#[tokio::test]
async fn deleted_while_nobody_could_hear_it() {
    let proxy = Proxy::to(&shared_server());
    let mut stage = Stage::open("latch-unheard").await;
    let latch = stage.latch();
    latch.try_set_count(1).await.unwrap();
    stage.clients_connect_to(proxy.url());
    let waits = wait(&stage.latch());
    stage.subscribed(1).await;
    proxy.refuse();
    proxy.cut_all();
    stage.subscribed(0).await;
    latch.delete().await.unwrap();
    proxy.accept();
    assert_gone(ended(waits).await, ErrorKind::LatchDeleted, &stage.name);
    stage.assert_clean().await;
}

#[tokio::test]
async fn expired_while_waiting() {
    let stage = Stage::open("latch-expire").await;
    // Nothing announces it, and nobody polls: they know when it is over.
    let (latch, other) = (stage.latch().ttl(Duration::from_millis(300)), stage.latch());
    assert!(latch.try_set_count(2).await.unwrap());
    let ttl: i64 = stage.redis(&["PTTL", &stage.name]).await;
    assert!((1..=300).contains(&ttl), "{ttl}");
    let waits = [wait(&latch), wait(&other), wait(&other)];
    assert_eq!(other.count_down().await.unwrap(), 1);
    let ttl: i64 = stage.redis(&["PTTL", &stage.name]).await;
    assert!((1..=300).contains(&ttl), "counting down keeps it: {ttl}");
    for waits in waits {
        assert_gone(ended(waits).await, ErrorKind::LatchExpired, &stage.name);
    }
    // And who comes late.
    assert_gone(other.wait().await, ErrorKind::LatchExpired, &stage.name);
    assert_eq!(other.count_down().await.unwrap(), 0);
    assert_gone(other.wait().await, ErrorKind::LatchExpired, &stage.name);
    assert!(other.try_set_count(1).await.unwrap());
    assert_eq!(stage.mark().await, None);
    let ttl: i64 = stage.redis(&["PTTL", &stage.name]).await;
    assert_eq!(ttl, -1);
    other.count_down().await.unwrap();
    other.wait().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn counted_down_in_time_it_has_not_expired() {
    let stage = Stage::open("latch-in-time").await;
    let latch = stage.latch().ttl(Duration::from_millis(200));
    latch.try_set_count(1).await.unwrap();
    let waits = wait(&latch);
    stage.subscribed(1).await;
    latch.count_down().await.unwrap();
    ended(waits).await.unwrap();
    assert_eq!(stage.mark().await, None);
    latch.wait().await.unwrap();
    stage.assert_clean().await;
}

/// Redisson counts down without our mark: gone before its time is counted down, also later.
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

/// A latch of Redisson's after one of ours that was deleted: it ends in its own way.
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
    // Or when one of ours counts it down.
    latch.try_set_count(1).await.unwrap();
    latch.delete().await.unwrap();
    let _: () = stage.redis(&["SET", &stage.name, "1"]).await;
    latch.count_down().await.unwrap();
    latch.wait().await.unwrap();
    stage.assert_clean().await;
}
