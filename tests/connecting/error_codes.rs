//! Each error code that a call can meet, from a real server that was brought to it. The table in
//! docs/faults.md says what callers see.

use std::sync::Arc;
use std::time::Duration;

use redlock_rt::{Client, Error, ErrorKind, Kind, Lock, LockOptions};
use tests::{DEADLINE, RedisServer, eventually, lock_and_unlock, told, trace_init, unique, within};

const SHORT: Duration = Duration::from_millis(300);

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, code: &str) {
    let text = told(error);
    assert_eq!(error.kind(), kind, "{text}");
    // The client library writes some codes in its own way.
    assert!(text.to_uppercase().contains(code), "{text}");
}

/// A wait with an end says this code, unless it is over before an answer comes.
async fn is_refused<K: Kind>(lock: impl Fn() -> Lock<K>, code: &str) {
    let wait = LockOptions::new().wait(SHORT);
    let refused = async || match lock().lock_with(wait.clone()).await {
        Ok(_) => Err("it is not refused".to_owned()),
        Err(error) if told(&error).to_uppercase().contains(code) => Ok(error),
        Err(error) => Err(told(&error)),
    };
    let error = eventually(DEADLINE, refused).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// A code that passes: a wait with an end says it, a wait without one goes on.
async fn passes(server: &RedisServer, code: &str, refuse: &[&str], allow: &[&str]) {
    trace_init();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.rlock(unique("passes"));
    lock_and_unlock(&lock).await;
    server.ask::<()>(refuse).await;
    // Another name each time: the release of one that is still granted may be refused already.
    is_refused(|| client.rlock(unique("refused")), code).await;
    let waiter = lock.clone();
    let waiter = tokio::spawn(async move { waiter.lock().await });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    server.ask::<()>(allow).await;
    let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn oom() {
    let (refuse, allow) = (["maxmemory", "1"], ["maxmemory", "0"]);
    let server = RedisServer::start();
    let [refuse, allow] = [refuse, allow].map(|[name, value]| ["CONFIG", "SET", name, value]);
    passes(&server, "OOM", &refuse, &allow).await;
}

#[tokio::test]
async fn noreplicas() {
    let server = RedisServer::start();
    let set = |count| ["CONFIG", "SET", "min-replicas-to-write", count];
    passes(&server, "NOREPLICAS", &set("1"), &set("0")).await;
}

/// It cannot save: its directory is gone.
#[tokio::test]
async fn misconf() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().display().to_string();
    let server = RedisServer::options()
        .args(["--dir".to_owned(), path])
        .start();
    server.ask::<()>(&["CONFIG", "SET", "save", "3600 1"]).await;
    directory.close().unwrap();
    let allow = ["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"];
    passes(&server, "MISCONF", &["BGSAVE"], &allow).await;
}

/// Scripts are loaded again, and nothing is seen of it.
#[tokio::test]
async fn noscript() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.fair_lock("a");
    for _ in 0..3 {
        let guard = lock.lock().await.unwrap();
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        guard.unlock().await.unwrap();
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    }
    let stats: String = server.ask(&["INFO", "errorstats"]).await;
    assert!(stats.contains("errorstat_NOSCRIPT"), "{stats}");
}

/// A restart with data: a millisecond for each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading() {
    trace_init();
    let options = RedisServer::options().args(["--appendonly", "yes"]);
    let server = options.args(["--key-load-delay", "300"]).start();
    let fill = "for i = 1, 6000 do redis.call('SET', 'k' .. i, i) end";
    server.ask::<()>(&["EVAL", fill, "0"]).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.rlock("a");
    lock_and_unlock(&lock).await;
    let server = Arc::new(server);
    let restarted = Arc::clone(&server);
    let restart = tokio::task::spawn_blocking(move || restarted.restart());
    is_refused(|| lock.clone(), "LOADING").await;
    // A wait without an end goes on.
    drop(within(DEADLINE, lock.lock()).await.unwrap());
    restart.await.unwrap();
}

#[tokio::test]
async fn noauth_and_wrongpass() {
    let server = RedisServer::options().password("x").start();
    let address = server.address();
    for (url, code) in [
        (format!("redis://{address}"), "NOAUTH"),
        (format!("redis://:y@{address}"), "WRONGPASS"),
    ] {
        let client = Client::builder().url(&url).build().unwrap();
        let error = within(DEADLINE, client.rlock("a").lock())
            .await
            .unwrap_err();
        assert_says(&error, ErrorKind::Denied, code);
    }
}

/// Nodes of a cluster for a user who may not ask what they are: otherwise they are refused before.
async fn nodes(count: usize) -> (Vec<RedisServer>, Client) {
    trace_init();
    let node = || {
        RedisServer::options()
            .args(["--cluster-enabled", "yes"])
            .start()
    };
    let nodes: Vec<_> = (0..count).map(|_| node()).collect();
    let user = [
        "ACL", "SETUSER", "app", "on", ">x", "~*", "&*", "+@all", "-info",
    ];
    nodes[0].ask::<()>(&user).await;
    let client = format!("redis://app:x@{}", nodes[0].address());
    (nodes, Client::connect(&client).await.unwrap())
}

async fn is_up(node: &RedisServer) {
    let up = async || {
        let info: String = node.ask(&["CLUSTER", "INFO"]).await;
        info.contains("cluster_state:ok")
    };
    eventually(DEADLINE, up).await;
}

#[tokio::test]
async fn clusterdown_and_crossslot() {
    let (nodes, client) = nodes(1).await;
    let lock = client.rlock("a");
    is_refused(|| lock.clone(), "CLUSTERDOWN").await;
    let waiter = tokio::spawn(async move { lock.lock().await });
    nodes[0]
        .ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
    // Of different slots, behind an address that looks like one server: the one call for both is refused.
    let lock = client.multi_lock(["b", "c"]);
    drop(lock.lock().await.unwrap());
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let guard = lock.try_lock().await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn moved_ask_and_tryagain() {
    let (nodes, client) = nodes(2).await;
    let port = nodes[1].port().to_string();
    nodes[0]
        .ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])
        .await;
    // The slot of "a" is 15495.
    nodes[0]
        .ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"])
        .await;
    nodes[1]
        .ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"])
        .await;
    is_up(&nodes[0]).await;
    // The slot of "b" is 3300.
    let error = within(DEADLINE, client.rlock("b").lock())
        .await
        .unwrap_err();
    assert_says(&error, ErrorKind::Misconfigured, "MOVED");

    // Its counter stays.
    drop(client.fenced_lock("a").lock().await.unwrap());
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let id: String = nodes[1].ask(&["CLUSTER", "MYID"]).await;
    let migrate = ["CLUSTER", "SETSLOT", "15495", "MIGRATING", &id];
    nodes[0].ask::<()>(&migrate).await;
    let lock = within(DEADLINE, client.rlock("{a}:other").lock()).await;
    assert_says(&lock.unwrap_err(), ErrorKind::Misconfigured, "ASK");
    // One of its keys is there, and the other is not.
    let fenced = client.fenced_lock("a");
    is_refused(|| fenced.clone(), "TRYAGAIN").await;
    let waiter = tokio::spawn(async move { fenced.lock().await });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    nodes[0]
        .ask::<()>(&["CLUSTER", "SETSLOT", "15495", "STABLE"])
        .await;
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
}
