//! Waiting for a lock: which waiter is woken, when, and in which order.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{ErrorKind, LockOptions, Unlocked};
use tests::{eventually, within};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::{locks::Held, party::Party, world::*};

type Waiter = JoinHandle<(Held, Instant)>;

/// A task that waits for the lock, and returns it with the time of its acquisition.
async fn waiter(world: &World, client: &Party) -> Waiter {
    let before = client.stats().waiting;
    let lock = world.open(client);
    let task = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
    waits(client, before + 1).await;
    task
}

/// The waiter gets the lock soon after its release.
async fn is_served(world: &World, waiter: Waiter, freed: Instant) {
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    assert!(guard.is_valid());
    let late = served.saturating_duration_since(freed);
    let soon = LATE + world.kind.looks_every.unwrap_or_default();
    assert!(late < soon, "served {late:?} after the release");
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_release_wakes_a_waiter_elsewhere(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    let waiter = waiter(world, &other).await;
    settles(world, &other).await;
    assert!(!waiter.is_finished());
    let freed = Instant::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    is_served(world, waiter, freed).await;
}

pub(crate) async fn a_release_wakes_a_waiter_of_the_same_client(world: &World) {
    let client = world.client();
    let guard = world.rival(&client).lock().await.unwrap();
    let waiter = waiter(world, &client).await;
    assert!(!waiter.is_finished());
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    is_served(world, waiter, freed).await;
}

pub(crate) async fn a_dropped_guard_wakes_a_waiter(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    let here = waiter(world, &holder).await;
    let there = waiter(world, &other).await;
    settles(world, &other).await;
    let freed = Instant::now();
    drop(guard);
    // Either may be first; its release wakes the other.
    let (one, another) = tokio::join!(
        is_served(world, here, freed),
        is_served(world, there, freed)
    );
    let ((), ()) = (one, another);
}

pub(crate) async fn a_force_unlock_wakes_a_waiter(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    let waiter = waiter(world, &other).await;
    settles(world, &other).await;
    let freed = Instant::now();
    let rival = world.rival(&other);
    assert!(rival.force_unlock().await.unwrap());
    is_served(world, waiter, freed).await;
    drop(guard);
}

pub(crate) async fn waiters_of_a_client_are_served_in_order(world: &World) {
    const WAITERS: usize = 10;
    let client = world.client();
    let guard = world.rival(&client).lock().await.unwrap();
    let served = Log::default();
    let mut tasks = JoinSet::new();
    for waiter in 0..WAITERS {
        let (lock, served) = (world.open(&client), served.clone());
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            served.add(waiter);
            guard.unlock().await.unwrap();
        });
        waits(&client, waiter + 1).await;
        if let Some(queue) = (world.kind.queue)(&world.name) {
            // The call of the next one would overtake that of this one on another thread.
            let queued = async || world.redis::<usize>(&["LLEN", &queue]).await > waiter;
            eventually(DEADLINE, queued).await;
        }
    }
    guard.unlock().await.unwrap();
    within(DEADLINE, tasks.join_all()).await;
    let mut served = served.all();
    if world.kind.shared {
        // Admitted in order, but all together, and recorded by tasks of several threads.
        served.sort_unstable();
    }
    assert_eq!(served, (0..WAITERS).collect::<Vec<_>>());
}

pub(crate) async fn a_wait_runs_out(world: &World) {
    // Longer than a reply takes: without one, the caller does not know whether the lock is held.
    const WAIT: Duration = Duration::from_secs(1);
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    let waits = [&holder, &other].map(async |client| {
        let lock = world.open(client);
        let start = Instant::now();
        let waited = lock.lock_with(LockOptions::new().wait(WAIT)).await;
        assert_passed(start, WAIT);
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.is_contended() && error.is_timed_out());
        assert_eq!(error.name(), Some(&*world.name));
        assert_eq!(client.stats().waiting, 0);
    });
    join_all(waits).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_wait_is_served_in_time(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    let lock = world.open(&other);
    let waiter = tokio::spawn(async move {
        let options = LockOptions::new().wait(DEADLINE);
        (lock.lock_with(options).await.unwrap(), Instant::now())
    });
    waits(&other, 1).await;
    settles(world, &other).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    is_served(world, waiter, freed).await;
}

pub(crate) async fn a_wait_of_zero_tries_once(world: &World) {
    let (client, other) = (world.client(), world.client());
    let at_once = || LockOptions::new().wait(Duration::ZERO);
    let lock = world.open(&client);

    let guard = lock.lock_with(at_once()).await.expect("it is free");
    guard.unlock().await.unwrap();
    let guard = world.rival(&client).lock().await.unwrap();
    let start = Instant::now();
    for client in [&client, &other] {
        let lock = world.open(client);
        let error = lock.lock_with(at_once()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        assert!(error.is_contended() && !error.is_timed_out());
        assert_eq!(error.name(), Some(&*world.name));
        assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    }
    assert!(start.elapsed() < LATE);
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_waiter_that_gives_up_leaves_its_place(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let guard = world.rival(&holder).lock().await.unwrap();
    // The head of the queue and a waiter behind it; the third waiter is to be served.
    let first = waiter(world, &other).await;
    let second = waiter(world, &other).await;
    let third = waiter(world, &other).await;
    settles(world, &other).await;
    for gone in [second, first] {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    waits(&other, 1).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    is_served(world, third, freed).await;
}

pub(crate) async fn an_expired_holder_is_succeeded(world: &World) {
    let client = world.client();
    // The lease begins between the two moments, whenever the reply comes.
    let before = Instant::now();
    world.occupy(world.kind.rival(), "somebody:1", LEASE).await;
    let after = Instant::now();
    let waiter = waiter(world, &client).await;
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    // To the millisecond, the unit of Redis.
    let early = (before + LEASE).saturating_duration_since(served);
    assert!(early < Duration::from_millis(20), "{early:?} too early");
    assert!(served.saturating_duration_since(after + LEASE) < LATE);
    guard.unlock().await.unwrap();
}

/// A hold that ends without a message: the key is deleted by hand, or the message is lost.
pub(crate) async fn a_release_that_nobody_announced_is_found_by_polling(world: &World) {
    const POLL: Duration = Duration::from_millis(200);
    let client = world.client_with(|builder| builder.poll_interval(POLL));
    world.occupy(world.kind.rival(), "somebody:1", NEVER).await;
    let waiter = waiter(world, &client).await;
    settles(world, &client).await;
    let freed = Instant::now();
    world.delete().await;
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    let late = served.saturating_duration_since(freed);
    assert!(late < 2 * POLL + LATE, "{late:?}");
    guard.unlock().await.unwrap();
    eventually(DEADLINE, async || client.stats().waiting == 0).await;
}
