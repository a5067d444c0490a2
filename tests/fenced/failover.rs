//! A replica that has not received the last tokens becomes the master.

use std::net::{Ipv4Addr, SocketAddr};

use redlock_rt::Client;
use tests::{RedisServer, ask, eventually, within};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::DEADLINE;

/// Passes bytes on until it is dropped. (The proxy understands requests and replies, and a
/// replication link is neither.)
struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, upstream) = (listener.local_addr().unwrap(), server.address());
        let task = tokio::spawn(async move {
            // One link at a time: both ends go with the task.
            while let Ok((mut down, _)) = listener.accept().await {
                if let Ok(mut up) = TcpStream::connect(upstream).await {
                    let _ = tokio::io::copy_bidirectional(&mut down, &mut up).await;
                }
            }
        });
        Self { address, task }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hold(client: &Client) -> u64 {
    let lock = client.fenced_lock("failover");
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    let token = guard.token();
    guard.unlock().await.unwrap();
    token
}

/// The state of the replica's counter when it becomes the master.
async fn assert_grows_over_a_fail_over(heard: usize) {
    const COUNTER: &str = "redisson_lock_token:{failover}";
    // Otherwise the master waits 5 s for more replicas.
    let master = RedisServer::options()
        .args(["--repl-diskless-sync-delay", "0"])
        .start();
    let replica = RedisServer::start();
    let relay = Relay::to(&master).await;
    let redis = replica.connect().await.unwrap();
    let (host, port) = (
        relay.address.ip().to_string(),
        relay.address.port().to_string(),
    );
    ask::<()>(&redis, &["REPLICAOF", &host, &port]).await;
    eventually(DEADLINE, async || {
        let info: Option<String> = ask(&redis, &["INFO", "replication"]).await;
        info.unwrap().contains("master_link_status:up")
    })
    .await;

    let client = Client::connect(&master.url()).await.unwrap();
    let mut last = 0;
    for _ in 0..heard {
        last = hold(&client).await;
    }
    let known = (heard > 0).then(|| last.to_string());
    eventually(DEADLINE, async || {
        ask::<Option<String>>(&redis, &["GET", COUNTER]).await == known
    })
    .await;
    drop(relay);
    eventually(DEADLINE, async || {
        let info: Option<String> = ask(&redis, &["INFO", "replication"]).await;
        info.unwrap().contains("master_link_status:down")
    })
    .await;
    for _ in 0..100 {
        let token = hold(&client).await;
        assert!(token > last);
        last = token;
    }
    master.kill();
    assert_eq!(
        ask::<Option<String>>(&redis, &["GET", COUNTER]).await,
        known,
        "it is stale"
    );
    ask::<()>(&redis, &["REPLICAOF", "NO", "ONE"]).await;

    let client = Client::connect(&replica.url()).await.unwrap();
    let token = hold(&client).await;
    assert!(token > last, "{token} after {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_when_the_new_master_has_an_old_counter() {
    assert_grows_over_a_fail_over(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_when_the_new_master_has_no_counter() {
    assert_grows_over_a_fail_over(0).await;
}
