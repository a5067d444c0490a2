//! Names whose keys would be in several slots, and locks over several slots.

use std::time::Duration;

use redlock_rt::{Client, Error, ErrorKind, LockOptions, Quorum};
use tests::{shared_cluster, shared_server, unique};

use crate::{assert_clean, builder, client};

/// What each kind answers to its first call.
async fn first_calls(client: &Client, name: &str) -> Vec<(&'static str, Option<Error>)> {
    let wait = || LockOptions::new().wait(Duration::ZERO);
    // Each kind has a key of its own.
    let own = |kind: &str| format!("{name}{kind}");
    let rw = client.read_write_lock(own("rw"));
    let permits = client.permit_expirable_semaphore(own("permits"));
    let latch = client.count_down_latch(own("latch"));
    let value = client.fenced_value(own("value"));
    vec![
        (
            "rlock",
            client.rlock(own("rlock")).lock_with(wait()).await.err(),
        ),
        (
            "fair",
            client.fair_lock(own("fair")).lock_with(wait()).await.err(),
        ),
        (
            "fenced",
            client
                .fenced_lock(own("fenced"))
                .lock_with(wait())
                .await
                .err(),
        ),
        ("read", rw.read_with(wait()).await.err()),
        ("write", rw.write_with(wait()).await.err()),
        (
            "semaphore",
            client
                .semaphore(own("semaphore"))
                .try_set_permits(1)
                .await
                .err(),
        ),
        ("permits", permits.try_set_permits(1).await.err()),
        ("latch", latch.try_set_count(1).await.err()),
        ("value", value.set("1", 1).await.err()),
        (
            "multi",
            client.multi_lock([own("multi")]).try_lock().await.err(),
        ),
    ]
}

#[tokio::test]
async fn a_name_whose_keys_are_in_two_slots_is_refused() {
    // Nobody is there, so nothing can have been asked.
    let client = Client::builder().url("redis+cluster://127.0.0.1:1");
    let client = client.build().unwrap();
    for name in ["x{y", "x}y", "{}", "{}x{y}"] {
        for (kind, error) in first_calls(&client, name).await {
            let error = error.unwrap_or_else(|| panic!("{kind} takes {name}"));
            assert_eq!(error.kind(), ErrorKind::BadInput, "{kind} {name}: {error}");
            let text = error.to_string();
            assert!(text.contains("slot "), "{kind}: {text}");
            assert!(text.contains("without braces"), "{kind}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_with_braces_is_refused_and_other_kinds_are_not() {
    let cluster = shared_cluster();
    let client = client(cluster).await;
    let name = unique("tagged") + "{tag}";
    for (kind, error) in first_calls(&client, &name).await {
        let refused = error.map(|error| error.kind());
        let expected = (kind == "latch").then_some(ErrorKind::BadInput);
        assert_eq!(refused, expected, "{kind}");
    }
    let error = client.count_down_latch(&name).count().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("redisson_countdownlatch__channel__"),
        "{error}"
    );
    for key in cluster
        .keys()
        .await
        .iter()
        .filter(|key| key.contains(&name))
    {
        let _: i64 = cluster.of_key(key, &["DEL", key]).await;
    }
}

/// They are no slots there.
#[tokio::test]
async fn a_single_server_takes_all_names() {
    let server = shared_server();
    let client = Client::connect(&server.url()).await.unwrap();
    let name = unique("single") + "x{y";
    let guard = client.rlock(&name).lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_spans_slots() {
    let cluster = shared_cluster();
    let prefix = unique("span");
    let (client, other) = (client(cluster).await, client(cluster).await);
    let mut names = Vec::new();
    for at in cluster.all() {
        names.push(cluster.name_at(at, &format!("{prefix}:{at}")).await);
    }
    let both = client.multi_lock(&names);
    let guard = both.lock().await.unwrap();
    for name in &names {
        let there: bool = cluster.of_key(name, &["EXISTS", name]).await;
        assert!(there, "{name}");
        assert!(other.rlock(name).try_lock().await.unwrap().is_none());
    }
    // In another order: no cycle of waiters.
    let reversed: Vec<_> = names.iter().rev().collect();
    let waits = other.multi_lock(reversed);
    let waiter = tokio::spawn(async move { waits.lock().await.unwrap() });
    guard.unlock().await.unwrap();
    let guard = tests::within(crate::DEADLINE, waiter).await.unwrap();
    assert!(guard.is_valid());
    // All or none.
    assert!(both.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    assert_clean(cluster, &prefix, &[&client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_over_a_cluster_is_refused_with_a_reason() {
    let cluster = shared_cluster();
    let server = shared_server();
    let single = Client::connect(&server.url()).await.unwrap();
    let clustered = builder(cluster).build().unwrap();
    let error = Quorum::new([single, clustered]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains("cluster"), "{error}");
}
