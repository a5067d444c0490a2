use std::sync::mpsc;
use std::thread;

use super::*;
use crate::connection::{Dialer, Endpoint, Spawner, Timeouts};

const SECOND: Duration = Duration::from_secs(1);

fn cluster() -> Arc<Cluster> {
    with_seeds(vec![])
}

fn with_seeds(seeds: Vec<Address>) -> Arc<Cluster> {
    cluster_at("redis+cluster://127.0.0.1:1", seeds)
}

fn cluster_at(url: &str, seeds: Vec<Address>) -> Arc<Cluster> {
    let endpoint = Endpoint::parse(url).expect("it is one");
    let dialer = Dialer::new(endpoint, None, None).expect("no TLS");
    let timeouts = Timeouts {
        connect: SECOND,
        response: SECOND,
        retry: crate::connection::RetryPolicy::new(),
    };
    let spawner = Spawner::default();
    let common = Common::new(dialer, &spawner, timeouts, Arc::new(|| {}));
    let cluster = Cluster::new(common, seeds);
    cluster.state().owners = vec![NOBODY; usize::from(Slot::COUNT)];
    Arc::new(cluster)
}

/// Two commands were refused with the same news. The second took the mutex twice: a deadlock.
#[test]
fn news_of_a_slot_that_were_known_already_stopped_the_client() {
    let cluster = cluster();
    let slot = Slot::ONLY;
    let (done, ended) = mpsc::channel();
    let told = Arc::clone(&cluster);
    thread::spawn(move || {
        let to = Address::tcp("127.0.0.1", 2);
        told.is_moved(slot, &to);
        told.is_moved(slot, &to);
        done.send(told.known(slot).is_some()).unwrap();
    });
    assert!(ended.recv_timeout(10 * SECOND).unwrap());
}

/// They were kept without limit, and above 65 534 the place of one was that of `NOBODY`.
#[test]
fn a_cluster_of_more_than_a_thousand_nodes_is_not_kept() {
    let cluster = cluster();
    let named = |number: u32| {
        let host = format!("10.0.{}.{}", number / 256, number % 256);
        cluster.is_moved(Slot::ONLY, &Address::tcp(&host, 1))
    };
    assert!((0..1000).all(named));
    assert!(!named(1000) && named(999));
    assert_eq!(cluster.state().nodes.len(), 1000);
}

/// A node with a broken connection was asked at each refresh for ever, and got the password.
#[test]
fn a_node_that_has_left_the_cluster_is_asked_no_more() {
    let cluster = cluster();
    let at = Address::tcp("127.0.0.1", 2);
    cluster.is_moved(Slot::ONLY, &at);
    let idle_for = |idle| {
        let mut state = cluster.state();
        let member = state.nodes.get_mut(0).expect("it is known");
        member.idle = clock::now().checked_sub(idle);
    };
    idle_for(KEPT / 2);
    assert_eq!(cluster.to_ask(), [[at]]);
    idle_for(KEPT);
    assert!(cluster.to_ask().is_empty());
}

/// The bytes that are left in the connection may run, until its server is gone for good.
#[cfg(feature = "embedded")]
#[tokio::test]
async fn a_node_that_was_left_with_a_broken_connection_was_kept_for_ever() {
    let engine = redlock_embedded::Engine::new();
    let listener = engine.listen("127.0.0.1:0").await.unwrap();
    // The engine is no cluster.
    let cluster = cluster_at("redis://127.0.0.1:1", vec![]);
    for port in [listener.local_addr().port(), 1] {
        cluster.is_moved(Slot::ONLY, &Address::tcp("127.0.0.1", port));
    }
    let node = |state: &ClusterState| Arc::clone(&state.nodes[0].node);
    let node = node(&cluster.state());
    node.ready().await.unwrap();
    drop(listener);
    while !node.has_stale_clients() {
        tokio::task::yield_now().await;
    }
    let now = clock::now();
    for (idle, left) in [
        (Duration::ZERO, [true, true]),
        (KEPT, [true, false]),
        (KEPT_STALE, [false, false]),
    ] {
        let mut state = cluster.state();
        state.forget_idle(now + idle, &[]);
        assert_eq!([0, 1].map(|place| state.nodes.contains(place)), left);
    }
}

/// The known nodes took all the time if their addresses were silent.
#[test]
fn a_cluster_that_was_replaced_as_a_whole_is_found_by_its_seeds() {
    let at = |host: &str| Address::tcp(host, 1);
    let seeds = ["redis-0", "redis-1"].map(at);
    let cluster = with_seeds(seeds.to_vec());
    for node in 0..20 {
        cluster.is_moved(Slot::ONLY, &at(&format!("10.0.0.{node}")));
    }
    let asked = cluster.to_ask();
    assert_eq!(asked[1], seeds, "{asked:?}");
    assert_eq!(asked.concat().len(), 22);
}

/// The seed moved the client to the other cluster: the answer with the highest epoch counts.
#[test]
fn a_seed_that_has_left_for_another_cluster_is_not_asked_beside_those_that_are_known() {
    let at = |port| Address::tcp("127.0.0.1", port);
    let cluster = with_seeds(vec![at(1), at(2)]);
    for port in [2, 3, 4] {
        cluster.is_moved(Slot::ONLY, &at(port));
    }
    let [known, seeds] = &cluster.to_ask()[..] else {
        panic!("{:?}", cluster.to_ask());
    };
    assert_eq!((known.len(), &seeds[..]), (3, &[at(1)][..]));
}
