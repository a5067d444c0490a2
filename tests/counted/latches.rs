//! What latches do.

use std::time::Duration;

use redlock_rt::{CountDownLatch, Error, ErrorKind, Shutdown};
use tests::{eventually, within};
use tokio::{task::JoinHandle, time::Instant};

use crate::world::*;

/// The latch of the test, on a client of its own, with a count.
async fn latch(world: &World, count: u64) -> CountDownLatch {
    let latch = elsewhere(world);
    assert!(latch.try_set_count(count).await.unwrap());
    latch
}

/// The same on another client.
fn elsewhere(world: &World) -> CountDownLatch {
    world.client().count_down_latch(&world.name)
}

fn wait(latch: &CountDownLatch) -> JoinHandle<Result<(), Error>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

async fn ended(waiting: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    within(DEADLINE, waiting).await.unwrap()
}

/// Waits until so many clients have subscribed.
async fn subscribed(world: &World, count: usize) {
    let channel = format!("redisson_countdownlatch__channel__{{{}}}", world.name);
    eventually(DEADLINE, async || {
        let (_, there): (String, usize) = world.redis(&["PUBSUB", "NUMSUB", &channel]).await;
        there == count
    })
    .await;
}

#[track_caller]
fn assert_kind<T>(outcome: Result<T, Error>, kind: ErrorKind) {
    let error = outcome.err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
}

pub(crate) async fn a_count_is_set_once(world: &World) {
    let latch = latch(world, 3).await;
    assert!(!latch.try_set_count(5).await.unwrap());
    assert!(!elsewhere(world).try_set_count(5).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 3);
    assert_eq!(world.ttl().await, None);
    assert!(latch.delete().await.unwrap());
}

pub(crate) async fn counting_down_opens_it(world: &World) {
    let latch = latch(world, 2).await;
    assert_eq!(elsewhere(world).count_down().await.unwrap(), 1);
    assert_eq!(latch.count().await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(latch.count().await.unwrap(), 0);
    assert!(!world.is_there().await);
    latch.wait().await.unwrap();
    assert!(!latch.delete().await.unwrap());
}

pub(crate) async fn nothing_goes_below_zero(world: &World) {
    let latch = elsewhere(world);
    for _ in 0..3 {
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
    assert!(!world.is_there().await);
    // Nothing was stored up.
    assert!(latch.try_set_count(1).await.unwrap());
    assert_kind(latch.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    assert_eq!(latch.count_down().await.unwrap(), 0);
}

pub(crate) async fn all_who_wait_go_on(world: &World) {
    const EACH: usize = 25;
    let latch = latch(world, 2).await;
    let clients = [world.client(), world.client()];
    let mut waiting = Vec::new();
    for client in &clients {
        let latch = client.count_down_latch(&world.name);
        waiting.extend((0..EACH).map(|_| wait(&latch)));
        waits(client, EACH).await;
    }
    subscribed(world, 2).await;
    assert!(
        clients
            .iter()
            .all(|client| client.stats().subscriptions == 1)
    );
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    let opened = Instant::now();
    latch.count_down().await.unwrap();
    for waiting in waiting {
        ended(waiting).await.unwrap();
    }
    assert!(opened.elapsed() < LATE);
}

pub(crate) async fn a_late_waiter_goes_on_at_once(world: &World) {
    let latch = latch(world, 1).await;
    latch.count_down().await.unwrap();
    let start = Instant::now();
    elsewhere(world).wait().await.unwrap();
    latch.wait_with(Duration::ZERO).await.unwrap();
    assert!(start.elapsed() < LATE);
}

pub(crate) async fn a_wait_runs_out(world: &World) {
    let latch = latch(world, 1).await;
    for latch in [&latch, &elsewhere(world)] {
        let start = Instant::now();
        let waited = latch.wait_with(WAIT).await;
        assert_passed(start, WAIT);
        assert_eq!(waited.as_ref().unwrap_err().name(), Some(&*world.name));
        assert_kind(waited, ErrorKind::TimedOut);
    }
    assert_eq!(latch.count_down().await.unwrap(), 0);
}

pub(crate) async fn a_wait_of_zero_looks_once(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(1).await.unwrap());
    assert_kind(latch.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    latch.count_down().await.unwrap();
    latch.wait_with(Duration::ZERO).await.unwrap();
}

/// Also one that looks for the others, which go on waiting.
pub(crate) async fn a_dropped_wait_leaves_nothing(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(1).await.unwrap());
    let first = wait(&latch);
    waits(&client, 1).await;
    let second = wait(&latch);
    waits(&client, 2).await;
    subscribed(world, 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    waits(&client, 1).await;
    elsewhere(world).count_down().await.unwrap();
    ended(second).await.unwrap();
    waits(&client, 0).await;
}

pub(crate) async fn a_guard_counts_when_dropped(world: &World) {
    let latch = latch(world, 3).await;
    let counts = async |count| {
        eventually(DEADLINE, async || latch.count().await.unwrap() == count).await;
    };
    drop(latch.count_down_guard().unwrap());
    counts(2).await;
    let guard = latch.count_down_guard().unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    task.await.unwrap_err();
    counts(1).await;
    let waiting = wait(&elsewhere(world));
    drop(latch.count_down_guard().unwrap().count_down());
    ended(waiting).await.unwrap();
}

pub(crate) async fn a_guard_counts_once(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(2).await.unwrap());
    let guard = latch.count_down_guard().unwrap();
    assert_eq!(latch.count().await.unwrap(), 2, "nothing yet");
    assert_eq!(guard.count_down().await.unwrap(), 1);
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(latch.count().await.unwrap(), 1);
    assert!(latch.delete().await.unwrap());
}

pub(crate) async fn a_deleted_latch_is_told(world: &World) {
    let latch = latch(world, 1).await;
    let waiting = wait(&elsewhere(world));
    subscribed(world, 1).await;
    assert!(latch.delete().await.unwrap());
    assert_kind(ended(waiting).await, ErrorKind::LatchDeleted);
    assert_kind(elsewhere(world).wait().await, ErrorKind::LatchDeleted);
    assert_eq!(latch.count().await.unwrap(), 0);
    assert_eq!(latch.count_down().await.unwrap(), 0);
}

pub(crate) async fn an_expired_latch_is_told(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name).ttl(LEASE);
    let start = Instant::now();
    assert!(latch.try_set_count(1).await.unwrap());
    let ttl = world.ttl().await.unwrap();
    assert!(ttl <= LEASE, "{ttl:?}");
    let waited = within(DEADLINE, elsewhere(world).wait()).await;
    assert_passed(start, LEASE);
    assert_kind(waited, ErrorKind::LatchExpired);
    assert_kind(latch.wait().await, ErrorKind::LatchExpired);
    assert_kind(
        latch.wait_with(Duration::ZERO).await,
        ErrorKind::LatchExpired,
    );
}

pub(crate) async fn a_latch_counted_down_in_time_does_not_expire(world: &World) {
    let latch = elsewhere(world).ttl(HELD);
    assert!(latch.try_set_count(1).await.unwrap());
    latch.count_down().await.unwrap();
    tokio::time::sleep(HELD).await;
    latch.wait().await.unwrap();
}

pub(crate) async fn a_new_latch_forgets_the_last_end(world: &World) {
    let latch = latch(world, 1).await;
    assert!(latch.delete().await.unwrap());
    assert!(latch.try_set_count(1).await.unwrap());
    assert_kind(latch.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.wait().await.unwrap();
}

/// Somebody who announces nothing.
pub(crate) async fn a_count_that_nobody_announced_is_found_by_polling(world: &World) {
    const POLL: Duration = Duration::from_millis(200);
    let client = world.client_with(|builder| builder.poll_interval(POLL));
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(1).await.unwrap());
    let waiting = wait(&latch);
    subscribed(world, 1).await;
    let start = Instant::now();
    let _: bool = world.redis(&["DEL", &world.name]).await;
    ended(waiting).await.unwrap();
    assert!(start.elapsed() < 2 * POLL + LATE, "{:?}", start.elapsed());
}

pub(crate) async fn a_shut_down_sends_waiters_away(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(2).await.unwrap());
    let waiting = wait(&latch);
    waits(&client, 1).await;
    drop(latch.count_down_guard().unwrap());
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert_kind(ended(waiting).await, ErrorKind::ShutDown);
    assert_kind(latch.wait().await, ErrorKind::ShutDown);
    assert_kind(latch.count_down().await, ErrorKind::ShutDown);
    let elsewhere = elsewhere(world);
    assert_eq!(elsewhere.count().await.unwrap(), 1, "the guard counted");
    assert!(elsewhere.delete().await.unwrap());
}

pub(crate) async fn what_cannot_be_is_refused(world: &World) {
    let client = world.client();
    for bad in ["", "a\0b", &"x".repeat(513)] {
        let latch = client.count_down_latch(bad);
        assert_kind(latch.try_set_count(1).await, ErrorKind::BadInput);
        assert_kind(latch.count_down().await, ErrorKind::BadInput);
        assert_kind(latch.count_down_guard(), ErrorKind::BadInput);
        assert_kind(latch.wait().await, ErrorKind::BadInput);
        assert_kind(latch.count().await, ErrorKind::BadInput);
        assert_kind(latch.delete().await, ErrorKind::BadInput);
    }
    let latch = client.count_down_latch(&world.name);
    assert_kind(latch.try_set_count(0).await, ErrorKind::BadInput);
    assert_kind(
        latch.try_set_count((1 << 53) + 1).await,
        ErrorKind::BadInput,
    );
    for ttl in [Duration::ZERO, Duration::MAX] {
        let latch = latch.clone().ttl(ttl);
        assert_kind(latch.try_set_count(1).await, ErrorKind::BadInput);
    }
    assert!(!world.is_there().await);
}

pub(crate) async fn another_type_of_value_is_told(world: &World) {
    let latch = elsewhere(world);
    let _: usize = world.redis(&["RPUSH", &world.name, "a"]).await;
    assert_kind(latch.wait().await, ErrorKind::WrongType);
    assert_kind(latch.count().await, ErrorKind::WrongType);
    assert_kind(latch.count_down().await, ErrorKind::WrongType);
    assert_kind(latch.try_set_count(1).await, ErrorKind::WrongType);
    let _: bool = world.redis(&["DEL", &world.name]).await;
}
