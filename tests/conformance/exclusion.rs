//! One holder at a time.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tests::within;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    locks::{Guards, Locks},
    party::Party,
    subject::Subject,
    world::*,
};

pub(crate) async fn one_holder_at_a_time<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let lock = S::open(&client, &world.name);
    let rival = S::Rival::open(&client, &world.name);
    let elsewhere = S::Rival::open(&other, &world.name);

    let guard = lock.lock().await.unwrap();
    assert!(guard.is_valid());
    assert!(elsewhere.try_lock().await.unwrap().is_none());
    assert!(rival.try_lock().await.unwrap().is_none(), "not re-entered");
    let second = lock.try_lock().await.unwrap();
    assert_eq!(second.is_some(), S::SHARED, "not re-entered");
    assert!(second.is_none_or(|second| !second.shares_with(&guard)));
    guard.unlock().await.unwrap();

    let guard = within(DEADLINE, elsewhere.lock()).await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_hundred_tasks_of_two_clients_count_to_a_hundred<S: Subject>(world: &World) {
    const TASKS: u32 = 100;
    let clients = [world.client(), world.client()];
    let (count, inside) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    let mut counting = 0;
    for task in 0..TASKS {
        let client = &clients[task as usize % 2];
        let (count, inside) = (Arc::clone(&count), Arc::clone(&inside));
        let shared = if task % 4 < 2 {
            tasks.spawn(visit::<S>(client, &world.name, count, inside));
            S::SHARED
        } else {
            tasks.spawn(visit::<S::Rival>(client, &world.name, count, inside));
            S::Rival::SHARED
        };
        counting += u32::from(!shared);
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), counting);
}

/// Counts under an exclusive lock; under a shared lock, checks that no task counts.
fn visit<S: Subject>(
    client: &Party,
    name: &str,
    count: Arc<AtomicU32>,
    inside: Arc<AtomicU32>,
) -> impl Future<Output = ()> + Send + use<S> {
    let lock = S::open(client, name);
    async move {
        let guard = lock.lock().await.unwrap();
        let read = count.load(Ordering::SeqCst);
        if S::SHARED {
            tokio::task::yield_now().await;
            assert_eq!(inside.load(Ordering::SeqCst), 0, "one alone and others");
            assert_eq!(count.load(Ordering::SeqCst), read);
        } else {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
            // Loses counts if two tasks do this at once.
            tokio::task::yield_now().await;
            count.store(read + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
        }
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    }
}

pub(crate) async fn names_do_not_meddle<S: Subject>(world: &World) {
    let client = world.client();
    let mut guards = Vec::new();
    for suffix in ["", ":", ":a", ":A", ":a:b", " "] {
        let lock = S::open(&client, &format!("{}{suffix}", world.name));
        guards.push(lock.try_lock().await.unwrap().expect(suffix));
    }
    for guard in guards {
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    }
}

pub(crate) async fn handles_of_one_name_are_one_lock<S: Subject>(world: &World) {
    let client = world.client();
    let lock = S::open(&client, &world.name);
    let handles = [
        lock.clone(),
        S::open(&client, &world.name),
        S::open(&client.clone(), &world.name),
    ];
    let rival = S::Rival::open(&client, &world.name);
    let guard = rival.lock().await.unwrap();
    // A dropped handle releases nothing.
    drop((lock, rival));
    for handle in &handles {
        assert!(handle.try_lock().await.unwrap().is_none());
    }
    guard.unlock().await.unwrap();
}

pub(crate) async fn try_lock_answers_at_once<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let lock = S::open(&client, &world.name);
    let guard = S::Rival::open(&other, &world.name).lock().await.unwrap();
    let start = Instant::now();
    for _ in 0..3 {
        assert!(lock.try_lock().await.unwrap().is_none());
    }
    assert!(start.elapsed() < LATE, "{:?}", start.elapsed());
    assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    guard.unlock().await.unwrap();
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    guard.unlock().await.unwrap();
}
