//! What a client sends to a cluster: over how many connections, in how many calls, and where to.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{Client, ErrorKind, LockOptions, ReplicaAck, Shutdown};
use tests::{Cluster, eventually, slot_of};
use tokio::task::block_in_place;

use crate::{DEADLINE, builder};

/// The connections of clients to a node, apart from those of this test.
async fn connections(cluster: &Cluster, at: usize) -> usize {
    let list: String = cluster.command(at, &["CLIENT", "LIST"]).await;
    let own = |line: &&str| line.contains("cmd=client");
    list.lines().filter(|line| !own(line)).count()
}

async fn has_connections(cluster: &Cluster, expected: [usize; 2]) {
    eventually(DEADLINE, async || {
        let there = [connections(cluster, 0).await, connections(cluster, 1).await];
        (there == expected)
            .then_some(())
            .ok_or_else(|| format!("{there:?}, not {expected:?}"))
    })
    .await;
}

/// The docs of `Client` and docs/topologies.md give these numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_has_a_connection_for_each_purpose_that_it_is_used_for() {
    const RENEW: Duration = Duration::from_millis(50);
    // A connection whose server answers later is closed.
    const ACKS: Duration = Duration::from_secs(1);
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let client = builder(&cluster)
        .replica_timeout(ACKS)
        .linger(DEADLINE)
        .build()
        .unwrap();
    has_connections(&cluster, [0, 0]).await;
    let mut kept = Vec::new();
    for at in [0, 1] {
        let before = 3 * at;
        let lock = client.rlock(cluster.name_at(at, "counted").await);
        assert!(!lock.is_locked().await.unwrap());
        has_connections(&cluster, [before.max(2), 2 * at]).await;
        let options = LockOptions::new().renew(RENEW);
        let guard = lock.lock_with(options).await.unwrap();
        eventually(DEADLINE, async || {
            let count = connections(&cluster, at).await;
            (count == 2).then_some(()).ok_or(count)
        })
        .await;
        let waiter = tokio::spawn(async move { lock.lock().await });
        has_connections(&cluster, [3, before]).await;
        waiter.abort();
        // As many as with one lock.
        for number in 0..20 {
            let name = format!("{{{}}}:{number}", guard.name());
            kept.push(
                client
                    .rlock(name)
                    .lock_with(LockOptions::new().renew(RENEW))
                    .await
                    .unwrap(),
            );
        }
        kept.push(guard);
    }
    has_connections(&cluster, [3, 3]).await;
    let acked = client.rlock(cluster.name_at(0, "acked").await);
    let acks = LockOptions::new().replica_ack(ReplicaAck::AtLeast(1));
    let error = acked.lock_with(acks).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    has_connections(&cluster, [4, 3]).await;
    assert_eq!(client.stats().tasks, 3);
    drop(kept);
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    has_connections(&cluster, [0, 0]).await;
}

/// The table of slots changes with the redirection; the layout that is asked for confirms it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moved_is_followed_although_no_node_tells_the_layout() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    for at in [0, 1] {
        let words = ["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all"];
        cluster.command::<()>(at, &words).await;
    }
    let url = cluster.url().replace("://", "://app:any@");
    let client = Client::builder().url(&url).connect().await.unwrap();
    let name = cluster.name_at(0, "followed").await;
    let sibling = format!("{{{name}}}:sibling");
    for name in [&name, &sibling] {
        let lock = client.rlock(name);
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    for at in [0, 1] {
        let words = ["ACL", "SETUSER", "app", "-cluster"];
        cluster.command::<()>(at, &words).await;
    }
    let refused = async |at| {
        let info: String = cluster.command(at, &["INFO", "errorstats"]).await;
        let moved = info
            .lines()
            .find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        moved.map_or(0, |count| count.trim().parse().unwrap())
    };
    // What every renewal needs was asked for with a key of another node.
    let before: u64 = refused(0).await;
    cluster.migrate(slot_of(&name), 1).await.finish().await;
    let calls = async |at| {
        let calls = cluster.calls(at).await;
        let calls = ["evalsha", "restore", "hdel"].map(|call| calls.get(call).copied());
        calls.into_iter().flatten().sum::<u64>()
    };
    for name in [&name, &sibling] {
        let before = calls(0).await;
        let guard = client.rlock(name).try_lock().await.unwrap();
        guard.unwrap().unlock().await.unwrap();
        // What a node redirects does not count as a call.
        assert_eq!(calls(0).await, before, "{name}");
    }
    let moved: u64 = refused(0).await;
    assert_eq!(moved - before, 1, "one redirection, and the table is right");
}

/// One call for the holds of a slot that are due, however many others are due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_of_a_few_slots_are_renewed_by_a_few_calls() {
    const RENEW: Duration = Duration::from_secs(1);
    const SLOTS: usize = 20;
    const EACH: usize = 60;
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let client = builder(&cluster).connect().await.unwrap();
    let mut locking = tokio::task::JoinSet::new();
    for number in 0..SLOTS * EACH {
        let lock = client.rlock(format!("few:{{{}}}:{number}", number % SLOTS));
        let options = LockOptions::new().renew(RENEW).wait(DEADLINE);
        locking.spawn(async move { lock.lock_with(options).await.unwrap() });
    }
    let guards = locking.join_all().await;
    let calls = async || {
        let mut calls = 0;
        for at in [0, 1] {
            calls += cluster.calls(at).await.get("evalsha").copied().unwrap_or(0);
        }
        calls
    };
    let rounds = u64::try_from(SLOTS * 5).unwrap();
    let in_four_rounds = async || {
        let before = calls().await;
        tokio::time::sleep(4 * RENEW).await;
        calls().await - before
    };
    // Their times come together, the later the longer it took to have all. Where the machine is busy,
    // some of a slot come late, and have a call of their own.
    let each = 4 * u64::try_from(SLOTS * EACH).unwrap();
    let mut renewals = in_four_rounds().await;
    let since = Instant::now();
    while renewals > 2 * rounds && since.elapsed() < DEADLINE {
        renewals = in_four_rounds().await;
    }
    eprintln!(
        "{renewals} calls renewed {} holds of {SLOTS} slots four times",
        SLOTS * EACH
    );
    assert!((rounds / 2..=each / 10).contains(&renewals), "{renewals}");
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

/// There was a WAIT for each slot, one after the other: some locks were told of no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_many_slots_that_were_ready_together_were_waited_for_one_by_one() {
    const LOCKS: usize = 64;
    let cluster = block_in_place(|| Cluster::options().masters(1).replicas(1).start());
    let client = builder(&cluster).replica_timeout(DEADLINE).build().unwrap();
    let one = || LockOptions::new().replica_ack(ReplicaAck::AtLeast(1));
    drop(client.rlock("first").lock_with(one()).await.unwrap());
    let waits = async || cluster.calls(0).await.get("wait").copied().unwrap();
    let before = waits().await;
    block_in_place(|| cluster.pause(1));
    let name = |at: usize| format!("slots:{at}");
    let slots: BTreeSet<u16> = (0..LOCKS).map(|at| slot_of(&name(at))).collect();
    assert!(slots.len() > LOCKS / 2);
    let all = (0..LOCKS).map(|at| {
        let lock = client.rlock(name(at));
        tokio::spawn(async move { lock.lock_with(one()).await })
    });
    let all: Vec<_> = all.collect();
    eventually(DEADLINE, async || client.stats().held >= LOCKS).await;
    block_in_place(|| cluster.resume(1));
    for guard in join_all(all).await {
        assert!(guard.unwrap().unwrap().is_valid());
    }
    // While the replica stood still, there was one now and then.
    let waits = waits().await - before;
    assert!(waits < slots.len() as u64 / 2, "{waits} WAITs");
}
