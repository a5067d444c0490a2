//! Many concurrent callers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tests::within;
use tokio::time::Instant;

use crate::{DEADLINE, LEASE, Servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_of_each_of_two_clients_exclude_each_other() {
    const TASKS: usize = 64;
    let servers = Servers::start(5);
    let parties = [servers.party(), servers.party()];
    let inside = Arc::new(AtomicUsize::new(0));
    let turns: [Arc<AtomicUsize>; 2] = Default::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..2 * TASKS {
        let lock = parties[task % 2].lock();
        let (inside, turns) = (inside.clone(), turns[task % 2].clone());
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
            tokio::task::yield_now().await;
            assert!(guard.is_valid());
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.unlock().await.unwrap();
            turns.fetch_add(1, Ordering::SeqCst);
        });
    }
    within(6 * DEADLINE, tasks.join_all()).await;
    for turns in &turns {
        assert_eq!(turns.load(Ordering::SeqCst), TASKS);
    }
    servers.assert_free(0..5).await;
    for party in &parties {
        party.assert_idle(0..5).await;
    }
}

/// Callers that split the servers among them do not do so for ever: one of three always gets the lock
/// long before a lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_votes_come_apart() {
    let servers = Servers::start(5);
    let parties = [servers.party(), servers.party(), servers.party()];
    let last = Arc::new(std::sync::Mutex::new(Instant::now()));
    let longest = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let until = Instant::now() + Duration::from_secs(3);
    let mut tasks = tokio::task::JoinSet::new();
    for party in &parties {
        let lock = party.lock();
        let (last, longest) = (last.clone(), longest.clone());
        tasks.spawn(async move {
            let mut turns = 0;
            while Instant::now() < until {
                let guard = lock.lock().await.unwrap();
                turns += 1;
                {
                    let (mut last, mut longest) = (last.lock().unwrap(), longest.lock().unwrap());
                    *longest = (*longest).max(last.elapsed());
                    *last = Instant::now();
                }
                guard.unlock().await.unwrap();
            }
            turns
        });
    }
    let turns: Vec<usize> = within(3 * DEADLINE, tasks.join_all()).await;
    let longest = *longest.lock().unwrap();
    println!("turns {turns:?}, at most {longest:?} between two");
    assert!(longest < LEASE / 2, "{longest:?}");
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    servers.assert_free(0..5).await;
}
