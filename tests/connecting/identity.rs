//! Who a client says it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use redlock_rt::{Client, ClientBuilder, ErrorKind, LockOptions};
use tests::{DEADLINE, RedisServer, eventually, trace_init, unique};

const LEASE: Duration = Duration::from_secs(30);
/// Renewed so often that one is seen at once.
const OFTEN: Duration = Duration::from_millis(20);

fn builder(server: &RedisServer) -> ClientBuilder {
    let builder = Client::builder().url(&server.url()).namespace("app");
    builder.lease(LEASE)
}

fn key(client: &Client) -> String {
    format!("app:redlock_client:{{{}}}", client.uuid())
}

/// How often the server has run this command.
async fn runs(server: &RedisServer, command: &str) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    let start = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&*start));
    let calls = calls.and_then(|calls| calls.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

async fn renewals(server: &RedisServer, more: u64) {
    let before = runs(server, "pexpire").await;
    eventually(DEADLINE, async || {
        let now = runs(server, "pexpire").await;
        (now >= before + more).then_some(()).ok_or(now)
    })
    .await;
}

#[tokio::test]
async fn a_client_that_renews_a_lock_says_who_it_is_once_in_a_third_of_a_lease() {
    trace_init();
    let server = RedisServer::start();
    let named = builder(&server).identity("orders-1").build().unwrap();
    let silent = builder(&server).build().unwrap();
    let often = LockOptions::new().renew(OFTEN);
    let one = named.rlock(unique("who")).lock_with(often.clone()).await;
    let other = silent.rlock(unique("who")).lock_with(often).await;
    let (one, other) = (one.unwrap(), other.unwrap());
    renewals(&server, 20).await;

    let identity = silent.identity_of(one.hold_id()).await.unwrap().unwrap();
    assert_eq!(identity.name, "orders-1");
    assert_eq!(identity.pid, std::process::id());
    assert_eq!(identity.version, env!("CARGO_PKG_VERSION"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let age = now - Duration::from_secs(identity.since);
    assert!(age < DEADLINE, "{age:?}");
    assert_eq!(silent.identity_of(other.hold_id()).await.unwrap(), None);
    let exists: u64 = server.ask(&["EXISTS", &key(&silent)]).await;
    assert_eq!(exists, 0);

    assert_eq!(runs(&server, "hset").await, 1);
    let left: i64 = server.ask(&["PTTL", &key(&named)]).await;
    assert!((1..=30_000).contains(&left), "{left}");
    let found: Vec<_> = silent.scan("*").try_collect().await.unwrap();
    assert_eq!(found.len(), 2, "it is no lock: {found:?}");
}

#[tokio::test]
async fn a_client_without_a_lock_that_is_renewed_says_nothing() {
    let server = RedisServer::start();
    let client = builder(&server).identity("orders-1").build().unwrap();
    let fixed = LockOptions::new().lease(LEASE);
    let lock = client.rlock(unique("short"));
    for options in [LockOptions::new(), fixed] {
        let guard = lock.lock_with(options).await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_eq!(runs(&server, "hset").await, 0);
}

/// A right that was missing left a key without a TTL for ever, and such a key broke the connection of whoever
/// asked for it.
#[tokio::test]
async fn what_is_not_a_whole_identity_is_none_and_none_is_left_half() {
    let server = RedisServer::start();
    let may = ["ACL", "SETUSER", "few", "on", ">pass", "~*", "&*", "+@all"];
    let _: () = server.ask(&[&may[..], &["-time"]].concat()).await;
    let url = format!("redis://few:pass@{}", server.address());
    let few = Client::builder().url(&url).namespace("app").lease(LEASE);
    let few = few.identity("orders-1").build().unwrap();
    let often = LockOptions::new().renew(OFTEN);
    let guard = few.rlock("who").lock_with(often).await.unwrap();
    renewals(&server, 20).await;
    let exists: u64 = server.ask(&["EXISTS", &key(&few)]).await;
    assert_eq!(exists, 0);

    let half = ["HSET", &key(&few), "name", "orders-1", "pid", "none"];
    let _: u64 = server.ask(&half).await;
    let client = builder(&server).build().unwrap();
    assert_eq!(client.identity_of(guard.hold_id()).await.unwrap(), None);
    let rest = [
        "HSET",
        &key(&few),
        "host",
        "h",
        "since",
        "0",
        "version",
        "1",
    ];
    let _: u64 = server.ask(&rest).await;
    assert_eq!(client.identity_of(guard.hold_id()).await.unwrap(), None);
    guard.unlock().await.unwrap();
}

/// It was known for the client's lease only, behind each renewal of a lock with a longer one.
#[tokio::test]
async fn who_a_client_is_is_known_as_long_as_its_longest_lease() {
    let server = RedisServer::start();
    let brief = Duration::from_secs(1);
    let client = builder(&server).lease(brief).identity("orders-1");
    let client = client.build().unwrap();
    let long = LockOptions::new().lease(10 * LEASE).renew(OFTEN);
    let guard = client.rlock(unique("who")).lock_with(long).await.unwrap();
    renewals(&server, 2).await;
    let says = async || client.identity_of(guard.hold_id()).await.unwrap();
    eventually(DEADLINE, async || says().await.is_some()).await;
    let left: u64 = server.ask(&["PTTL", &key(&client)]).await;
    assert!(left > 9 * 30_000, "{left}");
}

#[tokio::test]
async fn locks_are_renewed_by_a_client_that_may_not_say_who_it_is() {
    let server = RedisServer::start();
    let may = [
        "ACL",
        "SETUSER",
        "few",
        "on",
        ">pass",
        "allcommands",
        "allchannels",
        "~app:who*",
    ];
    let _: () = server.ask(&may).await;
    let url = format!("redis://few:pass@{}", server.address());
    let client = Client::builder().url(&url).namespace("app").lease(LEASE);
    let client = client.identity("orders-1").build().unwrap();
    let often = LockOptions::new().renew(OFTEN);
    let guard = client.rlock("who").lock_with(often).await.unwrap();
    renewals(&server, 20).await;
    assert!(guard.is_valid());
    let denied = client.identity_of(guard.hold_id()).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied);
    guard.unlock().await.unwrap();
}
