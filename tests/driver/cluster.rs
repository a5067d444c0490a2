//! Clients of a cluster.

use tests::{Driver, shared_cluster, unique};

use crate::{PROGRAM, waits_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_cluster_has_locks_at_every_master() {
    let cluster = shared_cluster();
    let urls: Vec<String> = cluster.all().map(|at| cluster.node(at).url()).collect();
    let (one, two) = (Driver::start(PROGRAM), Driver::start(PROGRAM));
    for driver in [&one, &two] {
        let connect = format!("connect cluster:{} poll=600000", urls.join(","));
        assert_eq!(driver.ok(&connect).await, "ok");
    }
    let prefix = unique("driver-cluster");
    for at in cluster.all() {
        let name = cluster.name_at(at, &format!("{prefix}:{at}")).await;
        for kind in ["", "fair.", "fenced.", "rw.write."] {
            let name = format!("{{{name}}}:{kind}lock");
            one.ok(&format!("{kind}lock {name} a")).await;
            assert!(cluster.command::<bool>(at, &["EXISTS", &name]).await);
            let waiter = two.send(&format!("{kind}lock {name} b"));
            waits_for(&two, 1).await;
            assert_eq!(one.ok(&format!("{kind}unlock {name} a")).await, "true");
            waiter.answer().await.ok();
            assert_eq!(two.ok(&format!("{kind}unlock {name} b")).await, "true");
        }
    }
    let torn = one.call("lock x{y a").await;
    assert_eq!(torn.err_kind(), "bad_input");
    // At the master of its slot, and nobody listens.
    for at in cluster.all() {
        let name = cluster.name_at(at, &prefix).await;
        let publish = format!("publish redisson_lock__channel:{{{name}}} 0");
        assert_eq!(one.ok(&publish).await, "0");
    }
    for driver in [one, two] {
        driver.ok("close").await;
    }
    let left: Vec<String> = cluster.keys().await;
    let left: Vec<_> = left.iter().filter(|key| key.contains(&prefix)).collect();
    let tokens = |key: &&&String| key.starts_with("redisson_lock_token:");
    assert_eq!(left.iter().filter(tokens).count(), left.len(), "{left:?}");
    for key in left {
        let _: i64 = cluster.of_key(key, &["DEL", key]).await;
    }
}
