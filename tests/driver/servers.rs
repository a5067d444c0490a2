//! Clients with TLS, and of a master that sentinels name.

use tests::{Driver, LeakCheck, RedisServer, Replicated, Sentinels, eventually, unique};

use crate::{DEADLINE, PROGRAM, waits_for};

/// Two processes with this URL, of which one waits for the other, and hears what is published.
async fn take_turns(connect: &str, server: &RedisServer) {
    let name = unique("driver-servers");
    let leaks = LeakCheck::on(server, &name).await;
    let (one, two) = (Driver::start(PROGRAM), Driver::start(PROGRAM));
    for driver in [&one, &two] {
        assert_eq!(driver.ok(connect).await, "ok");
    }
    one.ok(&format!("lock {name} a")).await;
    let waiter = two.send(&format!("lock {name} b"));
    waits_for(&two, 1).await;
    let publish = format!("publish redisson_lock__channel:{{{name}}} 0");
    eventually(DEADLINE, async || one.ok(&publish).await == "1").await;
    assert_eq!(one.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(waiter.answer().await.ok(), "ok");
    assert_eq!(two.ok(&format!("unlock {name} b")).await, "true");
    for driver in [one, two] {
        driver.ok("close").await;
    }
    leaks.assert_clean().await;
}

#[tokio::test]
async fn a_client_speaks_tls() {
    let server = RedisServer::options().tls().password("s3cret").start();
    let roots = server.directory().join("ca.pem");
    let url = server.tls_url();
    let connect = format!("connect {url} poll=600000 tls_roots={}", roots.display());
    take_turns(&connect, &server).await;
    let untrusting = Driver::start(PROGRAM);
    let refused = untrusting.call(&format!("connect {url}")).await;
    assert_eq!(refused.err_kind(), "unavailable");
}

/// The words of the driver for the sentinels of `master`.
fn sentinel_words(sentinels: &Sentinels, scheme: &str, login: &str) -> String {
    let places = sentinels.addresses();
    let urls: Vec<String> = places
        .map(|place| format!("{scheme}://{login}{place}"))
        .collect();
    format!("sentinel:{},{}", tests::SERVICE, urls.join(","))
}

#[tokio::test]
async fn a_client_asks_sentinels() {
    let options = RedisServer::options().password("s3cret");
    let servers = Replicated::start(options, 1).await;
    let sentinels = Sentinels::options().watch(servers.server(0), 1, 3).await;
    let words = sentinel_words(&sentinels, "redis", ":s3cret@");
    take_turns(&format!("connect {words} poll=600000"), servers.server(0)).await;
}

#[tokio::test]
async fn a_client_asks_sentinels_with_tls() {
    let master = RedisServer::options().tls().start();
    let sentinels = Sentinels::options().tls().watch(&master, 0, 2).await;
    let words = sentinel_words(&sentinels, "rediss", "");
    let roots = master.directory().join("ca.pem");
    let connect = format!("connect {words} poll=600000 tls_roots={}", roots.display());
    take_turns(&connect, &master).await;
}
