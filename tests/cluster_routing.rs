//! Calls to a Redis Cluster go to the node that has their slot, whichever that is by then.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use redlock_rt::{Client, ClientBuilder, Shutdown};
use tests::{Cluster, shared_cluster, trace_init, unique};

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
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for name in &names {
        let exists: i64 = cluster.of_key(name, &["EXISTS", name]).await;
        assert_eq!(exists, 0, "{name}");
    }
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
}
