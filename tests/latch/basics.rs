//! The effect and the result of each operation.

use futures::{FutureExt, StreamExt};
use redlock_rt::{Client, ErrorKind, Shutdown};
use tests::{RedisServer, assert_error, shared_server, within};

use crate::stage::{DEADLINE, Stage, ended, wait, waiting};

#[tokio::test]
async fn a_latch_is_announced_when_it_is_set_and_when_it_opens() {
    let stage = Stage::open("latch-life").await;
    let latch = stage.latch();
    let pubsub = redis::Client::open(shared_server().url()).unwrap();
    let mut pubsub = pubsub.get_async_pubsub().await.unwrap();
    pubsub.subscribe(stage.channel()).await.unwrap();
    assert!(latch.try_set_count(2).await.unwrap());
    assert_eq!((stage.count().await, stage.mark().await), (Some(2), None));
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!((stage.count().await, stage.mark().await), (None, None));
    let mut messages = pubsub.on_message();
    for expected in ["1", "0"] {
        let message = within(DEADLINE, messages.next()).await.unwrap();
        assert_eq!(message.get_payload::<String>().unwrap(), expected);
    }
    drop(messages);
    drop(pubsub);
    stage.assert_clean().await;
}

/// A number of Lua is exact up to 2^53. A call that counted down such a latch failed.
#[tokio::test]
async fn a_count_that_another_program_set_may_be_above_two_to_the_53() {
    let stage = Stage::open("latch-large").await;
    let latch = stage.latch();
    for count in [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX] {
        let _: () = stage.redis(&["SET", &stage.name, &count.to_string()]).await;
        let left = count.unsigned_abs() - 1;
        assert_eq!(latch.count_down().await.unwrap(), left);
        assert_eq!(latch.count().await.unwrap(), left);
    }
    assert!(latch.delete().await.unwrap());
    stage.assert_clean().await;
}

#[tokio::test]
async fn another_type_of_value_is_told_to_all_that_wait() {
    let stage = Stage::open("latch-type").await;
    let client = stage.client();
    let latch = client.count_down_latch(&stage.name);
    latch.try_set_count(1).await.unwrap();
    let waits: Vec<_> = (0..20).map(|_| wait(&latch)).collect();
    waiting(&client, 20).await;
    stage.subscribed(1).await;
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    let _: usize = stage.redis(&["RPUSH", &stage.name, "a"]).await;
    let _: usize = stage.redis(&["PUBLISH", &stage.channel(), "0"]).await;
    for waits in waits {
        assert_error(ended(waits).await, ErrorKind::WrongType, &stage.name);
    }
    assert_error(latch.count_down().await, ErrorKind::WrongType, &stage.name);
    assert_error(latch.count().await, ErrorKind::WrongType, &stage.name);
    let _: () = stage.redis(&["SET", &stage.name, "many"]).await;
    assert_error(latch.wait().await, ErrorKind::WrongType, &stage.name);
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    stage.assert_clean().await;
}

/// Waiters get the error at once, also while the client waits for guards to end.
#[tokio::test]
async fn a_client_that_drains_wakes_its_waiters_first() {
    let stage = Stage::open("latch-drain").await;
    let client = stage.client();
    let latch = client.count_down_latch(&stage.name);
    latch.try_set_count(1).await.unwrap();
    let guard = client
        .rlock(format!("{}:lock", stage.name))
        .lock()
        .await
        .unwrap();
    let waits = wait(&latch);
    waiting(&client, 1).await;
    let ends = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(Shutdown::Drain(2 * DEADLINE)).await }
    });
    assert_error(ended(waits).await, ErrorKind::ShutDown, &stage.name);
    assert!(!ends.is_finished());
    guard.unlock().await.unwrap();
    within(DEADLINE, ends).await.unwrap().unwrap();
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    stage.assert_clean().await;
}

/// Its count went missing with the client, and the latch stayed closed.
#[tokio::test]
async fn a_client_that_drains_waits_for_guards_that_count_down() {
    let stage = Stage::open("latch-drain-guard").await;
    let client = stage.client();
    let latch = client.count_down_latch(&stage.name);
    latch.try_set_count(1).await.unwrap();
    let guard = latch.count_down_guard().unwrap();
    let ends = client.shutdown(Shutdown::Drain(2 * DEADLINE));
    tokio::pin!(ends);
    assert!((&mut ends).now_or_never().is_none());
    assert_eq!(stage.count().await, Some(1));
    drop(guard);
    within(DEADLINE, ends).await.unwrap();
    assert_eq!(stage.count().await, None);
    stage.assert_clean().await;
}

#[tokio::test]
async fn the_namespace_is_part_of_the_name() {
    let mut stage = Stage::open("latch-space").await;
    let url = shared_server().url();
    let client = Client::builder()
        .url(&url)
        .namespace("svc")
        .build()
        .unwrap();
    let latch = client.count_down_latch(&stage.name);
    stage.name = format!("svc:{}", stage.name);
    latch.try_set_count(1).await.unwrap();
    assert_eq!(stage.count().await, Some(1));
    let waits = wait(&latch);
    stage.subscribed(1).await;
    stage.latch().count_down().await.unwrap();
    ended(waits).await.unwrap();
    stage.assert_clean().await;
}

/// Otherwise the waiters would wait for the user of the memory.
#[tokio::test]
async fn a_count_down_needs_no_memory() {
    let server = RedisServer::start();
    let stage = Stage::on(&server, "latch-full").await;
    let latch = stage.latch();
    assert!(latch.try_set_count(2).await.unwrap());
    let guard = latch.count_down_guard().unwrap();
    let waits = wait(&latch);
    stage.subscribed(1).await;
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(within(DEADLINE, latch.count_down()).await.unwrap(), 1);
    drop(guard);
    ended(waits).await.unwrap();
    let refused = latch.try_set_count(1).await;
    assert_error(refused, ErrorKind::Unavailable, &stage.name);
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    stage.assert_clean().await;
}
