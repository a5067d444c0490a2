//! A real Redis Cluster: its slots, its sharded channels, nodes that die or hang, slots that move.

mod busy;
mod channels;
mod crowd;
mod fair;
mod hang;
mod java;
mod migration;
mod names;
mod readers;
mod returned;
mod routing;
mod tls;
mod traffic;

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder};
use tests::{Cluster, eventually, in_use, trace_init};

/// The limit for events that must happen. A failover is one of them.
const DEADLINE: Duration = Duration::from_secs(60);
/// A poll interval longer than any test: only announcements wake.
const NEVER: Duration = Duration::from_secs(600);

fn builder(cluster: &Cluster) -> ClientBuilder {
    trace_init();
    let linger = Duration::from_millis(20);
    Client::builder().url(&cluster.url()).linger(linger)
}

/// A client whose waiters only announcements wake.
async fn client(cluster: &Cluster) -> Client {
    let builder = builder(cluster).poll_interval(NEVER);
    builder.connect().await.unwrap()
}

/// Waits until so many connections are subscribed to a channel at a node: to a sharded one, where
/// there are such.
async fn subscribed(cluster: &Cluster, node: usize, channel: &str, count: usize) {
    let sort = match cluster.has_sharded_channels(node).await {
        true => "SHARDNUMSUB",
        false => "NUMSUB",
    };
    eventually(DEADLINE, async || {
        let words = ["PUBSUB", sort, channel];
        let (_, there): (String, usize) = cluster.command(node, &words).await;
        match there == count {
            true => Ok(()),
            false => Err(format!("{there} are subscribed")),
        }
    })
    .await;
}

fn lock_channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Nothing is left of these clients, nor in Redis of what contains `prefix`.
async fn assert_clean(cluster: &Cluster, prefix: &str, clients: &[&Client]) {
    eventually(DEADLINE, async || {
        let keys = cluster.keys().await;
        let mut left: Vec<String> = keys
            .into_iter()
            .filter(|key| key.contains(prefix))
            .collect();
        for at in cluster.all() {
            if cluster.node(at).is_up() {
                let channels = cluster.channels(at).await;
                left.extend(channels.into_iter().filter(|name| name.contains(prefix)));
            }
        }
        for client in clients {
            left.extend(in_use(client));
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    })
    .await;
}
