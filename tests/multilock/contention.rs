//! Waiting for several locks: in one order, within one wait.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{Client, ErrorKind, LockOptions, MultiLock, embedded::Engine};
use tests::{Matcher, Proxy, RedisServer, assert_clean, eventually, within};
use tokio::time::Instant;

use crate::{DEADLINE, client, names, settings};

#[tokio::test]
async fn a_release_wakes_who_waits_for_several() {
    let (server, prefix, names) = names("wake");
    let (client, other) = (client(&server), client(&server));
    let all = other.multi_lock(&names).lock().await.unwrap();
    let lock = client.multi_lock(&names);
    let call = tokio::spawn(async move { lock.lock().await });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    // The call holds no lock while it waits for the first.
    assert_eq!(client.stats().held, 0);
    all.unlock().await.unwrap();
    let guard = within(DEADLINE, call).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    assert_clean(&server, &prefix, [&client, &other]).await;
}

/// A lock without renewal ended while its caller waited for the next one.
#[tokio::test(start_paused = true)]
async fn a_lock_with_a_fixed_lease_is_kept_while_the_next_one_is_waited_for() {
    const LEASE: Duration = Duration::from_secs(3);
    let engine = Engine::new();
    let client = || settings(Client::builder().embedded(&engine));
    let (here, other) = (client(), client());
    let last = other.rlock("b").lock().await.unwrap();
    let lock = here.multi_lock(["a", "b"]);
    let options = LockOptions::new().lease(LEASE).renew(false);
    let call = tokio::spawn(async move { lock.lock_with(options).await });
    eventually(DEADLINE, async || here.stats().held == 1).await;
    for _ in 0..4 {
        tokio::time::sleep(LEASE * 2 / 3).await;
        assert!(other.rlock("a").is_locked().await.unwrap());
    }
    last.unlock().await.unwrap();
    let guard = call.await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn the_wait_is_one_budget_for_all() {
    const WAIT: Duration = Duration::from_secs(4);
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (here, there) = (client(&one), client(&two));
    let other = client(&two);
    let lock = MultiLock::new([here.rlock("a"), there.rlock("b"), there.rlock("c")]);
    let first = client(&one).rlock("a").lock().await.unwrap();
    let _last = other.rlock("c").lock().await.unwrap();
    let begun = Instant::now();
    let call = tokio::spawn(async move { lock.lock_with(LockOptions::new().wait(WAIT)).await });
    eventually(DEADLINE, async || here.stats().waiting == 1).await;
    tokio::time::sleep_until(begun + WAIT / 2).await;
    first.unlock().await.unwrap();
    let error = within(DEADLINE, call).await.unwrap().unwrap_err();
    let took = begun.elapsed();
    assert!(took >= WAIT && took < WAIT + WAIT / 2, "{took:?}");
    assert_eq!(
        (error.kind(), error.name()),
        (ErrorKind::TimedOut, Some("c"))
    );
    // It said how long the last lock was waited for.
    assert!(error.to_string().contains("waited 4s"), "{error}");
    for (client, names) in [(&here, ["a"].as_slice()), (&there, &["b"])] {
        for name in names {
            let lock = client.rlock(name);
            eventually(DEADLINE, async || !lock.is_locked().await.unwrap()).await;
        }
        eventually(DEADLINE, async || client.stats().names == 0).await;
    }
}

/// A waiter for one lock in this client's queue is not overtaken by a caller that wants this lock
/// among others, even while the lock is free and the waiter is not yet notified.
#[tokio::test]
async fn it_joins_the_local_queue_of_each() {
    let (server, prefix, names) = names("queue");
    let proxy = Proxy::to(&server);
    let client = settings(Client::builder().url(&proxy.url()));
    let other = crate::client(&server);
    let holder = other.rlock(&names[1]).lock().await.unwrap();
    // From here on each try is one call.
    let refused = client.rlock(&names[1]).try_lock().await.unwrap();
    assert!(refused.is_none());
    let subscribing = proxy.hold_reply("SUBSCRIBE");
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = tokio::spawn({
        let (lock, order) = (client.rlock(&names[1]), order.clone());
        async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push("first");
            guard.unlock().await.unwrap();
        }
    });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    subscribing.reached().await;
    let told = proxy.hold_message("message");
    // The waiter tries once more when it is subscribed.
    proxy.mark();
    subscribing.open();
    let tries = Matcher::command("EVALSHA").mentioning(&names[1]);
    proxy.wait_for_answer(tries).await;
    holder.unlock().await.unwrap();
    told.reached().await;
    let mut second = tokio::spawn({
        let (lock, order) = (client.multi_lock(&names), order.clone());
        async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push("second");
            guard.unlock().await.unwrap();
        }
    });
    eventually(DEADLINE, async || {
        client.stats().waiting == 2 || second.is_finished()
    })
    .await;
    assert!(!second.is_finished(), "it went past");
    told.open();
    within(DEADLINE, first).await.unwrap();
    within(DEADLINE, &mut second).await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
    assert_clean(&server, &prefix, [&client, &other]).await;
}
