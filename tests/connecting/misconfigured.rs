//! Addresses without a usable server. Calls end at once, also calls without a limit on the wait, and
//! the error says what to use.

use std::error::Error as StdError;
use std::iter::successors;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, Error, ErrorKind, LockOptions};
use tests::{
    CALL, Proxy, RedisServer, ask, eventually, lock_and_unlock, shared_server, trace_init, unique,
    within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(15);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(600);

/// Both `connect` and the first call of a lazy client return the error, with the server's name.
async fn assert_misconfigured(builder: ClientBuilder, place: &str, says: &[&str]) {
    assert_refused(ErrorKind::Misconfigured, builder, place, says).await;
}

async fn assert_refused(kind: ErrorKind, builder: ClientBuilder, place: &str, says: &[&str]) {
    trace_init();
    let assert = |error: Error| {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.is_misconfigured() && !error.is_unavailable());
        let text = tests::told(&error);
        for said in says.iter().chain([&place]) {
            assert!(text.contains(said), "{text}");
        }
    };
    let connected = within(DEADLINE, builder.clone().connect()).await;
    assert(connected.unwrap_err());
    let client = builder.build().unwrap();
    let name = unique("misconfigured");
    assert(
        within(DEADLINE, client.rlock(&name).lock())
            .await
            .unwrap_err(),
    );
    assert(
        within(DEADLINE, client.rlock(&name).is_locked())
            .await
            .unwrap_err(),
    );
    let latch = client.count_down_latch(&name);
    assert(within(DEADLINE, latch.wait()).await.unwrap_err());
    assert_eq!(client.stats().names, 0);
}

fn at(url: &str) -> ClientBuilder {
    Client::builder().url(url)
}

#[tokio::test]
async fn a_lock_of_a_cluster_waited_for_ever() {
    let server = RedisServer::options()
        .args(["--cluster-enabled", "yes"])
        .start();
    let says = ["a node of a cluster", "redis+cluster://"];
    let place = server.address().to_string();
    assert_misconfigured(at(&server.url()), &place, &says).await;
    // The error is not the refusal of SELECT by a cluster.
    let url = format!("{}/1", server.url());
    assert_misconfigured(at(&url), &place, &says).await;
}

/// A free lock was given out, and lost when its lease was over. A proxy may know as little.
#[tokio::test]
async fn a_lock_was_given_out_where_no_script_can_renew_it() {
    for (missing, says) in [
        ("SCRIPT", "SCRIPT LOAD"),
        ("EVALSHA", "EVALSHA"),
        ("PEXPIRE", "PEXPIRE"),
    ] {
        let server = RedisServer::options()
            .args(["--rename-command", missing, ""])
            .start();
        let says = format!("without {says} no lock can be renewed");
        let says = [says.as_str(), "unknown command"];
        let kind = match missing {
            "PEXPIRE" => ErrorKind::Misconfigured,
            _ => ErrorKind::NoScripts,
        };
        let begun = std::time::Instant::now();
        let client = at(&server.url());
        assert_refused(kind, client, &server.address().to_string(), &says).await;
        assert!(
            begun.elapsed() < DEADLINE / 5,
            "at once: {:?}",
            begun.elapsed()
        );
        let redis = server.connect().await.unwrap();
        let keys: usize = ask(&redis, &["DBSIZE"]).await;
        assert_eq!(keys, 0);
    }
}

/// RESTORE took it, and nothing renewed it.
#[tokio::test]
async fn a_lock_was_given_out_where_lua_is_switched_off() {
    for says in [
        "Could not find scripting engine 'lua'",
        "This instance has Lua scripting support disabled",
        "bad lua script for redis cluster, all the keys that the script uses should be passed using KEYS",
    ] {
        let proxy = Proxy::to(&shared_server());
        for command in ["SCRIPT", "EVALSHA"] {
            proxy.answer(command, format!("-ERR {says}\r\n"), usize::MAX);
        }
        let place = proxy.address().to_string();
        assert_refused(ErrorKind::NoScripts, at(&proxy.url()), &place, &[says]).await;
    }
}

/// No lock has such a script.
#[tokio::test]
async fn a_proxy_that_refuses_scripts_without_keys_was_said_to_run_none() {
    let proxy = Proxy::to(&shared_server());
    let says = "for redis cluster, eval/evalsha number of keys can't be negative or zero";
    proxy.answer("EVALSHA 0", format!("-ERR {says}\r\n"), usize::MAX);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let guard = client.rlock(unique("keyless")).lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// With INFO forbidden.
#[tokio::test]
async fn a_lock_in_the_slot_of_another_node_waited_for_ever() {
    let proxy = Proxy::to(&shared_server());
    let denied = "-NOPERM this user has no permissions to run 'info'\r\n";
    proxy.answer("INFO", denied, usize::MAX);
    proxy.answer(CALL, "-MOVED 866 10.0.0.1:6379\r\n", usize::MAX);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let error = within(DEADLINE, client.rlock(unique("moved")).lock()).await;
    let error = error.unwrap_err();
    assert!(error.is_misconfigured(), "{error}");
    assert!(tests::told(&error).contains("10.0.0.1:6379"), "{error}");
}

fn info(lines: &str) -> String {
    format!("${}\r\n{lines}\r\n", lines.len())
}

#[tokio::test]
async fn a_sentinel_said_that_it_does_not_know_evalsha() {
    let proxy = Proxy::to(&shared_server());
    proxy.answer("INFO", info("redis_mode:sentinel\r\n"), usize::MAX);
    let unknown = "-ERR unknown command 'SELECT'\r\n";
    proxy.answer("SELECT", unknown, usize::MAX);
    let place = proxy.address().to_string();
    let says = ["a sentinel", "redis+sentinel://host:port/service"];
    let url = format!("{}/1", proxy.url());
    assert_misconfigured(at(&url), &place, &says).await;
}

#[tokio::test]
async fn a_lock_on_a_replica_waited_for_ever() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    let port = master.port().to_string();
    replica.ask::<()>(&["REPLICAOF", "127.0.0.1", &port]).await;
    let place = replica.address().to_string();
    let its_master = master.address().to_string();
    assert_misconfigured(at(&replica.url()), &place, &["a replica", &its_master]).await;

    // A client that was built meanwhile works as soon as the replica is promoted.
    let client = at(&replica.url()).build().unwrap();
    let lock = client.rlock("a");
    let error = within(DEADLINE, lock.lock()).await.unwrap_err();
    assert!(error.is_misconfigured(), "{error}");
    replica.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    drop(within(DEADLINE, lock.lock()).await.unwrap());
}

/// A failover: the address leads to a replica for a while.
#[tokio::test]
async fn a_client_that_was_connected_waits_until_the_replica_is_a_master() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.rlock("a");
    lock_and_unlock(&lock).await;
    let port = other.port().to_string();
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &port]).await;
    proxy.mark();
    let waiter = tokio::spawn(async move { lock.lock().await });
    // The client reconnects repeatedly, and finds a replica.
    proxy.wait_for_count("INFO", 6).await;
    assert!(!waiter.is_finished());
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
}

/// A client that can no longer connect still has releases to send.
#[tokio::test]
async fn a_release_outlasts_a_server_that_is_misconfigured_for_a_while() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let guard = client.rlock("a").lock().await.unwrap();
    proxy.answer("INFO", info("redis_mode:cluster\r\n"), usize::MAX);
    proxy.cut_all();
    proxy.mark();
    drop(guard);
    proxy.wait_for_count("CLIENT", 6).await;
    let error = within(DEADLINE, client.rlock("b").lock()).await;
    assert!(error.unwrap_err().is_misconfigured());
    proxy.clear();
    eventually(DEADLINE, async || client.stats().names == 0).await;
    assert!(!client.rlock("a").is_locked().await.unwrap());
}

/// A server that answers every request with a bad request.
async fn http_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

#[tokio::test]
async fn a_port_that_speaks_http_was_waited_for() {
    let address = http_server().await;
    let says = ["does not speak the protocol of redis"];
    let url = format!("redis://:hunter2@{address}");
    assert_misconfigured(at(&url), &address.to_string(), &says).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_was_waited_for() {
    let server = RedisServer::options().tls().start();
    let url = server.tls_url();
    let place = url.strip_prefix("rediss://").unwrap();
    let says = ["not trusted for this name", "tls_roots"];
    assert_misconfigured(at(&url), place, &says).await;
    // The certificate of another authority.
    let other = RedisServer::options().tls().start();
    let builder = at(&url).tls_roots(other.ca_pem());
    assert_misconfigured(builder, place, &says).await;
}

#[tokio::test]
async fn a_port_without_tls_was_waited_for_by_a_client_with_tls() {
    let address = http_server().await;
    let says = ["does not speak TLS", "redis://"];
    let url = format!("rediss://{address}");
    assert_misconfigured(at(&url), &address.to_string(), &says).await;
}

/// Redis does not answer a TLS handshake. Once, only the connect time-out ended the attempt.
#[tokio::test]
async fn a_redis_without_tls_was_waited_for_by_a_client_with_tls() {
    for server in [
        RedisServer::start(),
        RedisServer::options().password("hunter2").start(),
    ] {
        let place = server.address().to_string();
        let builder = at(&format!("rediss://{place}")).connect_timeout(NEVER);
        let says = ["does not speak TLS", "redis://"];
        assert_misconfigured(builder, &place, &says).await;
    }
}

/// Redis closes the connection without an answer.
#[tokio::test]
async fn a_redis_with_tls_was_waited_for_by_a_client_without() {
    let server = RedisServer::options().tls().start();
    let url = server.tls_url();
    let place = url.strip_prefix("rediss://").unwrap();
    let says = ["TLS is spoken there", "rediss://"];
    assert_misconfigured(at(&format!("redis://{place}")), place, &says).await;
}

/// Sends this text to every connection, and closes it.
async fn turns_away(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    address
}

#[tokio::test]
async fn a_server_in_protected_mode_was_waited_for() {
    let answer = "-DENIED Redis is running in protected mode because protected mode is enabled \
                  and no password is set for the default user.\r\n";
    let address = turns_away(answer).await;
    let says = ["protected mode", "requirepass"];
    let builder = at(&format!("redis://{address}"));
    assert_misconfigured(builder, &address.to_string(), &says).await;
}

/// The texts of an error and of its sources; no text contains another.
#[track_caller]
fn assert_says_nothing_twice(what: &str, error: &Error) -> String {
    let chain = successors(Some(error as &dyn StdError), |&error| error.source());
    let texts: Vec<String> = chain.map(ToString::to_string).collect();
    for (at, text) in texts.iter().enumerate() {
        let others = texts.iter().enumerate().filter(|(other, _)| *other != at);
        for (_, other) in others {
            assert!(!other.contains(text), "{what}: {texts:#?}");
        }
    }
    texts.join(" <- ")
}

/// The errors of concurrent calls.
async fn failing(client: &Client) -> Vec<Error> {
    let lock = client.rlock(unique("chain"));
    let wait = LockOptions::new().wait(Duration::from_millis(250));
    let latch = client.count_down_latch(unique("chain"));
    let (tried, waited, asked, waits) = tokio::join!(
        lock.try_lock(),
        lock.lock_with(wait),
        lock.is_locked(),
        latch.wait_with(Duration::from_millis(250))
    );
    let errors = [
        tried.map(drop).unwrap_err(),
        waited.map(drop).unwrap_err(),
        asked.map(drop).unwrap_err(),
        waits.map(drop).unwrap_err(),
    ];
    errors.into()
}

/// Once, the error for a silent server was only "broken pipe", twice.
#[tokio::test]
async fn a_cause_was_told_twice() {
    const SHORT: Duration = Duration::from_millis(400);
    trace_init();
    let short = |url: &str| at(url).response_timeout(SHORT).connect_timeout(SHORT);
    let (tls, locked) = (
        RedisServer::options().tls().start(),
        RedisServer::options().password("hunter2").start(),
    );
    let (plain, proxy) = (shared_server().address(), Proxy::to(&shared_server()));
    let tls_place = tls.tls_url().replace("rediss://", "");
    proxy.refuse();
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let faults = [
        ("refused", proxy.url()),
        ("silent", format!("redis://{}", mute.local_addr().unwrap())),
        ("no database", format!("redis://{plain}/99999")),
        ("no password", format!("redis://{}", locked.address())),
        ("a password", format!("redis://:x@{}", locked.address())),
        ("another password", format!("redis://:x@{plain}")),
        ("http", format!("redis://{}", http_server().await)),
        ("tls at http", format!("rediss://{}", http_server().await)),
        ("tls at a plain port", format!("rediss://{plain}")),
        ("no tls", format!("redis://{tls_place}")),
        ("not trusted", tls.tls_url()),
        ("no such host", "redis://no-such-host.invalid".to_owned()),
    ];
    for (what, url) in faults {
        let connected = within(DEADLINE, short(&url).connect()).await;
        assert_says_nothing_twice(what, &connected.unwrap_err());
        let client = short(&url).build().unwrap();
        for error in within(DEADLINE, failing(&client)).await {
            assert_says_nothing_twice(what, &error);
        }
    }

    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = short(&proxy.url()).connect().await.unwrap();
    server.pause();
    for error in within(DEADLINE, failing(&client)).await {
        let text = assert_says_nothing_twice("stopped", &error);
        assert!(!text.contains("roken pipe"), "{text}");
    }
    // A pause between two tries to connect may be longer than these calls may take.
    let is_back = async || client.rlock("back").is_locked().await.is_ok();
    server.resume();
    eventually(DEADLINE, is_back).await;
    proxy.swallow_reply(CALL, usize::MAX);
    proxy.mark();
    let cut = async {
        // All commands were sent at once.
        proxy.wait_for(CALL).await;
        proxy.refuse();
        proxy.cut_all();
    };
    let (errors, ()) = within(DEADLINE, async { tokio::join!(failing(&client), cut) }).await;
    for error in errors {
        assert_says_nothing_twice("cut", &error);
    }
    proxy.clear();
    proxy.accept();
    eventually(DEADLINE, is_back).await;
    client.fenced_value("text").set("text", 1).await.unwrap();
    let error = client.rlock("text").try_lock().await.unwrap_err();
    assert_says_nothing_twice("of another type", &error);
}

/// These errors are temporary; they name the server, without its password.
#[tokio::test]
async fn errors_of_connections_did_not_name_the_server() {
    let server = RedisServer::options().password("hunter2").start();
    let proxy = Proxy::to(&server);
    let place = proxy.address().to_string();
    let builder = at(&proxy.url()).response_timeout(Duration::from_millis(300));
    let client = builder.clone().connect().await.unwrap();
    let assert = |error: Error| {
        let (text, debug) = (error.to_string(), format!("{error:?}"));
        assert!(
            error.is_unavailable() || error.is_outcome_unknown(),
            "{text}"
        );
        assert!(text.contains(&place), "{text}");
        assert!(
            !text.contains("hunter2") && !debug.contains("hunter2"),
            "{debug}"
        );
    };
    let guard = client.rlock("b").lock().await.unwrap();
    proxy.go_silent();
    // What goes on in the background says so, and where.
    assert(guard.unlock().await.unwrap_err());
    assert(client.rlock("a").try_lock().await.unwrap_err());
    let wait = LockOptions::new().wait(Duration::from_millis(100));
    assert(client.rlock("a").lock_with(wait).await.unwrap_err());
    proxy.refuse();
    assert(client.rlock("a").is_locked().await.unwrap_err());
    assert(builder.connect().await.unwrap_err());
}
