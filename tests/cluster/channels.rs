//! Channels: where they are subscribed, when their slots move, and when their nodes die. They are
//! sharded, but plain below Redis 7.0.

use std::time::Duration;

use futures::StreamExt;
use redlock_rt::Client;
use tests::{Cluster, lock_and_unlock, shared_cluster, slot_of, unique, within};
use tokio::task::{JoinHandle, block_in_place};

use crate::{DEADLINE, NEVER, assert_clean, builder, client, lock_channel, subscribed};

/// How soon a waiter usually gets a lock. Without an announcement it would wait for the end of the
/// lease (30 s) or for ever.
const SOON: Duration = Duration::from_secs(5);

/// Waits for a lock, and releases it.
pub(crate) fn wait_for(client: &Client, name: &str) -> JoinHandle<()> {
    let lock = client.rlock(name);
    tokio::spawn(async move {
        lock_and_unlock(&lock).await;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_subscribed_at_the_master_of_its_slot() {
    // Its own: what other tests publish would count.
    let cluster = &block_in_place(|| Cluster::options().replicas(0).start());
    let prefix = unique("at");
    let (holder, waiting) = (client(cluster).await, client(cluster).await);
    for at in cluster.all() {
        let name = cluster.name_at(at, &format!("{prefix}:{at}")).await;
        let before = cluster.calls(at).await;
        let guard = holder.rlock(&name).lock().await.unwrap();
        let waiter = wait_for(&waiting, &name);
        for other in cluster.all() {
            let count = usize::from(other == at);
            subscribed(cluster, other, &lock_channel(&name), count).await;
        }
        guard.unlock().await.unwrap();
        within(SOON, waiter).await.unwrap();
        let after = cluster.calls(at).await;
        let since = |command: &str| {
            let count = |calls: &std::collections::HashMap<String, u64>| {
                calls.get(command).copied().unwrap_or(0)
            };
            count(&after) - count(&before)
        };
        let (used, other) = match cluster.has_sharded_channels(at).await {
            true => ("spublish", "publish"),
            false => ("publish", "spublish"),
        };
        assert!(since(used) >= 2, "both releases are announced by {used}");
        assert_eq!(since(other), 0, "and not by {other}");
    }
    assert_clean(cluster, &prefix, &[&holder, &waiting]).await;
}

/// A client's channel for turns in fair queues is in no slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_fair_locks_are_woken_at_every_node() {
    let cluster = shared_cluster();
    let prefix = unique("fair");
    let (holder, waiting) = (client(cluster).await, client(cluster).await);
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for at in cluster.all() {
        let name = cluster.name_at(at, &format!("{prefix}:{at}")).await;
        guards.push(holder.fair_lock(&name).lock().await.unwrap());
        let lock = waiting.fair_lock(&name);
        waiters.push(tokio::spawn(async move {
            lock_and_unlock(&lock).await;
        }));
        let queue = format!("redisson_lock_queue:{{{name}}}");
        tests::eventually(DEADLINE, async || {
            cluster.command::<bool>(at, &["EXISTS", &queue]).await
        })
        .await;
    }
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        guard.unlock().await.unwrap();
        within(SOON, waiter).await.unwrap();
    }
    assert_clean(cluster, &prefix, &[&holder, &waiting]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_follows_its_slot() {
    let cluster = block_in_place(|| Cluster::options().replicas(0).start());
    let (holder, waiting) = (client(&cluster).await, client(&cluster).await);
    let name = cluster.name_at(0, "follows").await;
    let channel = lock_channel(&name);
    let guard = holder.rlock(&name).lock().await.unwrap();
    let waiter = wait_for(&waiting, &name);
    subscribed(&cluster, 0, &channel, 1).await;
    // What is published on a plain channel is heard at every node, and no node ends a subscription.
    let follows = cluster.has_sharded_channels(0).await;
    for to in [1, 2, 0, 1] {
        cluster.migrate(slot_of(&name), to).await.finish().await;
        for at in cluster.all().filter(|_| follows) {
            subscribed(&cluster, at, &channel, usize::from(at == to)).await;
        }
        assert!(!waiter.is_finished(), "it is held");
    }
    guard.unlock().await.unwrap();
    within(SOON, waiter).await.unwrap();
    assert_clean(&cluster, "follows", &[&holder, &waiting]).await;
}

/// The announcement comes between the end of the subscription and the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_while_the_slot_moves_is_found() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let (holder, waiting) = (client(&cluster).await, client(&cluster).await);
    let name = cluster.name_at(0, "between").await;
    let guard = holder.rlock(&name).lock().await.unwrap();
    let waiter = wait_for(&waiting, &name);
    subscribed(&cluster, 0, &lock_channel(&name), 1).await;
    let migration = cluster.migrate(slot_of(&name), 1).await;
    migration.carry_all().await;
    // Runs at the new master, to which nobody is subscribed yet.
    guard.unlock().await.unwrap();
    migration.finish().await;
    within(SOON, waiter).await.unwrap();
    assert_clean(&cluster, "between", &[&holder, &waiting]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channels_of_a_node_that_dies_move_to_its_successor() {
    let cluster = block_in_place(|| Cluster::options().start());
    let lease = 4 * DEADLINE;
    let clients = [builder(&cluster), builder(&cluster)]
        .map(|builder| builder.poll_interval(NEVER).lease(lease).build().unwrap());
    let [holder, waiting] = &clients;
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for at in 0..3 {
        for which in 0..3 {
            let name = cluster.name_at(at, &format!("dies:{at}:{which}")).await;
            guards.push(holder.rlock(&name).lock().await.unwrap());
            waiters.push(wait_for(waiting, &name));
            subscribed(&cluster, at, &lock_channel(&name), 1).await;
        }
    }
    let replicas = cluster.replicas_of(0).await;
    for guard in &guards[..3] {
        tests::eventually(DEADLINE, async || {
            let keys: Vec<String> = cluster.command(replicas[0], &["KEYS", "*"]).await;
            keys.contains(&guard.name().to_owned())
        })
        .await;
    }
    block_in_place(|| cluster.kill(0));
    cluster.is_promoted(replicas[0]).await;
    for guard in &guards[..3] {
        subscribed(&cluster, replicas[0], &lock_channel(guard.name()), 1).await;
    }
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        assert!(
            !waiter.is_finished() && guard.is_valid(),
            "{}",
            guard.name()
        );
        guard.unlock().await.unwrap();
        within(SOON, waiter).await.unwrap();
    }
    assert_clean(&cluster, "dies", &[holder, waiting]).await;
}

/// Before Redis 7.0 there are no sharded channels, and an ACL may forbid them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_channels_are_used_where_sharded_ones_are_forbidden() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    if cluster.has_sharded_channels(0).await {
        let forbidden = ["-ssubscribe", "-spublish", "-pubsub"];
        let words = [&["ACL", "SETUSER", "default"][..], &forbidden].concat();
        for at in cluster.all() {
            cluster.command::<()>(at, &words).await;
        }
    }
    let (holder, waiting) = (client(&cluster).await, client(&cluster).await);
    for at in cluster.all() {
        let name = cluster.name_at(at, "plain").await;
        takes_turns(&holder, &waiting, &name).await;
    }
}

/// The announcements came on sharded channels only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_client_that_keeps_to_plain_channels_slept_through_our_releases() {
    let cluster = shared_cluster();
    let prefix = unique("off");
    let plain = || builder(cluster).poll_interval(NEVER).sharded_pubsub(false);
    let [holder, waiting] = [(); 2].map(|()| plain().build().unwrap());
    for at in cluster.all() {
        let name = cluster.name_at(at, &format!("{prefix}:{at}")).await;
        // At any node.
        let other = cluster.node((at + 1) % cluster.count());
        let java = redis::Client::open(other.url()).unwrap();
        let mut java = java.get_async_pubsub().await.unwrap();
        java.subscribe(lock_channel(&name)).await.unwrap();
        takes_turns(&holder, &waiting, &name).await;
        let heard = within(SOON, java.on_message().next()).await.unwrap();
        assert_eq!(heard.get_payload::<String>().unwrap(), "0");
    }
    assert!(!holder.acl_rule([]).contains("ssubscribe"));
    assert_clean(cluster, &prefix, &[&holder, &waiting]).await;
}

/// One client waits for the other's lock, and is told of its release.
async fn takes_turns(holder: &Client, waiting: &Client, name: &str) {
    let guard = holder.rlock(name).lock().await.unwrap();
    let waiter = wait_for(waiting, name);
    tests::eventually(DEADLINE, async || waiting.stats().subscriptions == 1).await;
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    within(SOON, waiter).await.unwrap();
    tests::eventually(DEADLINE, async || waiting.stats().subscriptions == 0).await;
}
