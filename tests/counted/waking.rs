//! Waiting for permits: which waiter is woken, when, and in which order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_rt::{Client, ErrorKind, Shutdown};
use tests::{eventually, within};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::{
    subject::{Subject, with_permits},
    world::*,
};

type Waiter<S> = JoinHandle<(<S as Subject>::Guard, Instant)>;

/// A task that waits for this many permits, and returns its guard with the time of the acquisition.
async fn waiter<S: Subject>(world: &World, client: &Client, permits: u32) -> Waiter<S> {
    let before = client.stats().waiting;
    let semaphore = S::open(client, &world.name);
    let task = tokio::spawn(async move {
        let guard = semaphore.take(permits).await.unwrap();
        (guard, Instant::now())
    });
    waits(client, before + 1).await;
    task
}

/// The waiter has its permits soon after they were free.
async fn is_served<S: Subject>(waiter: Waiter<S>, freed: Instant) {
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    let late = served.saturating_duration_since(freed);
    assert!(late < LATE, "served {late:?} after they were free");
    S::give_back(guard).await.unwrap();
}

pub(crate) async fn a_release_wakes_a_waiter_elsewhere<S: Subject>(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&holder, &world.name, 2).await;
    let guard = semaphore.take(1).await.unwrap();
    let waiter = waiter::<S>(world, &other, 2).await;
    settles(world, &other).await;
    assert!(!waiter.is_finished());
    let freed = Instant::now();
    S::give_back(guard).await.unwrap();
    is_served::<S>(waiter, freed).await;
    gone(world, 2).await;
}

pub(crate) async fn a_release_wakes_a_waiter_of_the_same_client<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    let waiter = waiter::<S>(world, &client, 1).await;
    let freed = Instant::now();
    S::give_back(guard).await.unwrap();
    is_served::<S>(waiter, freed).await;
    gone(world, 1).await;
}

pub(crate) async fn a_dropped_guard_wakes_a_waiter<S: Subject>(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&holder, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    let here = waiter::<S>(world, &holder, 1).await;
    let there = waiter::<S>(world, &other, 1).await;
    settles(world, &other).await;
    let freed = Instant::now();
    drop(guard);
    // Either may be first; its release wakes the other.
    tokio::join!(is_served::<S>(here, freed), is_served::<S>(there, freed));
    gone(world, 1).await;
}

pub(crate) async fn added_permits_wake_waiters<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 0).await;
    let waiter = waiter::<S>(world, &other, 2).await;
    settles(world, &other).await;
    semaphore.add(1).await.unwrap();
    let freed = Instant::now();
    semaphore.add(1).await.unwrap();
    is_served::<S>(waiter, freed).await;
    gone(world, 2).await;
}

pub(crate) async fn the_first_number_wakes_waiters<S: Subject>(world: &World) {
    for limited in [false, true] {
        let (client, other) = (world.client(), world.client());
        let waiter = waiter::<S>(world, &other, 1).await;
        settles(world, &other).await;
        let freed = Instant::now();
        let semaphore = S::open(&client, &world.name);
        if limited {
            let guard = semaphore.limited(2).take(1).await.unwrap();
            is_served::<S>(waiter, freed).await;
            S::give_back(guard).await.unwrap();
        } else {
            assert!(semaphore.set(2).await.unwrap());
            is_served::<S>(waiter, freed).await;
        }
        gone(world, 2).await;
        eventually(DEADLINE, async || other.stats().subscriptions == 0).await;
    }
}

pub(crate) async fn waiters_of_a_client_are_served_in_order<S: Subject>(world: &World) {
    const WAITERS: u32 = 10;
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 3).await;
    let guard = semaphore.take(3).await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for waiter in 0..WAITERS {
        let (semaphore, served) = (semaphore.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            // Each wants two or three of three permits, so they are served one after the other.
            let guard = semaphore.take(2 + waiter % 2).await.unwrap();
            served.lock().unwrap().push(waiter);
            S::give_back(guard).await.unwrap();
        });
        waits(&client, waiter as usize + 1).await;
    }
    S::give_back(guard).await.unwrap();
    within(DEADLINE, tasks.join_all()).await;
    assert_eq!(*served.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    gone(world, 3).await;
}

pub(crate) async fn a_release_of_several_wakes_as_many<S: Subject>(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&holder, &world.name, 3).await;
    let guard = semaphore.take(3).await.unwrap();
    let (count, mut counted) = tokio::sync::watch::channel(0);
    let count = Arc::new(count);
    let (hold, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut tasks = JoinSet::new();
    for index in 0..5 {
        let (semaphore, count) = (S::open(&other, &world.name), Arc::clone(&count));
        let mut held = hold.subscribe();
        tasks.spawn(async move {
            let guard = semaphore.take(1).await.unwrap();
            count.send_modify(|count| *count += 1);
            let _ = held.recv().await;
            S::give_back(guard).await.unwrap();
        });
        waits(&other, index + 1).await;
    }
    settles(world, &other).await;
    S::give_back(guard).await.unwrap();
    let three = counted.wait_for(|count| *count == 3);
    drop(within(DEADLINE, three).await.unwrap());
    waits(&other, 2).await;
    assert_eq!((*counted.borrow(), semaphore.free().await.unwrap()), (3, 0));
    drop(hold);
    within(DEADLINE, tasks.join_all()).await;
    gone(world, 3).await;
}

pub(crate) async fn a_waiter_that_gives_up_leaves_its_place<S: Subject>(world: &World) {
    let (holder, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&holder, &world.name, 2).await;
    let guard = semaphore.take(2).await.unwrap();
    // The head of the queue, which asks for too many permits, and a waiter behind it.
    let first = waiter::<S>(world, &other, 3).await;
    let second = waiter::<S>(world, &other, 1).await;
    let third = waiter::<S>(world, &other, 2).await;
    settles(world, &other).await;
    for gone in [second, first] {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    waits(&other, 1).await;
    let freed = Instant::now();
    S::give_back(guard).await.unwrap();
    is_served::<S>(third, freed).await;
    gone(world, 2).await;
}

/// Polled once, so that the try is in progress when its caller is dropped.
pub(crate) async fn a_try_that_is_dropped_leaves_nothing<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    for polls in 1..4 {
        let mut taking = Box::pin(semaphore.take(1));
        let mut taken = None;
        for _ in 0..polls {
            if let std::task::Poll::Ready(guard) = futures::poll!(&mut taking) {
                taken = Some(guard);
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(taking);
        drop(taken);
        at_rest(world, 1).await;
        eventually(DEADLINE, async || client.stats().names == 0).await;
        at_rest(world, 1).await;
    }
    gone(world, 1).await;
}

/// Another program adds permits without a message.
pub(crate) async fn a_release_that_nobody_announced_is_found_by_polling<S: Subject>(world: &World) {
    const POLL: Duration = Duration::from_millis(200);
    let client = world.client_with(|builder| builder.poll_interval(POLL));
    with_permits::<S>(&client, &world.name, 0).await;
    let waiter = waiter::<S>(world, &client, 1).await;
    settles(world, &client).await;
    let freed = Instant::now();
    let _: i64 = world.redis(&["INCR", &world.name]).await;
    let (guard, served) = within(DEADLINE, waiter).await.unwrap();
    let late = served.saturating_duration_since(freed);
    assert!(late < 2 * POLL + LATE, "{late:?}");
    S::give_back(guard).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_shut_down_sends_waiters_away<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 0).await;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.take(1).await.err() }
    });
    waits(&client, 1).await;
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let error = within(DEADLINE, waiter).await.unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
    let error = semaphore.take(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
    gone(world, 0).await;
}
