//! What a probe learns of a client.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, GuardState, Shutdown};
use tests::{Cluster, DEADLINE, RedisServer, eventually, trace_init, unique};
use tokio::task::block_in_place;

const BRIEF: Duration = Duration::from_millis(200);

/// The number of PINGs that the server has run.
async fn pings(server: &RedisServer) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    let ping = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_ping:calls="));
    let calls = ping.and_then(|ping| ping.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn a_probe_costs_one_ping() {
    let server = RedisServer::start();
    let client = Client::builder().url(&server.url()).build().unwrap();
    let before = pings(&server).await;
    for round in 1..=3 {
        let health = client.health().await;
        assert!(health.is_reachable(), "{health:?}");
        assert_eq!(pings(&server).await, before + round);
        let [one] = &health.servers[..] else {
            panic!("{health:?}");
        };
        assert_eq!(one.server, format!("127.0.0.1:{}", server.port()));
        assert_eq!(one.role.as_deref(), Some("master"));
        assert!(one.version.is_some());
        assert_eq!(
            (health.suspect, health.renewal_overdue, health.releases),
            (0, None, 0)
        );
    }
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let health = client.health().await;
    let error = health.servers[0].round_trip.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
    assert_eq!(pings(&server).await, before + 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_says_that_renewals_fail_while_the_server_hangs() {
    trace_init();
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url());
    let builder = builder
        .lease(Duration::from_secs(30))
        .response_timeout(BRIEF);
    let client = builder.connect().await.unwrap();
    let often = redlock_rt::LockOptions::new().renew(BRIEF);
    let guard = client
        .rlock(unique("hangs"))
        .lock_with(often)
        .await
        .unwrap();
    block_in_place(|| server.pause());
    eventually(DEADLINE, async || {
        let health = client.health().await;
        match health.renewal_overdue {
            Some(overdue) if overdue > BRIEF && health.suspect == 1 => Ok(()),
            _ => Err(format!("{health:?}")),
        }
    })
    .await;
    assert!(matches!(guard.state(), GuardState::Suspect { .. }));
    let health = client.health().await;
    let error = health.servers[0].round_trip.as_ref().unwrap_err();
    assert!(error.is_unavailable() && !health.is_reachable(), "{error}");
    assert!(error.to_string().contains("check the server"), "{error}");
    block_in_place(|| server.resume());
    eventually(DEADLINE, async || {
        let health = client.health().await;
        match (health.suspect, health.is_reachable()) {
            (0, true) => Ok(()),
            _ => Err(format!("{health:?}")),
        }
    })
    .await;
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_asks_each_master_of_a_cluster() {
    trace_init();
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let client = Client::builder().url(&cluster.url()).build().unwrap();
    let health = client.health().await;
    assert!(health.is_reachable(), "{health:?}");
    assert_eq!(health.servers.len(), 2);
    assert_ne!(health.servers[0].server, health.servers[1].server);
}
