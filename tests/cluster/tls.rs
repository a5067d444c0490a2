//! A cluster whose nodes speak TLS, to each other and to clients.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind};
use tests::{Cluster, shared_cluster, slot_of, trace_init, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, NEVER, assert_clean, lock_channel, subscribed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_speaks_tls() {
    trace_init();
    let cluster = block_in_place(|| {
        let options = Cluster::options().masters(2).replicas(0);
        options.each(|server| server.tls()).start()
    });
    let url = cluster.tls_url();
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    let untrusted = within(DEADLINE, Client::connect(&url)).await.unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Misconfigured, "{untrusted}");
    // They said "unexpected end of file", and proposed the URL of a single server.
    let plain = url.replace("rediss", "redis");
    let with_tls = block_in_place(shared_cluster)
        .url()
        .replace("redis", "rediss");
    for (url, instead) in [(plain, "rediss+cluster://"), (with_tls, "redis+cluster://")] {
        let error = within(DEADLINE, Client::connect(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        let text = tests::told(&error);
        assert!(text.contains(instead) && text.contains("TLS"), "{text}");
    }
    let builder = Client::builder()
        .url(&url)
        .tls_roots(cluster.node(0).ca_pem())
        .linger(Duration::from_millis(20))
        .poll_interval(NEVER);
    let (holder, waiting) = (builder.clone().build().unwrap(), builder.build().unwrap());
    for at in cluster.all() {
        let name = cluster.name_at(at, "tls").await;
        let guard = holder.rlock(&name).lock().await.unwrap();
        let waiter = waiting.rlock(&name);
        let waiter = tokio::spawn(async move { waiter.lock().await.unwrap() });
        subscribed(&cluster, at, &lock_channel(&name), 1).await;
        assert_only_tls(&cluster, at).await;
        guard.unlock().await.unwrap();
        let guard = within(DEADLINE, waiter).await.unwrap();
        // Its keys are at the other node, and so it is told.
        let slot = slot_of(&name);
        cluster.migrate(slot, 1 - at).await.finish().await;
        guard.unlock().await.unwrap();
        let guard = holder.rlock(&name).lock().await.unwrap();
        assert_only_tls(&cluster, 1 - at).await;
        guard.unlock().await.unwrap();
        cluster.migrate(slot, at).await.finish().await;
    }
    assert_clean(&cluster, "tls", &[&holder, &waiting]).await;
}

/// All clients of the library at this node came through its port for TLS.
async fn assert_only_tls(cluster: &Cluster, at: usize) {
    let clients: String = cluster.command(at, &["CLIENT", "LIST"]).await;
    let ours = clients.lines().filter(|line| {
        let is = |command| line.contains(command);
        is("cmd=evalsha") || is("cmd=restore") || is("cmd=ssubscribe")
    });
    let ours: Vec<&str> = ours.collect();
    assert!(!ours.is_empty(), "{clients}");
    let port = format!(":{}", cluster.node(at).tls_port());
    for line in ours {
        let local = line.split(' ').find(|field| field.starts_with("laddr="));
        assert!(local.is_some_and(|local| local.ends_with(&port)), "{line}");
    }
}
