//! A client that does not receive its own announcements.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, RLock, RLockGuard};
use tests::{DEADLINE, ENDS, Proxy, Which, assert_clean, eventually, shared_server, unique, within};
use tokio::task::JoinHandle;

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

/// Each of its releases is announced.
async fn client(url: &str) -> Client {
    let builder = Client::builder().url(url).poll_interval(NEVER);
    let builder = builder.hand_over(None);
    builder.connect().await.unwrap()
}

fn waiter(lock: &RLock) -> JoinHandle<RLockGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// It waited until it was time to look again, each time, until the connection was asked for a sign of
/// life.
#[tokio::test]
async fn a_half_open_subscription_held_up_every_hand_over_within_the_process() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let name = unique("deaf");
    let client = client(&proxy.url()).await;
    let lock = client.rlock(&name);
    let guard = lock.lock().await.unwrap();
    let next = waiter(&lock);
    proxy.wait_for_answer("SUBSCRIBE").await;
    let deaf = match proxy.connections(Which::Subscribers)[..] {
        [deaf] => deaf,
        ref others => panic!("{others:?}"),
    };
    proxy.go_silent_on(Which::Connection(deaf));
    let last = waiter(&lock);
    eventually(DEADLINE, async || client.stats().waiting == 2).await;
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, next).await.unwrap();
    // Another connection is subscribed by now, or soon.
    proxy.wait_for_count("SUBSCRIBE", 2).await;
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, last).await.unwrap();
    guard.unlock().await.unwrap();
    let counts = proxy.counts();
    assert_eq!(counts["SUBSCRIBE"], 2, "{counts:?}");
    // The server does not notice either that the client has closed the connection.
    proxy.cut(Which::Connection(deaf));
    assert_clean(&server, &name, [&client]).await;
}

/// No waiter was woken, so each hand-over took a poll interval. The connection is sound: it is sent
/// one PING, and kept.
#[tokio::test]
async fn without_the_right_to_publish_every_local_hand_over_was_delayed() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let user = unique("limited").replace(':', "-");
    let rights = ["reset", "on", ">secret", "~*", "+@all", "allchannels", "-publish"];
    server.ask::<()>(&[&["ACL", "SETUSER", &user][..], &rights].concat()).await;
    let url = proxy.url().replace("//", &format!("//{user}:secret@"));
    let name = unique("unheard");
    let client = client(&url).await;
    let lock = client.rlock(&name);
    let mut guard = lock.lock().await.unwrap();
    let mut next = waiter(&lock);
    proxy.wait_for_answer("SUBSCRIBE").await;
    for _ in 0..10 {
        let last = waiter(&lock);
        eventually(DEADLINE, async || client.stats().waiting == 2).await;
        guard.unlock().await.unwrap();
        guard = within(DEADLINE, next).await.unwrap();
        next = last;
    }
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, next).await.unwrap();
    guard.unlock().await.unwrap();
    let counts = proxy.counts();
    assert_eq!(counts["SUBSCRIBE"], 1, "{counts:?}");
    assert!(
        counts.get("PING").is_none_or(|pings| *pings == 1),
        "{counts:?}"
    );
    assert_clean(&server, &name, [&client]).await;
}

/// It was noticed for locks with one holder, and for semaphores; the others waited until it was time to
/// look again.
#[tokio::test]
async fn a_half_open_subscription_held_up_what_waited_for_other_kinds() {
    let server = shared_server();
    let held_up = join_all(ENDS.map(async |end| {
        let proxy = Proxy::to(&server);
        let name = unique("deaf-kind");
        let builder = Client::builder().url(&proxy.url()).poll_interval(NEVER);
        // No beat comes within the test.
        let client = builder.waiter_timeout(NEVER).connect().await.unwrap();
        let (ending, waiter) = end.awaited(&client, &proxy, &name).await;
        let deaf = match proxy.connections(Which::Subscribers)[..] {
            [deaf] => deaf,
            ref others => panic!("{others:?}"),
        };
        proxy.go_silent_on(Which::Connection(deaf));
        ending.await;
        let woken = tokio::time::timeout(DEADLINE, waiter).await;
        proxy.cut(Which::Connection(deaf));
        match woken {
            Ok(waited) => {
                waited.unwrap();
                None
            }
            Err(_) => Some(end),
        }
    }));
    let held_up: Vec<_> = held_up.await.into_iter().flatten().collect();
    assert_eq!(held_up, []);
}

/// The waiter had not tried, since its own client held the lock, and the channel was confirmed before
/// it came. So only an announcement could have made it try.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_lock_of_its_client_that_vanished_waited_for_ever() {
    let engine = Engine::new();
    let builder = Client::builder().embedded(&engine);
    let client = builder.linger(Duration::from_secs(60)).build().unwrap();
    let mut raw = connection_over(engine.connect()).await.unwrap();
    let lock = client.rlock("vanished");
    let guard = lock.lock().await.unwrap();
    // Leaves a confirmed subscription.
    let passing = LockOptions::new().wait(ms(100));
    assert!(lock.lock_with(passing).await.unwrap_err().is_timed_out());
    assert_eq!(client.stats().subscriptions, 1);
    let waiting = lock.clone();
    let waiter = tokio::spawn(async move { waiting.lock().await });
    while client.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let _: () = ask(&raw, &["DEL", "vanished"]).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let guard = within(ms(50), waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}
