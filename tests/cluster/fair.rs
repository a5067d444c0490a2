//! Fair queues of many names, in slots of all nodes.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tests::{Cluster, waits, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, NEVER, assert_clean, builder};

/// A place is kept for so long without a beat.
const ALIVE: Duration = Duration::from_secs(3);
const NAMES: usize = 400;

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
    tokio::time::sleep(ALIVE * 2).await;
    // With a lapsed place it would be found by a look at the queue, seconds later.
    let freed = Instant::now();
    drop(guards);
    for waiting in waiting {
        within(DEADLINE, waiting)
            .await
            .unwrap()
            .unlock()
            .await
            .unwrap();
    }
    assert!(freed.elapsed() < ALIVE * 2, "{:?}", freed.elapsed());
    assert_clean(&cluster, "fair:", &[&holder, &waiter]).await;
}
