//! Defects that were found once: each test is named for its symptom.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, LockOptions, LostReason, Unlocked};
use tests::{LeakCheck, Matcher, Proxy, connection_over, shared_server, unique, within};
use tokio::sync::Notify;

const DEADLINE: Duration = Duration::from_secs(10);

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A client whose connections to `engine` are made once `ready` is over.
fn slow_to_connect<F>(engine: &Engine, ready: impl Fn() -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = ()> + Send + 'static,
{
    let engine = engine.clone();
    let connect = move || {
        let (engine, ready) = (engine.clone(), ready());
        async move {
            ready.await;
            Ok(engine.connect())
        }
    };
    Client::builder().connector(connect).build().unwrap()
}

/// Every call began to connect anew, and took what it had begun with it when its wait was over.
#[tokio::test(start_paused = true)]
async fn callers_whose_waits_are_shorter_than_connecting_never_connected() {
    let engine = Engine::new();
    let client = slow_to_connect(&engine, || tokio::time::sleep(ms(50)));
    let lock = client.rlock("hurry");
    let options = LockOptions::new().wait(ms(20));
    let mut tries = 0;
    let guard = loop {
        tries += 1;
        match lock.lock_with(options.clone()).await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_unavailable() && tries < 10, "{error}"),
        }
    };
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

/// It had the turn to connect, and nobody else got it.
#[tokio::test]
async fn a_caller_that_is_not_polled_kept_all_others_from_connecting() {
    let open = Arc::new(Notify::new());
    let gate = Arc::clone(&open);
    let engine = Engine::new();
    let client = slow_to_connect(&engine, move || {
        let gate = Arc::clone(&gate);
        async move { gate.notified().await }
    });
    let first = client.rlock("first");
    let mut unpolled = tokio_test::task::spawn(first.lock());
    assert!(unpolled.poll().is_pending());
    // For each connection that is asked for, whoever asks.
    let opener = tokio::spawn(async move {
        loop {
            open.notify_one();
            tokio::task::yield_now().await;
        }
    });
    let second = client.rlock("second");
    let guard = within(DEADLINE, second.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    opener.abort();
}

/// A lost connection has every lock verified at once, whatever pause was planned; so a server that
/// accepts and hangs up was dialed as fast as it could accept.
#[tokio::test]
async fn a_server_that_hangs_up_at_once_was_dialed_without_a_pause() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up");
    let options = LockOptions::new().lease(Duration::from_secs(2));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    proxy.mark();
    // More than enough for the lease, at a decent pace: else they are used up, and it is kept.
    for _ in 0..500 {
        proxy.cut_before_request(Matcher::command("EVALSHA"));
    }
    proxy.cut_all();
    let lost = within(DEADLINE, guard.lost()).await;
    assert_eq!(lost, LostReason::Expired);
    let dialed = proxy.counts().get("INFO").copied().unwrap_or_default();
    assert!((1..60).contains(&dialed), "{dialed} connections");
    proxy.clear();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .assert_clean()
        .await;
}

/// Each connection that was made reset the pause.
#[tokio::test]
async fn a_server_that_hangs_up_on_subscribers_was_dialed_a_hundred_times_a_second() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let holder = Client::connect(&server.url()).await.unwrap();
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up");
    let guard = holder.rlock(&name).lock().await.unwrap();
    for _ in 0..500 {
        proxy.cut_before_request(Matcher::command("SUBSCRIBE"));
    }
    let options = LockOptions::new().wait(Duration::from_secs(1));
    let error = client.rlock(&name).lock_with(options).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let dialed = proxy.counts()["SUBSCRIBE"];
    assert!((2..30).contains(&dialed), "{dialed} connections");
    proxy.clear();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .client(&holder)
        .assert_clean()
        .await;
}

/// The refusal was taken for good, as that of an ACL is.
#[tokio::test]
async fn a_busy_server_that_refused_to_subscribe_was_not_asked_again() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let holder = Client::connect(&server.url()).await.unwrap();
    let builder = Client::builder().url(&proxy.url());
    let client = builder
        .poll_interval(Duration::from_secs(60))
        .build()
        .unwrap();
    let name = unique("busy");
    let guard = holder.rlock(&name).lock().await.unwrap();
    let busy = "-BUSY Redis is busy running a script.\r\n";
    proxy.answer(Matcher::command("SUBSCRIBE"), busy, 1);
    let lock = client.rlock(&name);
    let waiter = tokio::spawn(async move { lock.lock().await });
    within(
        DEADLINE,
        proxy.wait_for_count(Matcher::command("SUBSCRIBE"), 2),
    )
    .await;
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .client(&holder)
        .assert_clean()
        .await;
}

/// It had not tried, since its own client held the lock, and its channel was confirmed before it
/// came: so nothing but an announcement would ever have had it look.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_lock_of_its_client_that_vanished_waited_for_ever() {
    let engine = Engine::new();
    let builder = Client::builder().embedded(&engine);
    let client = builder.linger(Duration::from_secs(60)).build().unwrap();
    let mut raw = connection_over(engine.connect()).await.unwrap();
    let lock = client.rlock("vanished");
    let guard = lock.lock().await.unwrap();
    // Leaves a confirmed subscription behind.
    let passing = LockOptions::new().wait(ms(100));
    assert!(lock.lock_with(passing).await.unwrap_err().is_timed_out());
    assert_eq!(client.stats().subscriptions, 1);
    let waiting = lock.clone();
    let waiter = tokio::spawn(async move { waiting.lock().await });
    while client.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let _: () = redis::cmd("DEL")
        .arg("vanished")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let guard = within(ms(50), waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}
