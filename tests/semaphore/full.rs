//! A Redis whose memory is full: acquisitions fail, and releases work.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, PermitOptions, Unlocked};
use tests::{RedisServer, ask, eventually, trace_init, within};

use crate::stage::DEADLINE;

#[tokio::test]
async fn a_release_needs_no_memory() {
    trace_init();
    let server = RedisServer::start();
    let client = Client::builder().url(&server.url()).build().unwrap();
    let redis = server.connect().await.unwrap();
    let memory = async |limit: &str| {
        let _: () = ask(&redis, &["CONFIG", "SET", "maxmemory", limit]).await;
    };
    let plain = client.semaphore("plain");
    let leased = client.permit_expirable_semaphore("leased");
    assert!(plain.try_set_permits(3).await.unwrap());
    assert!(leased.try_set_permits(3).await.unwrap());
    let (guard, dropped) = (
        plain.acquire_many(2).await.unwrap(),
        plain.acquire().await.unwrap(),
    );
    let permit = leased.acquire().await.unwrap();
    memory("1").await;
    let released = within(DEADLINE, guard.release()).await.unwrap();
    assert_eq!(released, Unlocked::Released);
    drop(dropped);
    within(DEADLINE, plain.release(1)).await.unwrap();
    let released = within(DEADLINE, permit.release()).await.unwrap();
    assert_eq!(released, Unlocked::Released);
    let brief = PermitOptions::new().wait(Duration::from_millis(100));
    let refused = plain.acquire_with(brief).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(plain.available_permits().await.unwrap(), 4);
    assert_eq!(leased.available_permits().await.unwrap(), 3);
    memory("0").await;
    let three = plain.acquire_many(3).await.unwrap();
    three.release().await.unwrap();
}
