//! Servers that take long to connect to, or that hang up.

use std::{future::Future, sync::Arc, time::Duration};

use redlock_rt::{Client, LockOptions, LostReason, Unlocked, embedded::Engine};
use tests::{
    CALL, DEADLINE, Matcher, Proxy, assert_clean, lock_and_unlock, shared_server, unique, within,
};
use tokio::{sync::Notify, time::sleep};

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A client whose connections to `engine` succeed when `ready` completes.
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

/// Each call started to connect anew, and aborted that attempt when its wait was over.
#[tokio::test(start_paused = true)]
async fn callers_whose_waits_are_shorter_than_connecting_never_connected() {
    let engine = Engine::new();
    let client = slow_to_connect(&engine, || sleep(ms(50)));
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

/// That caller had the turn to connect, and no other caller got it.
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
    // One attempt for each connection, whatever the number of callers.
    let opener = tokio::spawn(async move {
        loop {
            open.notify_one();
            tokio::task::yield_now().await;
        }
    });
    let second = client.rlock("second");
    within(DEADLINE, lock_and_unlock(&second)).await;
    opener.abort();
}

/// A held lock, whose connections from now on end as `refuse` says, is lost within its lease. Returns
/// how many connections were tried meanwhile.
async fn dialed_while(refuse: impl FnOnce(&Proxy)) -> usize {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up");
    let options = LockOptions::new().lease(Duration::from_secs(2));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    proxy.mark();
    refuse(&proxy);
    proxy.cut_all();
    let lost = within(DEADLINE, guard.lost()).await;
    assert_eq!(lost, LostReason::Expired);
    // Two for each connection.
    let dialed = proxy.counts().get("INFO").copied().unwrap_or_default() / 2;
    proxy.clear();
    guard.unlock().await.unwrap();
    assert_clean(&server, &name, [&client]).await;
    dialed
}

/// A broken connection has every lock verified at once, without a pause. So a server that accepts and
/// closes connections was dialed as fast as it could accept.
#[tokio::test]
async fn a_server_that_hangs_up_at_once_was_dialed_without_a_pause() {
    let dialed = dialed_while(|proxy| {
        // More than enough for the lease, at a decent pace: else they are used up, and it is kept.
        for _ in 0..500 {
            proxy.cut_before_request(Matcher::command(CALL));
        }
    });
    let dialed = dialed.await;
    assert!((1..60).contains(&dialed), "{dialed} connections");
}

/// Any answer counted as a sign of a good connection.
#[tokio::test]
async fn a_server_that_answers_once_and_hangs_up_was_dialed_without_a_pause() {
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    let dialed = dialed_while(|proxy| {
        proxy.answer(Matcher::command(CALL), unknown, 500);
        for _ in 0..500 {
            proxy.cut_before_request(Matcher::command("SCRIPT"));
        }
    });
    let dialed = dialed.await;
    assert!((1..200).contains(&dialed), "{dialed} connections");
}

/// Each successful connection reset the pause.
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
    assert_clean(&server, &name, [&client, &holder]).await;
}

/// The refusal counted as permanent, like that of an ACL.
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
    assert_clean(&server, &name, [&client, &holder]).await;
}
