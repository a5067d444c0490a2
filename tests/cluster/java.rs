//! A client of Redisson and one of ours share a lock in a cluster, each waiting for the other.

use std::time::Duration;

use tests::{Cluster, RedissonClient, RedissonUnlock, shared_cluster, unique, within};

use crate::{assert_clean, client, lock_channel, subscribed};

async fn theirs_at(cluster: &Cluster, at: usize) -> RedissonClient {
    let url = cluster.node(at).url();
    RedissonClient::connect_to_shard(&url).await.unwrap()
}

/// How soon a waiter gets a lock of the other side; its lease would end after 30 s.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_wakes_the_other() {
    let cluster = shared_cluster();
    let prefix = unique("java");
    for at in cluster.all() {
        let name = cluster.name_at(at, &format!("{prefix}:{at}")).await;
        let channel = lock_channel(&name);
        let ours = client(cluster).await;
        let java = theirs_at(cluster, at).await;
        let theirs = java.rlock(name.clone());
        for _ in 0..3 {
            // Ours waits for theirs.
            assert!(theirs.try_lock(1, None).await.unwrap());
            let lock = ours.rlock(&name);
            let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
            subscribed(cluster, at, &channel, 1).await;
            assert!(!waiter.is_finished());
            assert_eq!(theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
            let guard = within(SOON, waiter).await.unwrap();

            // Theirs waits for ours.
            subscribed(cluster, at, &channel, 0).await;
            let lock = theirs.clone();
            let waiter = tokio::spawn(async move { lock.lock(2, None).await.unwrap() });
            subscribed(cluster, at, &channel, 1).await;
            guard.unlock().await.unwrap();
            assert!(within(SOON, waiter).await.unwrap());
            assert_eq!(theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
            subscribed(cluster, at, &channel, 0).await;
        }
        assert_clean(cluster, &name, &[&ours]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_queue_has_waiters_of_both() {
    let cluster = shared_cluster();
    let name = unique("java-fair");
    let at = cluster.master_of(&name).await;
    let ours = client(cluster).await;
    let java = theirs_at(cluster, at).await;
    let (lock, theirs) = (ours.fair_lock(&name), java.fair_lock(name.clone()));
    let queue = format!("redisson_lock_queue:{{{name}}}");
    let queued = async |count: usize| {
        tests::eventually(crate::DEADLINE, async || {
            cluster.command::<usize>(at, &["LLEN", &queue]).await == count
        })
        .await;
    };
    let guard = lock.lock().await.unwrap();
    let java_waits = {
        let theirs = theirs.clone();
        tokio::spawn(async move { theirs.lock(1, None).await.unwrap() })
    };
    queued(1).await;
    let we_wait = tokio::spawn(async move { lock.lock().await.unwrap() });
    queued(2).await;
    guard.unlock().await.unwrap();
    assert!(within(SOON, java_waits).await.unwrap());
    assert!(!we_wait.is_finished());
    theirs.unlock(1).await.unwrap();
    let guard = within(SOON, we_wait).await.unwrap();
    guard.unlock().await.unwrap();
    assert_clean(cluster, &name, &[&ours]).await;
}
