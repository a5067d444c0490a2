//! The attribute with the real crate, on its embedded engine.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, Error, ErrorKind, LockOptions, distributed_lock};
use tokio::sync::Notify;

/// Two clients of one Redis: what two processes would be.
fn two_clients() -> [Client; 2] {
    let engine = Engine::new();
    [(); 2].map(|()| Client::builder().embedded(&engine).build().unwrap())
}

/// Takes the lock in time, where the release is done in the background.
async fn takes(client: &Client, name: &str) {
    let options = LockOptions::new().wait(Duration::from_secs(5));
    let guard = client.rlock(name).lock_with(options).await.unwrap();
    guard.unlock().await.unwrap();
}

/// How many are in a place that only one may be in.
#[derive(Default)]
struct Place {
    inside: AtomicU32,
    visits: AtomicU32,
}

impl Place {
    /// Goes in, stays for some turns of the scheduler, goes out.
    async fn visit(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "place:<id>", wait = "30s", client = client)]
async fn enter(client: &Client, id: u32, place: &Place) -> Result<(), Error> {
    place.visit().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_body_at_a_time_over_tasks_and_clients() {
    let clients = two_clients();
    let place = Arc::new(Place::default());
    let tasks = (0..16).map(|task: usize| {
        let (client, place) = (clients[task % 2].clone(), Arc::clone(&place));
        tokio::spawn(async move {
            for _ in 0..5 {
                enter(&client, 1, &place).await?;
            }
            Ok::<_, Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    assert_eq!(place.visits.load(Ordering::SeqCst), 80);
}

#[distributed_lock(key = "<name>", wait = "0s", client = client)]
async fn hold(client: &Client, name: &str) -> Result<(), Error> {
    let lock = client.rlock(name);
    assert!(lock.is_locked().await?);
    assert_eq!(lock.hold_count().await?, 1);
    Ok(())
}

#[tokio::test]
async fn the_lock_is_free_when_the_call_returns() {
    let [client, other] = two_clients();
    for _ in 0..3 {
        hold(&client, "a").await.unwrap();
        assert!(!other.rlock("a").is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn who_does_not_wait_is_told_that_it_is_held() {
    let [client, other] = two_clients();
    let held = other.rlock("a").lock().await.unwrap();
    let error = hold(&client, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    held.unlock().await.unwrap();
    hold(&client, "a").await.unwrap();
}

#[distributed_lock(key = "a", wait = "40ms", client = client)]
async fn wait_a_little(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn who_waits_in_vain_is_told_that_time_ran_out() {
    let [client, other] = two_clients();
    let _held = other.rlock("a").lock().await.unwrap();
    let error = wait_a_little(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[distributed_lock(key = "order:<user>", client = client)]
async fn order(client: &Client, user: &str) -> Result<(), Error> {
    unreachable!("there is no such lock")
}

#[tokio::test]
async fn a_blank_part_locks_nobody() {
    for user in ["", " ", "\t\n"] {
        let error = order(&Client::embedded(), user).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
        assert!(error.to_string().contains("<user>"), "{error}");
    }
}

#[distributed_lock(key = "place:1", wait = "5s", client = client)]
async fn nested(client: &Client, place: &Place) -> Result<u64, Error> {
    enter(client, 1, place).await?;
    client.rlock("place:1").hold_count().await
}

#[tokio::test]
async fn a_nested_call_enters_again() {
    let [client, other] = two_clients();
    assert_eq!(nested(&client, &Place::default()).await.unwrap(), 1);
    assert!(!other.rlock("place:1").is_locked().await.unwrap());
}

#[distributed_lock(key = "outer", client = client)]
async fn join_inside(client: &Client, place: &Place) -> Result<(), Error> {
    let (one, two) = tokio::join!(enter(client, 1, place), enter(client, 1, place));
    one.and(two)
}

#[tokio::test]
async fn joined_calls_exclude_each_other() {
    let place = Place::default();
    join_inside(&Client::embedded(), &place).await.unwrap();
    assert_eq!(place.visits.load(Ordering::SeqCst), 2);
}

#[distributed_lock(key = "panic", client = client)]
async fn panics(client: Client) -> Result<(), Error> {
    panic!("in the body")
}

#[tokio::test]
async fn a_panic_releases() {
    let [client, other] = two_clients();
    assert!(
        tokio::spawn(panics(client.clone()))
            .await
            .unwrap_err()
            .is_panic()
    );
    takes(&other, "panic").await;
}

/// Says when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[distributed_lock(key = "lost", lease = "300ms", client = client)]
async fn for_ever(client: Client, begun: Arc<Notify>, dropped: Dropped) -> Result<(), Error> {
    let _dropped = dropped;
    begun.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn a_lost_lock_drops_the_body_and_is_told() {
    let [client, other] = two_clients();
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let call = for_ever(client, Arc::clone(&begun), Dropped(Arc::clone(&dropped)));
    let call = tokio::spawn(call);
    begun.notified().await;
    assert!(other.rlock("lost").force_unlock().await.unwrap());
    dropped.notified().await;
    assert!(call.await.unwrap().unwrap_err().is_lost());
}

#[tokio::test]
async fn a_dropped_call_releases() {
    let [client, other] = two_clients();
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let call = for_ever(
        client.clone(),
        Arc::clone(&begun),
        Dropped(Arc::clone(&dropped)),
    );
    tokio::select! {
        _ = call => unreachable!("it runs for ever"),
        () = begun.notified() => {}
    }
    dropped.notified().await;
    takes(&other, "lost").await;
}

#[distributed_lock(key = "default")]
async fn by_default() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn the_default_client_is_needed_and_taken() {
    let error = by_default().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains("client = "), "{error}");
    redlock_rt::set_default_client(Client::embedded());
    by_default().await.unwrap();
}

#[distributed_lock(key = "<name>", lease = "2s", max_hold = "2s", renew = false, client = client)]
async fn leased(client: &Client, name: &str) -> Result<Option<Duration>, Error> {
    client.rlock(name).remaining_ttl().await
}

#[tokio::test]
async fn the_lease_is_the_one_that_was_written() {
    let ttl = leased(&Client::embedded(), "a").await.unwrap().unwrap();
    assert!(
        ttl <= Duration::from_secs(2) && ttl > Duration::from_secs(1),
        "{ttl:?}"
    );
}

#[distributed_lock(key = "first", wait = "1s", client = client)]
#[distributed_lock(key = "second:<id>", wait = "1s", client = client)]
async fn both(client: &Client, id: u8) -> Result<bool, Error> {
    let (first, second) = (client.rlock("first"), client.rlock("second:1"));
    Ok(first.is_locked().await? && second.is_locked().await?)
}

#[tokio::test]
async fn two_attributes_hold_two_locks() {
    assert!(both(&Client::embedded(), 1).await.unwrap());
}

trait Closed {
    async fn closed(client: &Client, id: u64) -> Result<u64, Error>;
}

struct Shop;

impl Closed for Shop {
    async fn closed(_: &Client, id: u64) -> Result<u64, Error> {
        Ok(id + 1)
    }
}

#[distributed_lock(
    key = "qualified:<id>",
    wait = "0s",
    client = client,
    on_timeout = call(<Shop as Closed>::closed)
)]
async fn open(client: &Client, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[tokio::test]
async fn a_fallback_may_be_a_function_of_a_trait() {
    let client = Client::embedded();
    assert_eq!(open(&client, 7).await.unwrap(), 7);
    let held = client.rlock("qualified:7").lock().await.unwrap();
    assert_eq!(open(&client, 7).await.unwrap(), 8);
    held.unlock().await.unwrap();
}
