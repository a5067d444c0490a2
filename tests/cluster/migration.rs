//! A slot that moves while its locks are held, waited for, renewed and released.

use std::time::Duration;

use redlock_rt::{LockOptions, ReplicaAck};
use tests::{Cluster, eventually, lock_and_unlock, slot_of, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, assert_clean, builder};

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_one_key_work_throughout() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let [holder, waiting, other] =
        [(); 3].map(|()| builder(&cluster).lease(LEASE).build().unwrap());
    let name = cluster.name_at(0, "moves").await;
    let second = format!("{{{name}}}:second");
    let lock = holder.rlock(&name);
    let guard = lock.lock().await.unwrap();
    let kept = holder.rlock(&second).lock().await.unwrap();
    let waiter = {
        let lock = waiting.rlock(&name);
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    eventually(DEADLINE, async || waiting.stats().subscriptions == 1).await;

    let works = async |stage: &str| {
        let asked = other.rlock(&name);
        assert!(asked.try_lock().await.unwrap().is_none(), "{stage}");
        assert!(asked.holder().await.unwrap().is_some(), "{stage}");
        let fresh = other.rlock(format!("{{{name}}}:fresh:{stage}"));
        lock_and_unlock(&fresh).await;
    };
    // Renewed: its lease would have ended otherwise.
    let renewed = async |stage: &str| {
        tokio::time::sleep(LEASE + LEASE / 2).await;
        assert!(guard.is_valid() && kept.is_valid(), "{stage}");
    };
    works("before").await;
    let migration = cluster.migrate(slot_of(&name), 1).await;
    works("announced").await;
    migration.carry(&[&name]).await;
    works("half").await;
    renewed("half").await;
    let again = guard.reenter().await.unwrap();
    again.unlock().await.unwrap();
    migration.carry_all().await;
    works("carried").await;
    renewed("carried").await;
    assert!(!waiter.is_finished(), "it is held");
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap();
    works("handed over").await;
    migration.finish().await;
    works("finished").await;
    assert!(guard.is_valid() && kept.is_valid());
    assert_eq!(cluster.master_of(&name).await, 1);
    guard.unlock().await.unwrap();
    kept.unlock().await.unwrap();
    assert_clean(&cluster, "moves", &[&holder, &waiting, &other]).await;
}

/// Its keys are in two places for a while: TRYAGAIN.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_several_keys_wait_until_they_are_together() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let [holder, waiting] = [(); 2].map(|()| builder(&cluster).lease(4 * LEASE).build().unwrap());
    let name = cluster.name_at(0, "torn").await;
    let rw = holder.read_write_lock(&name);
    let guard = rw.read().await.unwrap();
    let fair_name = format!("{{{name}}}:fair");
    let held = holder.fair_lock(&fair_name).lock().await.unwrap();
    let waiter = {
        let lock = waiting.fair_lock(&fair_name);
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let queue = format!("redisson_lock_queue:{fair_name}");
    eventually(DEADLINE, async || {
        cluster.command::<bool>(0, &["EXISTS", &queue]).await
    })
    .await;
    let migration = cluster.migrate(slot_of(&name), 1).await;
    // The locks, and not what belongs to them.
    migration.carry(&[&name, &fair_name]).await;
    assert!(!migration.left().await.is_empty());
    // Released meanwhile: the release waits, and so does the next holder.
    let released = tokio::spawn(async move { held.unlock().await });
    let wait = LockOptions::new().wait(Duration::from_millis(300));
    let waited = waiting.read_write_lock(&name).write_with(wait).await;
    assert!(waited.is_err());
    assert!(guard.is_valid() && !waiter.is_finished());
    migration.finish().await;
    released.await.unwrap().unwrap();
    let next = within(DEADLINE, waiter).await.unwrap();
    next.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    let write = waiting.read_write_lock(&name);
    let wait = LockOptions::new().wait(DEADLINE);
    let write = write.write_with(wait).await.unwrap();
    write.unlock().await.unwrap();
    assert_clean(&cluster, "torn", &[&holder, &waiting]).await;
}

/// The old master was asked for its replicas until the time for them was over, and had no such lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_replica_had_a_lock_that_was_given_while_its_slot_moved() {
    let cluster = block_in_place(|| Cluster::options().masters(2).start());
    let acked = builder(&cluster).replica_ack(ReplicaAck::AtLeast(1));
    let client = acked.replica_timeout(2 * LEASE).build().unwrap();
    let name = cluster.name_at(0, "acked").await;
    let migration = cluster.migrate(slot_of(&name), 1).await;
    let guard = client.rlock(&name).lock().await.unwrap();
    let replica = cluster.replicas_of(1).await[0];
    let has: Vec<String> = cluster.command(replica, &["KEYS", &name]).await;
    assert_eq!(has, [name]);
    guard.unlock().await.unwrap();
    migration.finish().await;
    assert_clean(&cluster, "acked", &[&client]).await;
}

/// Only one of them had arrived, and a call for both was redirected, or put off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_locks_that_waited_for_replicas_failed_while_their_slot_moved() {
    let cluster = block_in_place(|| Cluster::options().masters(2).start());
    let acked = builder(&cluster).replica_ack(ReplicaAck::AtLeast(1));
    let client = acked.replica_timeout(DEADLINE).build().unwrap();
    let name = cluster.name_at(0, "stays").await;
    let replica = cluster.replicas_of(0).await[0];
    cluster.pause(replica);
    let stays = client.rlock(&name);
    let stays = tokio::spawn(async move { stays.lock().await });
    eventually(DEADLINE, async || client.stats().held == 1).await;
    let migration = cluster.migrate(slot_of(&name), 1).await;
    let arrives = client.rlock(format!("{{{name}}}:arrives"));
    let arrives = within(DEADLINE / 2, arrives.lock()).await.unwrap();
    cluster.resume(replica);
    let stays = within(DEADLINE / 2, stays).await.unwrap().unwrap();
    stays.unlock().await.unwrap();
    arrives.unlock().await.unwrap();
    migration.finish().await;
    assert_clean(&cluster, "stays", &[&client]).await;
}

/// The lock has arrived, and the keys with the leases of the reader have not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_was_lost_while_the_keys_of_its_lock_were_on_their_way() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let patient = builder(&cluster).response_timeout(DEADLINE);
    let client = patient.lease(DEADLINE).build().unwrap();
    let name = cluster.name_at(0, "reader").await;
    let guard = client.read_write_lock(&name).read().await.unwrap();
    let migration = cluster.migrate(slot_of(&name), 1).await;
    migration.carry(&[&name]).await;
    assert!(!migration.left().await.is_empty());
    let finished = async {
        // The extension was sent on to the new master, and is to be again.
        eventually(DEADLINE, async || {
            let errors: String = cluster.command(0, &["INFO", "errorstats"]).await;
            let mut lines = errors.lines();
            let asks = lines.find_map(|line| line.strip_prefix("errorstat_ASK:count="));
            asks.is_some_and(|asks| asks.parse::<u32>().unwrap() > 1)
        })
        .await;
        migration.finish().await;
        Ok(())
    };
    tokio::try_join!(guard.extend(2 * DEADLINE), finished).unwrap();
    guard.unlock().await.unwrap();
    assert_clean(&cluster, "reader", &[&client]).await;
}
