//! The tokens of holds.

use std::time::{Duration, SystemTime};

use redlock_rt::{Client, LockOptions, Owner};
use tests::{CALL, Proxy, shared_server, within};

use crate::{DEADLINE, Scene};

fn micros() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

#[tokio::test]
async fn the_token_of_a_hold_is_greater_than_those_before() {
    let scene = Scene::open("grow").await;
    assert_eq!(scene.lock.token().await.unwrap(), None);
    let mut last = micros() - 1;
    for _ in 0..20 {
        let token = scene.token().await;
        assert!(token > last, "{token} after {last}");
        last = token;
        let stored: String = scene.redis(&["GET", &scene.counter()]).await;
        assert_eq!(stored, token.to_string());
        assert_eq!(scene.lock.token().await.unwrap(), Some(token));
    }
    assert!(last <= micros(), "the time in microseconds");
    let ttl: i64 = scene.redis(&["PTTL", &scene.counter()]).await;
    assert_eq!(ttl, -1, "it stays");
    scene.end().await;
}

#[tokio::test]
async fn re_entry_keeps_the_token() {
    let scene = Scene::open("re-entry").await;
    let owner = Owner::new();
    let outer = scene
        .lock
        .lock_with(LockOptions::new().owner(&owner))
        .await
        .unwrap();
    let (by_guard, by_owner, by_frame) = (
        outer.reenter().await.unwrap(),
        scene
            .lock
            .lock_with(LockOptions::new().owner(&owner))
            .await
            .unwrap(),
        outer.run(scene.lock.lock()).await.unwrap().unwrap(),
    );
    assert_eq!(outer.hold_count(), 4);
    let inner = [by_guard, by_owner, by_frame];
    assert!(inner.iter().all(|guard| guard.token() == outer.token()));
    assert_eq!(scene.lock.token().await.unwrap(), Some(outer.token()));
    let token = outer.token();
    outer.unlock().await.unwrap();
    for guard in inner {
        assert_eq!(guard.token(), token);
        guard.unlock().await.unwrap();
    }
    assert!(scene.token().await > token);
    scene.end().await;
}

/// A refused try uses no token.
#[tokio::test]
async fn a_refused_try_mints_nothing() {
    let scene = Scene::open("refused").await;
    let other = Client::connect(&shared_server().url()).await.unwrap();
    let guard = scene.lock.try_lock().await.unwrap().unwrap();
    let elsewhere = other.fenced_lock(&scene.name);
    assert!(elsewhere.try_lock().await.unwrap().is_none());
    assert_eq!(elsewhere.token().await.unwrap(), Some(guard.token()));
    guard.unlock().await.unwrap();
    scene.end().await;
}

/// Above the clock, so that each token is one more than the last, and an extra one shows.
const AHEAD: u64 = 5_000_000_000_000_000;

#[tokio::test]
async fn an_acquisition_whose_reply_is_lost_has_one_token() {
    let proxy = Proxy::to(&shared_server());
    let scene = Scene::at("lost-reply", &proxy.url()).await;
    scene.token().await;
    scene.count(&AHEAD.to_string()).await;
    proxy.mark();
    proxy.cut_after_request(CALL);
    let guard = within(DEADLINE, scene.lock.lock()).await.unwrap();
    assert_eq!(proxy.counts()["EVALSHA"], 2, "it was repeated");
    assert_eq!(guard.token(), AHEAD + 1);
    assert_eq!(scene.lock.token().await.unwrap(), Some(AHEAD + 1));
    guard.unlock().await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn a_repeat_finds_the_counter_forgotten() {
    let proxy = Proxy::to(&shared_server());
    let scene = Scene::at("forgotten", &proxy.url()).await;
    let before = scene.token().await;
    proxy.mark();
    let gate = proxy.hold_reply(CALL);
    let lock = scene.lock.clone();
    let acquires = tokio::spawn(async move { lock.lock().await.unwrap() });
    // The call has run, and the reply is in flight.
    gate.reached().await;
    let _: bool = scene.redis(&["DEL", &scene.counter()]).await;
    proxy.cut_all();
    gate.open();
    let guard = within(DEADLINE, acquires).await.unwrap();
    assert!(guard.token() > before);
    assert_eq!(scene.lock.token().await.unwrap(), Some(guard.token()));
    guard.unlock().await.unwrap();
    scene.end().await;
}

/// A cancelled acquisition leaves at most a gap.
#[tokio::test]
async fn a_cancelled_acquisition_leaves_no_lock() {
    let proxy = Proxy::to(&shared_server());
    let scene = Scene::at("cancelled", &proxy.url()).await;
    let before = scene.token().await;
    proxy.mark();
    let gate = proxy.hold_reply(CALL);
    let lock = scene.lock.clone();
    let acquires = tokio::spawn(async move { lock.lock().await.unwrap() });
    gate.reached().await;
    acquires.abort();
    assert!(acquires.await.unwrap_err().is_cancelled());
    gate.open();
    tests::eventually(DEADLINE, async || scene.client.stats().names == 0).await;
    assert!(!scene.lock.is_locked().await.unwrap());
    assert!(scene.token().await > before);
    scene.end().await;
}

/// The lease outlives the guard: no hold has two tokens, and a later token is greater.
#[tokio::test]
async fn the_token_outlives_the_loss() {
    let scene = Scene::open("loss").await;
    let short = LockOptions::new()
        .lease(Duration::from_millis(100))
        .renew(false);
    let late = scene.lock.lock_with(short).await.unwrap();
    let token = late.token();
    within(DEADLINE, late.lost()).await;
    let next = within(DEADLINE, scene.lock.lock()).await.unwrap();
    assert!(next.token() > token);
    assert_eq!(late.token(), token, "what it must be refused by");
    next.unlock().await.unwrap();
    drop(late);
    scene.end().await;
}
