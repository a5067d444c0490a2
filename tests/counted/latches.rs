//! The behaviour of latches.

use std::time::Duration;

use redlock_rt::{CountDownLatch, Error, ErrorKind, Shutdown};
use tests::{assert_error, eventually, within};
use tokio::{task::JoinHandle, time::Instant};

use crate::world::*;

/// The latch of the test, on a separate client, with a count.
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

/// Waits until this many clients have subscribed.
async fn subscribed(world: &World, count: usize) {
    let channel = format!("redisson_countdownlatch__channel__{{{}}}", world.name);
    world.subscribed_to(&channel, count).await;
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind) {
    assert_error(outcome, kind, "");
}

/// Asserts that the latch ended without being counted down.
#[track_caller]
fn assert_gone(world: &World, outcome: Result<(), Error>, kind: ErrorKind) {
    let error = outcome.as_ref().unwrap_err();
    assert!(error.is_latch_gone() && !error.is_timed_out());
    let says = format!("wait for latch {:?}: the latch ", world.name);
    assert_error(outcome, kind, &says);
}

/// Whether there is a mark of how the last latch of the name ended.
async fn is_marked(world: &World) -> bool {
    let mark = format!("redlock_latch_end:{{{}}}", world.name);
    world.redis(&["EXISTS", &mark]).await
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
    let guard = latch.count_down_guard().unwrap();
    assert_eq!(guard.count_down().await.unwrap(), 0);
    let pattern = format!("*{}*", world.name);
    let keys: Vec<String> = world.redis(&["KEYS", &pattern]).await;
    assert_eq!(keys, [""; 0], "nothing is created");
    // Nothing was stored up.
    assert!(latch.try_set_count(1).await.unwrap());
    assert_kind(latch.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    assert_eq!(latch.count_down().await.unwrap(), 0);
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
        assert_error(waited, ErrorKind::TimedOut, "waited 1s");
    }
    assert_eq!(latch.count_down().await.unwrap(), 0);
}

pub(crate) async fn a_wait_of_zero_looks_once(world: &World) {
    let client = world.client();
    let latch = client.count_down_latch(&world.name);
    assert!(latch.try_set_count(1).await.unwrap());
    let refused = latch.wait_with(Duration::ZERO).await;
    let says = format!(
        "wait for latch {:?}: timed out before it opened",
        world.name
    );
    assert_error(refused, ErrorKind::TimedOut, &says);
    assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    latch.count_down().await.unwrap();
    latch.wait_with(Duration::ZERO).await.unwrap();
}

/// Also the head, while the others continue to wait.
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
    let (latch, other) = (latch(world, 1).await, elsewhere(world));
    let waiting = [wait(&latch), wait(&other), wait(&other)];
    subscribed(world, 2).await;
    assert!(latch.delete().await.unwrap());
    for waiting in waiting {
        assert_gone(world, ended(waiting).await, ErrorKind::LatchDeleted);
    }
    assert_gone(world, other.wait().await, ErrorKind::LatchDeleted);
    let looked = other.wait_with(Duration::ZERO).await;
    assert_gone(world, looked, ErrorKind::LatchDeleted);
    assert!(!latch.delete().await.unwrap());
    assert!(!other.delete().await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 0);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_gone(world, latch.wait().await, ErrorKind::LatchDeleted);
}

pub(crate) async fn an_expired_latch_is_told(world: &World) {
    let client = world.client();
    const TTL: Duration = Duration::from_millis(1200);
    let (latch, other) = (
        client.count_down_latch(&world.name).ttl(TTL),
        elsewhere(world),
    );
    // Connects.
    assert_eq!(other.count().await.unwrap(), 0);
    let start = Instant::now();
    assert!(latch.try_set_count(2).await.unwrap());
    let ttl = world.ttl().await.unwrap();
    assert!(ttl <= TTL, "{ttl:?}");
    let waiting = [wait(&latch), wait(&other), wait(&other)];
    assert_eq!(other.count_down().await.unwrap(), 1);
    let ttl = world.ttl().await.unwrap();
    assert!(ttl <= TTL, "counting down keeps it: {ttl:?}");
    for waiting in waiting {
        assert_gone(world, ended(waiting).await, ErrorKind::LatchExpired);
    }
    assert_passed(start, TTL);
    assert_gone(world, latch.wait().await, ErrorKind::LatchExpired);
    assert_eq!(other.count_down().await.unwrap(), 0);
    let looked = latch.wait_with(Duration::ZERO).await;
    assert_gone(world, looked, ErrorKind::LatchExpired);
    // The next one has no TTL by this.
    assert!(other.try_set_count(1).await.unwrap());
    assert!(!is_marked(world).await);
    assert_eq!(world.ttl().await, None);
    other.count_down().await.unwrap();
    other.wait().await.unwrap();
}

pub(crate) async fn a_latch_counted_down_in_time_does_not_expire(world: &World) {
    let latch = elsewhere(world).ttl(HELD);
    assert!(latch.try_set_count(1).await.unwrap());
    let waiting = wait(&latch);
    subscribed(world, 1).await;
    latch.count_down().await.unwrap();
    ended(waiting).await.unwrap();
    assert!(!is_marked(world).await);
    tokio::time::sleep(HELD).await;
    latch.wait().await.unwrap();
}

pub(crate) async fn a_new_latch_forgets_the_last_end(world: &World) {
    let latch = latch(world, 1).await;
    assert!(latch.delete().await.unwrap());
    assert!(latch.try_set_count(1).await.unwrap());
    assert!(!is_marked(world).await);
    assert_kind(latch.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.wait().await.unwrap();
}

/// Another program ends the latch without an announcement.
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
    assert!(latch.try_set_count(3).await.unwrap());
    let waiting = [(); 3].map(|()| wait(&latch));
    waits(&client, 3).await;
    drop(latch.count_down_guard().unwrap());
    let late = latch.count_down_guard().unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    for waiting in waiting {
        assert_error(ended(waiting).await, ErrorKind::ShutDown, &world.name);
    }
    assert_kind(latch.wait().await, ErrorKind::ShutDown);
    assert_kind(latch.count_down().await, ErrorKind::ShutDown);
    assert_kind(late.count_down().await, ErrorKind::ShutDown);
    let elsewhere = elsewhere(world);
    assert_eq!(
        elsewhere.count().await.unwrap(),
        2,
        "the first guard counted"
    );
    assert!(elsewhere.delete().await.unwrap());
}

pub(crate) async fn what_cannot_be_is_refused(world: &World) {
    let client = world.client();
    let long = "x".repeat(513);
    for (bad, says) in [("", "blank"), ("a\0b", "NUL"), (&long, "512 bytes")] {
        let latch = client.count_down_latch(bad);
        assert_error(latch.try_set_count(1).await, ErrorKind::BadInput, says);
        assert_error(latch.count_down().await, ErrorKind::BadInput, says);
        assert_error(latch.count_down_guard(), ErrorKind::BadInput, says);
        assert_error(latch.wait().await, ErrorKind::BadInput, says);
        assert_error(latch.wait_with(WAIT).await, ErrorKind::BadInput, says);
        assert_error(latch.count().await, ErrorKind::BadInput, says);
        assert_error(latch.delete().await, ErrorKind::BadInput, says);
    }
    let latch = client.count_down_latch(&world.name);
    let says = format!("set latch {:?}", world.name);
    assert_error(latch.try_set_count(0).await, ErrorKind::BadInput, &says);
    let too_many = latch.try_set_count((1 << 53) + 1).await;
    assert_error(too_many, ErrorKind::BadInput, "2^53");
    for ttl in [Duration::ZERO, Duration::MAX] {
        let latch = latch.clone().ttl(ttl);
        let set = latch.try_set_count(1).await;
        assert_error(set, ErrorKind::BadInput, "the ttl is");
    }
    assert!(!world.is_there().await);
    assert!(latch.try_set_count(1 << 53).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), (1 << 53) - 1);
    assert!(latch.delete().await.unwrap());
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
