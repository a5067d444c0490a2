//! A node that hangs concerns its own slots alone.

use std::time::{Duration, Instant};

use redlock_rt::{ErrorKind, LockOptions};
use tests::{Cluster, eventually, lock_and_unlock, within};
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
        lock_and_unlock(&client.rlock(&elsewhere)).await;
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

/// Waiters whose client sends no heartbeats are taken out of the queue by others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_delays_no_heartbeats_at_other_nodes() {
    let cluster = block_in_place(|| {
        let options = Cluster::options().masters(2).replicas(0).partial_coverage();
        options.node_timeout(4 * DEADLINE).start()
    });
    let waiter_timeout = Duration::from_secs(3);
    let options = || {
        let options = builder(&cluster).waiter_timeout(waiter_timeout);
        options.response_timeout(Duration::from_secs(20))
    };
    let (holder, waiting) = (options().build().unwrap(), options().build().unwrap());
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    // More names than calls in progress, each in a slot of its own.
    for at in [0, 0, 0, 0, 0, 0, 0, 0, 1] {
        let number = guards.len();
        let name = cluster.name_at(at, &format!("beats:{number}")).await;
        guards.push(holder.fair_lock(&name).lock().await.unwrap());
        let lock = waiting.fair_lock(&name);
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(DEADLINE, async || {
            cluster.command::<bool>(at, &["EXISTS", &queue]).await
        })
        .await;
    }
    let name = guards[8].name().to_owned();
    let notes = format!("redlock_fair:{{{name}}}");
    block_in_place(|| cluster.pause(0));
    let paused = Instant::now();
    while paused.elapsed() < 3 * waiter_timeout {
        let (seconds, micros): (u64, u64) = cluster.command(1, &["TIME"]).await;
        let until: u64 = cluster.command(1, &["HGET", &notes, waiting.uuid()]).await;
        let now = seconds * 1000 + micros / 1000;
        assert!(
            until > now,
            "dead since {} ms, after {:?}",
            now - until,
            paused.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    block_in_place(|| cluster.resume(0));
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        // Those at the first node may have lost their place or their lease.
        let _ = guard.unlock().await;
        let next = within(DEADLINE, waiter).await.unwrap();
        next.unlock().await.unwrap();
    }
    assert_clean(&cluster, "beats", &[&holder, &waiting]).await;
}
