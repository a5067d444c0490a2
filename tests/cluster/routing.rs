//! Calls to a Redis Cluster go to the node that has their slot, whichever that is by then.

use std::{
    collections::BTreeSet,
    pin::pin,
    time::{Duration, Instant},
};

use futures::TryStreamExt;
use redlock_rt::{Client, ClientBuilder, ErrorKind, LockOptions, RLockGuard, ReplicaAck, Shutdown};
use tests::{
    Cluster, Matcher, RedisServer, assert_held, calls, eventually, lock_and_unlock, shared_cluster,
    slot_of, trace_init, unique, valid_until, within,
};
use tokio::task::block_in_place;

/// The limit for events that must happen.
const DEADLINE: Duration = Duration::from_secs(60);

fn builder(cluster: &Cluster) -> ClientBuilder {
    trace_init();
    Client::builder().url(&cluster.url())
}

#[tokio::test]
async fn locks_of_many_slots_are_held_each_on_its_node() {
    let cluster = shared_cluster();
    let client = builder(cluster).connect().await.unwrap();
    let prefix = unique("many");
    let names: Vec<String> = (0..200)
        .map(|number| format!("{prefix}:{number}"))
        .collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.rlock(name).try_lock().await.unwrap().unwrap());
    }
    for name in &names {
        let exists: i64 = cluster.of_key(name, &["EXISTS", name]).await;
        assert_eq!(exists, 1, "{name}");
        assert!(client.rlock(name).is_locked().await.unwrap(), "{name}");
        assert!(client.rlock(name).try_lock().await.unwrap().is_none());
    }
    let found = client.scan(&format!("{prefix}:*"));
    let found: BTreeSet<String> = found.map_ok(|one| one.name).try_collect().await.unwrap();
    assert_eq!(found, names.iter().cloned().collect(), "on all nodes");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for name in &names {
        let exists: i64 = cluster.of_key(name, &["EXISTS", name]).await;
        assert_eq!(exists, 0, "{name}");
    }
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
}

/// A scan names each master by its first slot. It read one twice, and the other not, or went on at the other with a cursor
/// of the one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moved_during_a_scan_hid_the_locks_of_other_slots() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let client = builder(&cluster).connect().await.unwrap();
    let wanted: BTreeSet<_> = (0..1000).map(|number| format!("scan:{number}")).collect();
    let mut guards = Vec::new();
    for name in &wanted {
        guards.push(client.rlock(name).lock().await.unwrap());
    }
    // The first slot of the second master, then of the first one.
    for (slot, to) in [(8192, 0), (0, 1)] {
        let mut scan = pin!(client.scan("scan:*").map_ok(|found| found.name));
        let mut found = BTreeSet::from([scan.try_next().await.unwrap().unwrap()]);
        cluster.migrate(slot, to).await.finish().await;
        let mut names = (0..).map(|number| format!("moved:{number}"));
        let moved = names.find(|name| slot_of(name) == slot).unwrap();
        // The client learns where the slot is.
        assert!(!client.rlock(moved).is_locked().await.unwrap());
        while let Some(name) = scan.try_next().await.unwrap() {
            found.insert(name);
        }
        let missing = wanted.difference(&found);
        let missing: Vec<_> = missing.filter(|name| slot_of(name) != slot).collect();
        assert!(missing.is_empty(), "{slot}: {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_all_nodes_are_renewed() {
    let cluster = shared_cluster();
    let client = builder(cluster).connect().await.unwrap();
    let prefix = unique("renewed");
    let often = LockOptions::new().renew(Duration::from_secs(1));
    let mut guards = Vec::new();
    // More than one batch, of which some have several holds of one slot.
    for number in 0..150 {
        let name = format!("{prefix}:{{{}}}:{number}", number % 50);
        guards.push(client.rlock(name).lock_with(often.clone()).await.unwrap());
    }
    let until = |guard: &RLockGuard| valid_until(&guard.state());
    let before = guards.iter().map(until).max().unwrap();
    let renewed = async || guards.iter().all(|guard| until(guard) > before);
    eventually(DEADLINE, renewed).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// Its key is gone, and the client learns of that when the slot moves, not at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_slot_that_moved_are_verified_at_once() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let client = builder(&cluster).connect().await.unwrap();
    let (name, other) = (
        cluster.name_at(0, "verified").await,
        cluster.name_at(1, "verified").await,
    );
    let guard = client.rlock(&name).lock().await.unwrap();
    let kept = client.rlock(&other).lock().await.unwrap();
    let calls = |calls: &std::collections::HashMap<String, u64>| {
        calls.get("evalsha").copied().unwrap_or_default()
    };
    let migration = cluster.migrate(slot_of(&name), 1).await;
    cluster.command::<i64>(0, &["DEL", &name]).await;
    migration.finish().await;
    let before = calls(&cluster.calls(1).await);
    let sibling = client.rlock(format!("{{{name}}}:sibling"));
    lock_and_unlock(&sibling).await;
    within(Duration::from_secs(5), guard.lost()).await;
    assert!(kept.is_valid());
    let after = calls(&cluster.calls(1).await);
    // One verification, the sibling where the plain commands are not taken, and scripts that the node
    // did not know: nothing about the lock in another slot.
    assert!(after <= before + 5, "{before:?} {after:?}");
    kept.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_over_a_failover_without_loss() {
    const LEASE: Duration = Duration::from_secs(4);
    let cluster = block_in_place(|| Cluster::options().start());
    let client = builder(&cluster).lease(LEASE).connect().await.unwrap();
    let name = cluster.name_at(0, "failover").await;
    let guard = client.rlock(&name).lock().await.unwrap();
    let replica = cluster.replicas_of(0).await[0];
    cluster.fail_over_to(replica).await;
    let started = Instant::now();
    let wait = LockOptions::new().wait(DEADLINE);
    let sibling = client.rlock(format!("{{{name}}}:sibling"));
    let taken = sibling.lock_with(wait.clone()).await.unwrap();
    eprintln!(
        "a lock was given out {:?} after the failover",
        started.elapsed()
    );
    while started.elapsed() < 2 * LEASE {
        assert!(guard.is_valid(), "after {:?}", started.elapsed());
        tokio::time::sleep(LEASE / 20).await;
    }
    assert_eq!(cluster.master_of(&name).await, replica);
    taken.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    // And back.
    cluster.fail_over_to(0).await;
    let again = client.rlock(&name).lock_with(wait.clone()).await.unwrap();
    again.unlock().await.unwrap();
}

/// What a master that hangs has not read yet, it reads when it goes on. By then a replica has its
/// slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deposed_master_reads_late_takes_no_lock() {
    let cluster = block_in_place(|| Cluster::options().start());
    let client = builder(&cluster).connect().await.unwrap();
    let name = cluster.name_at(0, "deposed").await;
    let lock = client.rlock(&name);
    lock_and_unlock(&lock).await;
    let replica = cluster.replicas_of(0).await[0];
    block_in_place(|| cluster.pause(0));
    // Over before a replica takes its place.
    let brief = LockOptions::new().wait(Duration::from_millis(600));
    let error = lock.lock_with(brief).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    cluster.is_promoted(replica).await;
    let wait = LockOptions::new().wait(DEADLINE);
    let guard = lock.lock_with(wait.clone()).await.unwrap();
    block_in_place(|| cluster.resume(0));
    // It runs what it has not read, learns of the failover, and discards it.
    eventually(DEADLINE, async || {
        let role: Result<Vec<redis::Value>, _> = cluster.try_command(0, &["ROLE"]).await;
        let role = role.ok().and_then(|role| role.into_iter().next());
        (role == Some(redis::Value::BulkString(b"slave".into()))).then_some(())
    })
    .await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    // Its slots come back to it.
    eventually(DEADLINE, async || {
        let info: String = cluster.command(0, &["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
    // Redis gives up a failover by hand that comes too soon after another one.
    eventually(DEADLINE, async || {
        let _ = cluster.try_command::<()>(0, &["CLUSTER", "FAILOVER"]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.master_of(&name).await == 0
    })
    .await;
    assert!(!lock.is_locked().await.unwrap());
    let guard = lock.lock_with(wait.clone()).await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_client_learns_all_nodes_from_one() {
    let cluster = shared_cluster();
    let dead = RedisServer::start();
    let seeds = [dead.url(), cluster.node(1).url()];
    dead.kill();
    let client = Client::builder().cluster(seeds).connect().await.unwrap();
    let prefix = unique("learned");
    for number in 0..20 {
        let lock = client.rlock(format!("{prefix}:{number}"));
        lock_and_unlock(&lock).await;
    }
}

#[tokio::test]
async fn a_server_that_is_no_node_is_refused() {
    let server = RedisServer::start();
    let url = format!("redis+cluster://{}", server.address());
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(format!("{error} {:?}", std::error::Error::source(&error)).contains("not a node"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_the_master_of_each_lock_acknowledge() {
    let cluster = block_in_place(|| Cluster::options().start());
    let client = builder(&cluster)
        .replica_ack(ReplicaAck::All)
        .replica_timeout(Duration::from_secs(10))
        .connect()
        .await
        .unwrap();
    // Together: they are acknowledged by slot.
    let mut locked = tokio::task::JoinSet::new();
    for number in 0..30 {
        let lock = client.rlock(format!("acked:{number}"));
        locked.spawn(async move { lock_and_unlock(&lock).await });
    }
    locked.join_all().await;
    let name = cluster.name_at(1, "acked").await;
    let replica = cluster.replicas_of(1).await[0];
    block_in_place(|| cluster.pause(replica));
    let hasty = builder(&cluster)
        .replica_ack(ReplicaAck::All)
        .replica_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let error = hasty.rlock(&name).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    let elsewhere = cluster.name_at(2, "acked").await;
    let guard = client.rlock(&elsewhere).lock().await.unwrap();
    guard.unlock().await.unwrap();
    block_in_place(|| cluster.resume(replica));
}

/// What the old master has answered says nothing of a slot that it has no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_outlived_its_lease_by_a_renewal_that_its_old_master_answered() {
    const LEASE: Duration = Duration::from_secs(12);
    let options = Cluster::options().masters(2).replicas(0).behind_proxies();
    let cluster = block_in_place(|| options.start());
    let [old, new] = &cluster.proxies()[..] else {
        panic!("there are two");
    };
    let patient = builder(&cluster).response_timeout(LEASE);
    let client = patient.connect().await.unwrap();
    let name = cluster.name_at(0, "answered").await;
    let renewed = LockOptions::new().lease(LEASE).renew(LEASE / 4);
    let guard = client.rlock(&name).lock_with(renewed).await.unwrap();
    let until = assert_held(&guard.state());
    let migration = cluster.migrate(slot_of(&name), 1).await;
    let renewals = calls("renew").mentioning(&name);
    let answered = old.hold_reply(renewals);
    answered.reached().await;
    // The new master does not answer, so nothing renews the lock there.
    let asked = new.hold_request(Matcher::any().mentioning(&name));
    migration.finish().await;
    let sibling = client.rlock(format!("{{{name}}}:sibling"));
    let told = tokio::spawn(async move { sibling.try_lock().await });
    asked.reached_by(2).await;
    answered.open();
    tokio::time::sleep_until(until.into()).await;
    assert!(!guard.is_valid(), "{guard:?}");
    asked.open();
    drop(told.await.unwrap());
}
