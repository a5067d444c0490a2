//! A node that hangs concerns its own slots alone.

use std::time::{Duration, Instant};

use redlock_rt::{ErrorKind, LockOptions};
use tests::Cluster;
use tokio::task::block_in_place;

use crate::{DEADLINE, assert_clean, builder};

/// Short enough that a renewal that waits for another node comes too late.
const LEASE: Duration = Duration::from_millis(2400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_delays_nothing_at_other_nodes() {
    // Nobody takes the place of the node, and the others go on without it.
    let cluster = block_in_place(|| {
        let options = Cluster::options().replicas(0).partial_coverage();
        options.node_timeout(4 * DEADLINE).start()
    });
    let client = builder(&cluster).lease(LEASE).connect().await.unwrap();
    let mut guards = Vec::new();
    for at in 0..3 {
        for which in 0..4 {
            let name = cluster.name_at(at, &format!("hang:{at}:{which}")).await;
            guards.push(client.rlock(&name).lock().await.unwrap());
        }
    }
    let elsewhere = cluster.name_at(2, "hang:other").await;
    block_in_place(|| cluster.pause(0));
    let paused = Instant::now();
    let mut longest = Duration::ZERO;
    while paused.elapsed() < 3 * LEASE {
        for guard in &guards[4..] {
            assert!(
                guard.is_valid(),
                "{} after {:?}",
                guard.name(),
                paused.elapsed()
            );
        }
        let began = Instant::now();
        client
            .rlock(&elsewhere)
            .lock()
            .await
            .unwrap()
            .unlock()
            .await
            .unwrap();
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eprintln!("the slowest lock and unlock at another node took {longest:?}");
    assert!(longest < LEASE / 3, "{longest:?}");
    for guard in &guards[..4] {
        assert!(!guard.is_valid(), "{} was not renewed", guard.name());
    }
    let late = client.rlock(guards[0].name());
    let wait = LockOptions::new().wait(Duration::from_millis(200));
    let error = late.lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    block_in_place(|| cluster.resume(0));
    let wait = LockOptions::new().wait(DEADLINE);
    let guard = late.lock_with(wait).await.unwrap();
    guard.unlock().await.unwrap();
    drop(guards);
    assert_clean(&cluster, "hang", &[&client]).await;
}
