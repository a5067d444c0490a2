//! A master is killed in the middle of 32 holders and 200 waiters.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use redlock_rt::{Client, LockOptions};
use tests::{Cluster, within};
use tokio::task::{JoinSet, block_in_place};

use crate::{DEADLINE, assert_clean, builder};

const NAMES: usize = 32;
const WAITERS: usize = 200;
/// Longer than a failover takes on a busy machine, and short enough to wait for: a release that the
/// new master has not heard of.
const LEASE: Duration = Duration::from_secs(8);
const TURNS: usize = 6;

/// One hold, by its guard's own word.
#[derive(Debug, Clone)]
struct Turn {
    name: usize,
    entered: Instant,
    left: Instant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_served_although_a_master_is_killed() {
    let cluster = block_in_place(|| Cluster::options().start());
    let clients: Vec<Client> = (0..4)
        .map(|_| builder(&cluster).lease(LEASE).build().unwrap())
        .collect();
    let mut names = Vec::new();
    for number in 0..NAMES {
        names.push(
            cluster
                .name_at(number % 3, &format!("crowd:{number}"))
                .await,
        );
    }
    let names = Arc::new(names);
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    // A holder for each name, which keep it until the master is gone, and those who wait for it.
    let (kill, killed) = tokio::sync::watch::channel(false);
    for number in 0..NAMES + WAITERS {
        let client = clients[number % clients.len()].clone();
        let (names, turns, mut killed) = (Arc::clone(&names), Arc::clone(&turns), killed.clone());
        tasks.spawn(async move {
            let name = number % NAMES;
            let lock = client.rlock(&names[name]);
            for turn in 0..TURNS {
                let wait = LockOptions::new().wait(4 * DEADLINE);
                let guard = lock.lock_with(wait).await.unwrap();
                let entered = Instant::now();
                if number < NAMES && turn == 0 && number % 2 == 0 {
                    // Every second name is held when the master dies; the others change hands.
                    killed.wait_for(|killed| *killed).await.unwrap();
                }
                let mut left = Instant::now();
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    if !guard.is_valid() {
                        break;
                    }
                    left = Instant::now();
                }
                turns.lock().unwrap().push(Turn {
                    name,
                    entered,
                    left,
                });
                // May fail if the lock was lost with the master.
                let _ = guard.unlock().await;
            }
        });
    }
    // Some turns are over, and the others are in full swing.
    tests::eventually(DEADLINE, async || turns.lock().unwrap().len() > 3 * NAMES).await;
    let replicas = cluster.replicas_of(0).await;
    block_in_place(|| cluster.kill(0));
    let died = Instant::now();
    cluster.is_promoted(replicas[0]).await;
    let promoted = died.elapsed();
    kill.send(true).unwrap();
    let served = within(5 * DEADLINE, tasks.join_all()).await;
    let served_after = died.elapsed();
    assert_eq!(served.len(), NAMES + WAITERS);

    let all = turns.lock().unwrap().clone();
    assert_eq!(all.len(), (NAMES + WAITERS) * TURNS);
    let (mut lost, mut later) = (0, 0);
    for name in 0..NAMES {
        let mut turns: Vec<_> = all.iter().filter(|turn| turn.name == name).collect();
        turns.sort_by_key(|turn| turn.entered);
        for pair in turns.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            later += usize::from(second.entered > died);
            if second.entered >= first.left {
                continue;
            }
            // Only what the replica had not received can be given out twice.
            let may_be_lost = name % 3 == 0 && first.entered <= died && second.entered > died;
            assert!(
                may_be_lost,
                "two holders of {}: {first:?} {second:?}",
                names[name]
            );
            lost += 1;
        }
    }
    assert!(later > NAMES, "much has happened since");
    assert!(
        lost <= NAMES / 3 + 1,
        "at most the last hold of each name: {lost}"
    );
    eprintln!(
        "the replica was the master after {promoted:?}; {} turns, all served after {served_after:?}; \
         {lost} holds of {} were lost with the master",
        all.len(),
        NAMES
    );
    drop(names);
    let clients: Vec<_> = clients.iter().collect();
    assert_clean(&cluster, "crowd", &clients).await;
}
