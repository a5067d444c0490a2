//! A master and its replicas in one URL, without sentinels: the master is found by its role, and a
//! promotion by hand is followed.

use std::time::{Duration, Instant};

use redlock_rt::{Client, ErrorKind, LockOptions, LostReason, ReplicaAck};
use tests::{DEADLINE, Proxy, RedisServer, Replicated, told, trace_init, unique, within};
use tokio::net::TcpListener;

const SHORT: Duration = Duration::from_millis(300);

async fn open(replicas: usize) -> Replicated {
    trace_init();
    Replicated::start(RedisServer::options(), replicas).await
}

/// Takes a lock, and returns on which of these servers it is, apart from replicas.
async fn taken_at(servers: &Replicated, client: &Client, among: &[usize]) -> usize {
    let name = unique("at");
    let guard = within(DEADLINE, client.rlock(&name).lock()).await.unwrap();
    for &at in among {
        let info: String = servers.command(at, &["INFO", "replication"]).await;
        if info.contains("role:master") && servers.command(at, &["EXISTS", &name]).await {
            guard.unlock().await.unwrap();
            return at;
        }
    }
    panic!("{name} is nowhere");
}

#[tokio::test]
async fn the_master_is_found_wherever_it_is_in_the_url() {
    let servers = open(2).await;
    let addresses = [0, 1, 2].map(|at| servers.server(at).address());
    for [a, b, c] in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let [a, b, c] = [a, b, c].map(|at: usize| addresses[at]);
        let client = Client::connect(&format!("redis://{a},{b},{c}/")).await;
        assert_eq!(taken_at(&servers, &client.unwrap(), &[0, 1, 2]).await, 0);
        let urls = [a, b, c].map(|address| format!("redis://{address}"));
        let client = Client::builder().urls(urls).connect().await.unwrap();
        assert_eq!(taken_at(&servers, &client, &[0, 1, 2]).await, 0);
    }
}

/// It was never connected, so the master knows nothing of it.
#[tokio::test]
async fn a_replica_of_the_url_that_is_down_counts_for_all_replicas() {
    let servers = open(1).await;
    servers.is_counted(0, 1).await;
    let down = RedisServer::start();
    let addresses = [servers.server(0), servers.server(1), &down].map(RedisServer::address);
    let [master, replica, gone] = addresses;
    down.kill();
    let all = |url: String, wait| async move {
        let client = Client::builder().url(&url).replica_timeout(wait);
        let client = client.connect().await.unwrap();
        let options = LockOptions::new().wait(wait).replica_ack(ReplicaAck::All);
        let outcome = client.rlock(unique("all")).lock_with(options).await;
        outcome.map(drop)
    };
    let two = format!("redis://{master},{replica}/");
    all(two, DEADLINE).await.unwrap();
    let error = all(format!("redis://{master},{replica},{gone}/"), SHORT).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotReplicated);
}

/// The lock was replicated, so its guard is held on, and the waiter gets it afterwards.
#[tokio::test]
async fn a_promotion_by_hand_is_followed_when_the_master_has_died() {
    let servers = open(2).await;
    let client = Client::connect(&servers.url()).await.unwrap();
    let guard = client.rlock("kept").lock().await.unwrap();
    servers.receives(2, "kept").await;
    servers.server(0).kill();
    // Two replicas, and no master.
    let wait = LockOptions::new().wait(SHORT);
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    servers.promote(2).await;
    assert_eq!(taken_at(&servers, &client, &[1, 2]).await, 2);
    guard.unlock().await.unwrap();
    let left: bool = servers.command(2, &["EXISTS", "kept"]).await;
    assert!(!left);
}

/// It answers READONLY; the other server became the master before.
#[tokio::test]
async fn a_demoted_master_is_left_at_once() {
    let servers = open(1).await;
    let builder = Client::builder().url(&servers.url());
    let client = builder.lease(Duration::from_secs(600)).build().unwrap();
    assert_eq!(taken_at(&servers, &client, &[0, 1]).await, 0);
    let guard = client.rlock("lost").lock().await.unwrap();
    servers.receives(1, "lost").await;
    servers.promote(1).await;
    let gone: bool = servers.command(1, &["DEL", "lost"]).await;
    assert!(gone, "as if it had not been replicated");
    servers.follow(0, 1).await;
    let started = Instant::now();
    assert_eq!(taken_at(&servers, &client, &[0, 1]).await, 1);
    assert!(started.elapsed() < DEADLINE / 3);
    // A renewal would be due in minutes.
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
}

/// A lock on the one would be free on the other.
#[tokio::test]
async fn of_two_masters_none_is_used() {
    let servers = open(2).await;
    servers.promote(1).await;
    let client = Client::builder().url(&servers.url()).build().unwrap();
    let wait = LockOptions::new().wait(SHORT);
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = told(&error);
    for at in [0, 1] {
        let place = servers.server(at).address().to_string();
        assert!(text.contains(&place), "{text}");
    }
    assert!(text.contains("are masters"), "{text}");
    servers.follow(0, 1).await;
    assert_eq!(taken_at(&servers, &client, &[0, 1, 2]).await, 1);
}

/// Two names of one host, or the address of whichever is the master beside those of all.
#[tokio::test]
async fn one_master_by_two_addresses_was_taken_for_two() {
    let servers = open(1).await;
    let proxy = Proxy::to(servers.server(0));
    let url = format!("{},{}", servers.url(), proxy.address());
    let client = Client::builder().url(&url).build().unwrap();
    assert_eq!(taken_at(&servers, &client, &[0, 1]).await, 0);
}

#[tokio::test]
async fn servers_of_which_none_is_a_master_are_named_with_what_they_are() {
    let servers = open(1).await;
    let replica = servers.server(1).address();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let url = format!("redis://{replica},{nobody}");
    let builder = Client::builder().url(&url);
    let error = within(DEADLINE, builder.connect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = told(&error).to_lowercase();
    let replica = format!("{replica}: it is a replica");
    let nobody = format!("{nobody}: connection refused");
    assert!(text.contains(&replica) && text.contains(&nobody), "{text}");
}

/// Its kernel still accepts connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_does_not_hide_the_master() {
    let servers = open(1).await;
    tokio::task::block_in_place(|| servers.server(1).pause());
    let started = Instant::now();
    // Half of it is how long such a server is waited for alone.
    let builder = Client::builder().url(&servers.url());
    let client = builder.connect_timeout(DEADLINE).connect().await.unwrap();
    drop(client.rlock("a").lock().await.unwrap());
    assert!(started.elapsed() < DEADLINE / 3);
    tokio::task::block_in_place(|| servers.server(1).resume());
}

#[tokio::test]
async fn the_role_is_known_by_info_or_by_role() {
    let servers = open(1).await;
    let login = |user: &str| {
        servers
            .url()
            .replace("redis://", &format!("redis://{user}:x@"))
    };
    for (user, rights) in [
        ("one", "-info"),
        ("other", "-role"),
        ("neither", "-info|-role"),
    ] {
        for at in [0, 1] {
            let mut words = vec!["ACL", "SETUSER", user, "on", ">x", "~*", "&*", "+@all"];
            words.extend(rights.split('|'));
            servers.command::<()>(at, &words).await;
        }
        let client = within(DEADLINE, Client::connect(&login(user))).await;
        match (user, client) {
            ("neither", Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
                assert!(told(&error).contains("its role is unknown"));
            }
            (_, client) => assert_eq!(taken_at(&servers, &client.unwrap(), &[0, 1]).await, 0),
        }
    }
}

/// The URL has several servers, the connector leads to one.
#[test]
fn a_connector_and_several_servers_do_not_go_together() {
    for url in ["redis://a:1,b:2", "redis+sentinel://a:1/m"] {
        let builder = Client::builder().url(url);
        let builder = builder.connector(|| tokio::net::TcpStream::connect("127.0.0.1:1"));
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::BadInput);
    }
    let builder = Client::builder().url("redis://a");
    let error = builder.sentinel_credentials(None, "x").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
}
