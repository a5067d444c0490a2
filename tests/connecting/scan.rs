//! A scan of several pages, and a server that changes between them.

use std::collections::BTreeSet;
use std::pin::pin;

use futures::TryStreamExt;
use redlock_rt::Client;
use tests::{RedisServer, trace_init};

/// To the new process, the cursor of the old one meant other keys.
#[tokio::test]
async fn a_restart_during_a_scan_hid_locks() {
    trace_init();
    let server = RedisServer::options().aof().start();
    let client = Client::builder().url(&server.url()).build().unwrap();
    let wanted: BTreeSet<_> = (0..1000).map(|number| format!("scan:{number}")).collect();
    let mut guards = Vec::new();
    for name in &wanted {
        guards.push(client.rlock(name).lock().await.unwrap());
    }
    let mut scan = pin!(client.scan("scan:*").map_ok(|found| found.name));
    let mut found = BTreeSet::from([scan.try_next().await.unwrap().unwrap()]);
    server.restart();
    while let Some(name) = scan.try_next().await.unwrap() {
        found.insert(name);
    }
    assert_eq!(found, wanted);
}
