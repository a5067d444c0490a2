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
    let here = client.rlock(cluster.name_at(0, "hang:released").await);
    let lasts = LockOptions::new().lease(DEADLINE).renew(false);
    let released = here.lock_with(lasts).await.unwrap();
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
    assert!(longest < LEASE / 2, "{longest:?}");
    for guard in &guards[..4] {
        assert!(!guard.is_valid(), "{} was not renewed", guard.name());
    }
    let late = client.rlock(guards[0].name());
    let wait = LockOptions::new().wait(Duration::from_millis(200));
    let error = late.lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // They named all nodes of the URL.
    for error in [error, released.unlock().await.unwrap_err()] {
        let text = tests::told(&error);
        let is_named = |at| text.contains(&cluster.node(at).address().to_string());
        assert!(is_named(0) && !is_named(1) && !is_named(2), "{text}");
    }
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
        let note: String = cluster.command(1, &["HGET", &notes, waiting.uuid()]).await;
        let until: u64 = note.split('.').next().unwrap().parse().unwrap();
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

/// The node is dialed and does not answer, which says nothing; a replica takes its place meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_node_that_hangs_asks_who_has_its_slots() {
    const LONG: Duration = Duration::from_secs(50);
    let cluster = block_in_place(|| Cluster::options().start());
    let client = builder(&cluster)
        .connect_timeout(LONG)
        .response_timeout(Duration::from_millis(600))
        .connect()
        .await
        .unwrap();
    let name = cluster.name_at(0, "asks").await;
    let lock = client.rlock(&name);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let replica = cluster.replicas_of(0).await[0];
    block_in_place(|| cluster.pause(0));
    let wait = LockOptions::new().wait(LONG);
    let waiting = tokio::spawn(async move { lock.lock_with(wait).await });
    cluster.is_promoted(replica).await;
    let promoted = Instant::now();
    let guard = within(LONG / 2, waiting).await.unwrap().unwrap();
    let late = promoted.elapsed();
    eprintln!("the lock was given out {late:?} after the promotion");
    assert!(late < LONG / 5, "{late:?}");
    guard.unlock().await.unwrap();
    block_in_place(|| cluster.resume(0));
}

/// So many are under way there that no others would be with the limit of a single server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_wait_for_a_node_that_hangs_hold_up_no_others() {
    const LONG: Duration = Duration::from_secs(50);
    let cluster = block_in_place(|| {
        let options = Cluster::options().masters(2).replicas(0).partial_coverage();
        options.node_timeout(4 * DEADLINE).start()
    });
    let client = builder(&cluster)
        .lease(2 * LONG)
        .response_timeout(LONG)
        .connect()
        .await
        .unwrap();
    let first = cluster.name_at(0, "hung").await;
    let mut guards = Vec::new();
    for number in 0..400 {
        let lock = client.rlock(format!("{{{first}}}:{number}"));
        guards.push(lock.lock().await.unwrap());
    }
    let name = cluster.name_at(1, "released").await;
    let guard = client.rlock(&name).lock().await.unwrap();
    block_in_place(|| cluster.pause(0));
    drop(guards);
    // It cannot be sent at once.
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    cluster.command::<()>(1, &kill).await;
    drop(guard);
    let dropped = Instant::now();
    eventually(LONG / 2, async || {
        let exists: i64 = cluster.command(1, &["EXISTS", &name]).await;
        (exists == 0).then_some(())
    })
    .await;
    let late = dropped.elapsed();
    eprintln!("released {late:?} after the drop");
    assert!(late < LONG / 10, "{late:?}");
    assert!(client.stats().releases >= 400, "{:?}", client.stats());
    block_in_place(|| cluster.resume(0));
    eventually(DEADLINE, async || {
        (client.stats().releases == 0).then_some(())
    })
    .await;
}
