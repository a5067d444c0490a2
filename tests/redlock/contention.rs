//! Many concurrent callers.

use std::{sync::Arc, time::Duration};

use tests::within;
use tokio::time::Instant;

use crate::{DEADLINE, LEASE, Servers};

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
