//! Which server is the master, as several parties say it, and what becomes of connections to
//! another one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redlock_rt::{Client, ClientBuilder, ErrorKind, LockOptions, LostReason};
use tests::{
    CALL, DEADLINE, Matcher, Proxy, RedisServer, Which, ask, eventually, told, trace_init, unique,
    within,
};
use tokio::net::TcpListener;

use crate::fake::Fake;

const SHORT: Duration = Duration::from_millis(300);
/// Nobody looks without being told.
const NEVER: Duration = Duration::from_secs(600);

fn at(url: &str) -> ClientBuilder {
    trace_init();
    Client::builder().url(url)
}

/// Who may be asked, and who may not.
fn both(one: SocketAddr, other: SocketAddr) -> String {
    format!("redis+sentinel://{one},{other}/{}", tests::SERVICE)
}

async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn sentinels_that_are_all_away_are_named() {
    let (one, other) = (nobody().await, nobody().await);
    let builder = at(&both(one, other)).connect_timeout(SHORT);
    let error = builder.clone().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = told(&error);
    for said in [&one.to_string(), &other.to_string(), "connection refused"] {
        assert!(text.to_lowercase().contains(said), "{text}");
    }
    // They may come back: a wait waits.
    let client = builder.build().unwrap();
    let wait = LockOptions::new().wait(SHORT);
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn one_sentinel_is_enough_and_one_that_hangs_costs_little_time() {
    let server = RedisServer::start();
    let alive = Fake::naming(&server).await;
    let proxy = Proxy::to(&server);
    proxy.go_silent();
    for other in [nobody().await, proxy.address()] {
        let started = Instant::now();
        let client = at(&both(other, alive.address())).connect().await.unwrap();
        drop(client.rlock(unique("one")).lock().await.unwrap());
        let listed = [other.to_string(), format!("redis://{}", alive.address())];
        let client = Client::builder().sentinels(listed, tests::SERVICE);
        let client = client.connect().await.unwrap();
        drop(client.rlock(unique("one")).lock().await.unwrap());
        assert!(started.elapsed() < Duration::from_secs(4), "{other}");
    }
}

#[tokio::test]
async fn a_service_that_no_sentinel_watches_and_what_is_no_sentinel_end_at_once() {
    let server = RedisServer::start();
    let fake = Fake::naming(&server).await;
    let unknown = format!("redis+sentinel://{}/other", fake.address());
    let no_sentinel = format!("redis+sentinel://{}/m", server.address());
    for (url, says) in [
        (unknown, "no such service"),
        (no_sentinel, "it is no sentinel"),
    ] {
        let error = within(DEADLINE, at(&url).connect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(told(&error).contains(says), "{}", told(&error));
        let client = at(&url).build().unwrap();
        let error = within(DEADLINE, client.rlock("a").lock())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
}

/// With a plain URL it ends the call: there it is no failover.
#[tokio::test]
async fn a_replica_that_is_named_is_waited_for_also_at_first() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    let mut redis = replica.connect().await.unwrap();
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg("127.0.0.1").arg(master.port());
    follow.exec_async(&mut redis).await.unwrap();
    let fake = Fake::naming(&replica).await;
    let client = at(&fake.url()).build().unwrap();
    let lock = client.rlock(unique("replica"));
    let waiter = tokio::spawn(async move { lock.lock().await });
    let asked = async || fake.asked() >= 4;
    eventually(DEADLINE, asked).await;
    assert!(!waiter.is_finished());
    ask::<()>(&redis, &["REPLICAOF", "NO", "ONE"]).await;
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
}

/// One that was cut off from the others still names the old master.
#[tokio::test]
async fn the_sentinel_with_the_highest_epoch_is_believed() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let outdated = Fake::naming(&old).await;
    let current = Fake::naming(&old).await;
    current.name(new.address());
    for urls in [
        both(outdated.address(), current.address()),
        both(current.address(), outdated.address()),
    ] {
        let name = unique("epoch");
        let client = at(&urls).connect().await.unwrap();
        let guard = client.rlock(&name).lock().await.unwrap();
        let redis = new.connect().await.unwrap();
        let there: bool = ask(&redis, &["EXISTS", &name]).await;
        assert!(there, "it was taken on the old master");
        drop(guard);
    }
}

/// The old master answers, and does not know yet that it is to be a replica.
#[tokio::test]
async fn an_announced_switch_makes_all_connections_leave_the_old_master() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (before, after) = (Proxy::to(&old), Proxy::to(&new));
    let fake = Fake::naming_address(before.address()).await;
    let builder = at(&fake.url()).poll_interval(NEVER).lease(3 * SHORT);
    let client = builder.build().unwrap();
    let guard = client.rlock("held").lock().await.unwrap();
    // Renewals have a connection of their own.
    let scripts = async || before.connections(Which::Scripts).len() == 2;
    eventually(DEADLINE, scripts).await;
    let holder = Client::connect(&old.url()).await.unwrap();
    let others = holder.rlock("waited").lock().await.unwrap();
    let lock = client.rlock("waited");
    let waiter = tokio::spawn(async move { lock.lock().await });
    before.wait_for_answer("SUBSCRIBE").await;
    fake.is_heard().await;
    assert_eq!(client.stats().tasks, 4);
    fake.announce(after.address());
    // The old master would renew it for ever.
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    // The subscription too: it waits where the lock is free.
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
    assert_eq!(before.connections(Which::All), [0; 0], "all have left");
    assert!(others.is_valid());
}

/// Once, a client that listened to a sentinel which was cut off stayed at the old master for as long.
#[tokio::test]
async fn a_client_whose_sentinel_was_cut_off_follows_the_others() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let fakes = [
        Fake::naming(&old).await,
        Fake::naming(&old).await,
        Fake::naming(&old).await,
    ];
    let hosts = fakes.each_ref().map(|fake| fake.address().to_string());
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), tests::SERVICE);
    let client = at(&url).lease(3 * SHORT).build().unwrap();
    let guard = client.rlock("held").lock().await.unwrap();
    // Which one a client listens to is left to chance. Behind the first answer all were asked.
    let listening = async || fakes.iter().any(|fake| fake.listened_to() == 2);
    eventually(DEADLINE, listening).await;
    for other in fakes.iter().filter(|fake| fake.listened_to() == 0) {
        other.announce(new.address());
    }
    // The old master would renew it for ever.
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
}

/// A master that hangs was dialed for the whole time for connecting.
#[tokio::test]
async fn a_dial_to_the_old_master_is_given_up_when_another_one_is_announced() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let before = Proxy::to(&old);
    // Nothing is answered, as if the process were stopped.
    let hanging = before.hold_request("INFO");
    let fake = Fake::naming_address(before.address()).await;
    let builder = at(&fake.url()).connect_timeout(NEVER);
    let client = builder.response_timeout(NEVER).build().unwrap();
    let lock = client.rlock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    hanging.reached().await;
    fake.is_heard().await;
    fake.announce(new.address());
    drop(within(DEADLINE, waiter).await.unwrap().unwrap());
}

/// The call is in the socket of the old master, which becomes the master again.
#[tokio::test]
async fn a_client_that_comes_back_to_a_server_ends_its_old_connection_there_first() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(&first);
    let fake = Fake::naming_address(proxy.address()).await;
    let builder = at(&fake.url())
        .response_timeout(SHORT)
        .connect_timeout(SHORT);
    let client = builder.build().unwrap();
    drop(client.rlock("before").lock().await.unwrap());
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let late = proxy.hold_request(Matcher::command(CALL).mentioning("late"));
    let error = client.rlock("late").try_lock().await.unwrap_err();
    assert!(
        error.is_unavailable() || error.is_outcome_unknown(),
        "{error}"
    );
    late.reached().await;

    fake.announce(second.address());
    let asked = async || client.rlock("other").is_locked().await.is_ok();
    eventually(DEADLINE, asked).await;
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    proxy.mark();
    fake.announce(proxy.address());
    // A server that was left is refused for a while.
    let back = async || {
        let _ = client.rlock("other").is_locked().await;
        proxy.count(CALL) > 0
    };
    eventually(DEADLINE, back).await;
    let frames = proxy.frames();
    let position = |command: &str, word: &str| {
        let is_it = |frame: &tests::Frame| frame.command() == command && frame.mentions(word);
        frames.iter().position(is_it)
    };
    let killed = position("CLIENT", "KILL").expect("the old connection is ended");
    assert!(
        killed < frames.iter().position(tests::Frame::is_call).unwrap(),
        "before anything else"
    );
    late.open();
}
