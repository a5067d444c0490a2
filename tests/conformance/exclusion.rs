//! One holder at a time.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tests::within;
use tokio::{task::JoinSet, time::Instant};

use crate::{locks::Lock, world::*};

pub(crate) async fn one_holder_at_a_time(world: &World) {
    let (client, other) = (world.client(), world.client());
    let lock = world.open(&client);
    let rival = world.rival(&client);
    let elsewhere = world.rival(&other);

    let guard = lock.lock().await.unwrap();
    assert!(guard.is_valid());
    assert!(elsewhere.try_lock().await.unwrap().is_none());
    assert!(rival.try_lock().await.unwrap().is_none(), "not re-entered");
    let second = lock.try_lock().await.unwrap();
    assert_eq!(second.is_some(), world.kind.shared, "not re-entered");
    assert!(second.is_none_or(|second| !second.shares_with(&*guard)));
    guard.unlock().await.unwrap();

    let guard = within(DEADLINE, elsewhere.lock()).await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_hundred_tasks_of_two_clients_count_to_a_hundred(world: &World) {
    const TASKS: u32 = 100;
    let clients = [world.client(), world.client()];
    let (count, inside) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    let mut counting = 0;
    for task in 0..TASKS {
        let client = &clients[task as usize % 2];
        let (count, inside) = (Arc::clone(&count), Arc::clone(&inside));
        let (lock, shared) = if task % 4 < 2 {
            (world.open(client), world.kind.shared)
        } else {
            (world.rival(client), world.kind.rival().shared)
        };
        tasks.spawn(visit(lock, shared, count, inside));
        counting += u32::from(!shared);
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), counting);
}

/// Counts under an exclusive lock; under a shared lock, checks that no task counts.
async fn visit(lock: Lock, shared: bool, count: Arc<AtomicU32>, inside: Arc<AtomicU32>) {
    let guard = lock.lock().await.unwrap();
    let read = count.load(Ordering::SeqCst);
    if shared {
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

pub(crate) async fn names_do_not_meddle(world: &World) {
    let client = world.client();
    let mut guards = Vec::new();
    for suffix in ["", ":", ":a", ":A", ":a:b", " "] {
        let lock = world.open_as(&client, &format!("{}{suffix}", world.name));
        guards.push(lock.try_lock().await.unwrap().expect(suffix));
    }
    for guard in guards {
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    }
}

pub(crate) async fn handles_of_one_name_are_one_lock(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let handles = [
        lock.clone(),
        world.open(&client),
        world.open(&client.clone()),
    ];
    let rival = world.rival(&client);
    let guard = rival.lock().await.unwrap();
    // A dropped handle releases nothing.
    drop((lock, rival));
    for handle in &handles {
        assert!(handle.try_lock().await.unwrap().is_none());
    }
    guard.unlock().await.unwrap();
}

pub(crate) async fn try_lock_answers_at_once(world: &World) {
    let (client, other) = (world.client(), world.client());
    let lock = world.open(&client);
    let guard = world.rival(&other).lock().await.unwrap();
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
