//! The cost of waiting, independent of the number of waiters.

use std::collections::BTreeMap;

use tests::{Proxy, RedisServer, calls, eventually, within};

use crate::stage::{DEADLINE, Stage, wait, waiting};

fn of(counts: &BTreeMap<String, usize>, command: &str) -> usize {
    counts.get(command).copied().unwrap_or_default()
}

#[tokio::test]
async fn each_operation_is_one_call() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "latch-calls").await;
    stage.clients_connect_to(proxy.url());
    let latch = stage.latch();
    let all = async || {
        latch.try_set_count(3).await.unwrap();
        latch.count_down().await.unwrap();
        latch
            .count_down_guard()
            .unwrap()
            .count_down()
            .await
            .unwrap();
        latch.count().await.unwrap();
        latch.delete().await.unwrap();
        latch.try_set_count(1).await.unwrap();
        drop(latch.count_down_guard().unwrap());
        eventually(DEADLINE, async || stage.count().await.is_none()).await;
        latch.wait().await.unwrap();
    };
    // Once for connecting and for the scripts.
    all().await;
    proxy.mark();
    all().await;
    let counts = proxy.counts();
    assert_eq!(counts, BTreeMap::from([("EVALSHA".to_owned(), 8)]));
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_one_subscription_and_a_few_looks() {
    const WAITERS: usize = 10_000;
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "latch-many").await;
    let latch = stage.latch();
    latch.try_set_count(1).await.unwrap();
    stage.clients_connect_to(proxy.url());
    let client = stage.client();
    let theirs = client.count_down_latch(&stage.name);
    assert_eq!(theirs.count().await.unwrap(), 1);
    proxy.mark();
    let mut waits: Vec<_> = (0..WAITERS).map(|_| wait(&theirs)).collect();
    waiting(&client, WAITERS).await;
    stage.subscribed(1).await;
    // One look before the subscription, one after its confirmation.
    proxy.wait_for_count(calls("latch_check"), 2).await;
    assert_eq!(client.stats().subscriptions, 1);
    // Most waiters leave, among them the head; the next head looks for the rest.
    let last = waits.split_off(WAITERS - 3000);
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    waiting(&client, 3000).await;
    let counts = proxy.counts();
    assert_eq!(of(&counts, "SUBSCRIBE"), 1, "{counts:?}");
    assert!(of(&counts, "EVALSHA") <= 3, "{counts:?}");
    proxy.mark();
    latch.count_down().await.unwrap();
    let all = futures::future::join_all(last);
    for outcome in within(DEADLINE, all).await {
        outcome.unwrap().unwrap();
    }
    let counts = proxy.counts();
    assert_eq!(of(&counts, "EVALSHA"), 1, "{counts:?}");
    stage.assert_clean().await;
}

/// The others come during the first look; one further look serves them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_latch_is_looked_at_for_all() {
    const WAITERS: usize = 10_000;
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "latch-open").await;
    stage.clients_connect_to(proxy.url());
    let client = stage.client();
    let latch = client.count_down_latch(&stage.name);
    latch.wait().await.unwrap();
    proxy.mark();
    let gate = proxy.hold_request(calls("latch_check"));
    let waits: Vec<_> = (0..WAITERS).map(|_| wait(&latch)).collect();
    waiting(&client, WAITERS).await;
    gate.reached().await;
    gate.open();
    for outcome in within(DEADLINE, futures::future::join_all(waits)).await {
        outcome.unwrap().unwrap();
    }
    let counts = proxy.counts();
    assert_eq!(of(&counts, "EVALSHA"), 2, "{counts:?}");
    assert_eq!(of(&counts, "SUBSCRIBE"), 0, "{counts:?}");
    stage.assert_clean().await;
}
