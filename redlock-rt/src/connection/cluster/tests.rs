use std::sync::mpsc;
use std::thread;

use super::*;
use crate::connection::Endpoint;

const SECOND: Duration = Duration::from_secs(1);

/// Two commands were refused with the same news: the second took the mutex twice, and the thread
/// waited for itself for ever.
#[test]
fn news_of_a_slot_that_were_known_already_stopped_the_client() {
    let endpoint = Endpoint::parse("redis+cluster://127.0.0.1:1").unwrap();
    let dialer = Dialer::new(endpoint, None, None).unwrap();
    let timeouts = Timeouts {
        connect: SECOND,
        response: SECOND,
        retry: crate::connection::RetryPolicy::new(),
    };
    let spawner = Spawner::default();
    let cluster = Cluster::new(dialer, vec![], spawner, timeouts, Arc::new(|| {}));
    let cluster = Arc::new(cluster);
    cluster.state().owners = vec![NOBODY; usize::from(Slot::COUNT)];
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
