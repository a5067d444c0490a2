//! First come, first served, over all clients.

use std::sync::{Arc, Mutex};

use redlock_rt::{LockOptions, Owner};
use tests::within;

use crate::stage::{DEADLINE, Stage, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_clients_are_served_in_the_order_of_their_coming() {
    const WAITERS: usize = 24;
    let stage = Stage::open("fair-order").await;
    let locks: Vec<_> = (0..3)
        .map(|_| stage.client().fair_lock(&stage.name))
        .collect();
    let guard = locks[0].lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let (lock, served) = (locks[number % 3].clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        }));
        stage.queued(number + 1).await;
    }
    assert_eq!(locks[1].queue_len().await.unwrap(), WAITERS as u64);
    guard.unlock().await.unwrap();
    for task in tasks {
        within(DEADLINE, task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_try_is_refused_while_the_queue_is_not_empty() {
    let stage = Stage::open("fair-barging").await;
    let (ours, others) = (stage.client(), stage.client());
    let lock = ours.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    // A waiter whose client does not react: no task plays it.
    let java = "00000000-0000-0000-0000-000000000000:1";
    stage.plant(java, 60_000.0).await;
    guard.unlock().await.unwrap();
    let barging = others.fair_lock(&stage.name);
    assert!(barging.try_lock().await.unwrap().is_none());
    assert_eq!(stage.queue().await, [java], "it has not queued");
    let keys = [stage.queue_key(), stage.deadlines_key()];
    let _: i64 = stage.redis(&["DEL", &keys[0], &keys[1]]).await;
    let guard = barging.try_lock().await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_owner_learns_its_place() {
    let stage = Stage::open("fair-place").await;
    let client = stage.client();
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let owners = [Owner::new(), Owner::new(), Owner::new()];
    let mut waiting = Vec::new();
    for (at, owner) in owners.iter().enumerate() {
        assert_eq!(lock.position(owner).await.unwrap(), None);
        waiting.push(wait(&lock, owner, LockOptions::new()));
        stage.queued(at + 1).await;
    }
    for (at, owner) in owners.iter().enumerate() {
        assert_eq!(lock.position(owner).await.unwrap(), Some(at as u64));
        let id = lock.waiting_as(owner).unwrap().unwrap();
        assert_eq!(stage.queue().await[at], id.as_str());
    }
    guard.unlock().await.unwrap();
    for (task, owner) in waiting.into_iter().zip(&owners) {
        let guard = within(DEADLINE, task).await.unwrap().unwrap();
        assert_eq!(lock.waiting_as(owner).unwrap(), None, "it holds");
        guard.unlock().await.unwrap();
    }
    stage.assert_clean().await;
}
