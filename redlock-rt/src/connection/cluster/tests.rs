use std::sync::mpsc;
use std::thread;

use super::*;
use crate::connection::Endpoint;

const SECOND: Duration = Duration::from_secs(1);

fn cluster() -> Arc<Cluster> {
    with_seeds(vec![])
}

fn with_seeds(seeds: Vec<Address>) -> Arc<Cluster> {
    let endpoint = Endpoint::parse("redis+cluster://127.0.0.1:1").expect("it is one");
    let dialer = Dialer::new(endpoint, None, None).expect("no TLS");
    let timeouts = Timeouts {
        connect: SECOND,
        response: SECOND,
        retry: crate::connection::RetryPolicy::new(),
    };
    let spawner = Spawner::default();
    let cluster = Cluster::new(dialer, seeds, spawner, timeouts, Arc::new(|| {}));
    cluster.state().owners = vec![NOBODY; usize::from(Slot::COUNT)];
    Arc::new(cluster)
}

/// Two commands were refused with the same news: the second took the mutex twice, and the thread
/// waited for itself for ever.
#[test]
fn news_of_a_slot_that_were_known_already_stopped_the_client() {
    let cluster = cluster();
    let slot = Slot::ONLY;
    let (done, ended) = mpsc::channel();
    let told = Arc::clone(&cluster);
    thread::spawn(move || {
        let host = "127.0.0.1".to_owned();
        let to = Address::Tcp { host, port: 2 };
        told.is_moved(slot, &to);
        told.is_moved(slot, &to);
        done.send(told.known(slot).is_some()).unwrap();
    });
    assert!(ended.recv_timeout(10 * SECOND).unwrap());
}

/// They were kept without end, and above 65 534 the place of one was that of nobody.
#[test]
fn a_cluster_of_more_than_a_thousand_nodes_is_not_kept() {
    let cluster = cluster();
    let named = |number: u32| {
        let host = format!("10.0.{}.{}", number / 256, number % 256);
        cluster.is_moved(Slot::ONLY, &Address::Tcp { host, port: 1 })
    };
    assert!((0..1000).all(named));
    assert!(!named(1000) && named(999));
    assert_eq!(cluster.state().nodes.len(), 1000);
}

/// One that had left a connection behind was asked at each refresh for ever, and got the password.
#[test]
fn a_node_that_has_left_the_cluster_is_asked_no_more() {
    let cluster = cluster();
    let host = "127.0.0.1".to_owned();
    let at = Address::Tcp { host, port: 2 };
    cluster.is_moved(Slot::ONLY, &at);
    let idle_for = |idle| {
        let mut state = cluster.state();
        let member = state.nodes[0].as_mut().expect("it is known");
        member.idle = clock::now().checked_sub(idle);
    };
    idle_for(KEPT / 2);
    assert_eq!(cluster.to_ask(), [at]);
    idle_for(KEPT);
    assert_eq!(cluster.to_ask(), []);
}

/// The nodes that were known took all the time, if their addresses were silent.
#[test]
fn a_cluster_that_was_replaced_as_a_whole_is_found_by_its_seeds() {
    let at = |host: &str| Address::Tcp {
        host: host.to_owned(),
        port: 1,
    };
    let seeds = ["redis-0", "redis-1"].map(at);
    let cluster = with_seeds(seeds.to_vec());
    for node in 0..20 {
        cluster.is_moved(Slot::ONLY, &at(&format!("10.0.0.{node}")));
    }
    let asked = cluster.to_ask();
    assert!(seeds.contains(&asked[0]), "{asked:?}");
    assert_eq!(asked.len(), 22);
}
