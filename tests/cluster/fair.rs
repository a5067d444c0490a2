//! Fair queues of many names, in slots of all nodes.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tests::{Cluster, eventually, waits, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, NEVER, assert_clean, builder};

/// A place is kept for so long without a beat.
const ALIVE: Duration = Duration::from_secs(8);
const NAMES: usize = 400;

/// Returns for how many milliseconds each place is kept yet.
const KEPT: &str = r"
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local kept = {}
    for _, name in ipairs(redis.call('KEYS', 'redlock_fair:*')) do
        local notes = redis.call('HGETALL', name)
        for at = 1, #notes, 2 do
            if #notes[at] == 36 then table.insert(kept, notes[at + 1] - now) end
        end
    end
    return kept
";

async fn kept(cluster: &Cluster) -> Vec<i64> {
    let mut kept = Vec::new();
    for node in cluster.all() {
        let there: Vec<i64> = cluster.command(node, &["EVAL", KEPT, "0"]).await;
        kept.extend(there);
    }
    kept
}

/// Each name has a call of its own, and their servers took four of them every quarter of a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_many_names_lost_their_places() {
    let cluster = block_in_place(|| Cluster::options().replicas(0).start());
    let client = || builder(&cluster).waiter_timeout(ALIVE).poll_interval(NEVER);
    let (holder, waiter) = (client().build().unwrap(), client().build().unwrap());
    let name = |at: usize| format!("fair:{at}");
    let guards = join_all((0..NAMES).map(|at| {
        let lock = holder.fair_lock(name(at));
        async move { lock.lock().await.unwrap() }
    }));
    let guards = within(DEADLINE, guards).await;
    let waiting: Vec<_> = (0..NAMES)
        .map(|at| {
            let lock = waiter.fair_lock(name(at));
            tokio::spawn(async move { lock.lock().await.unwrap() })
        })
        .collect();
    waits(&waiter, NAMES).await;
    eventually(DEADLINE, async || {
        let queued = kept(&cluster).await.len();
        (queued == NAMES).then_some(()).ok_or(queued)
    })
    .await;
    let from = Instant::now();
    while from.elapsed() < ALIVE * 2 {
        let kept = kept(&cluster).await;
        assert_eq!(kept.len(), NAMES);
        assert!(kept.iter().all(|ms| *ms > 0), "lapsed: {kept:?}");
        tokio::time::sleep(ALIVE / 80).await;
    }
    drop(guards);
    for waiting in waiting {
        let guard = within(DEADLINE, waiting).await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_clean(&cluster, "fair:", &[&holder, &waiter]).await;
}
