//! Redis answers, and the lock is gone, taken, or another value: how soon the guard reports it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{Client, GuardState, LockOptions, LostReason, Unlocked, embedded::Engine};
use tests::{
    RedisServer, RedissonClient, Which, Wires, ask, assert_clean, assert_clean_in, connection_over,
    eventually, trace_init, unique, valid_until, within,
};

use crate::{DEADLINE, LATE, LINGER, NEVER, held_beyond, tracked::End};

const INTERVAL: Duration = Duration::from_millis(200);
/// Operations of other clients on a lock.
const MISDEEDS: [End; 5] = [
    End::Deleted,
    End::Flushed,
    End::Forced,
    End::Stolen,
    End::Overwritten,
];

fn options() -> LockOptions {
    LockOptions::new()
        .lease(Duration::from_secs(60))
        .renew(INTERVAL)
}

/// With a paused clock, so that only the library takes time.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_within_a_renewal_interval() {
    for misdeed in MISDEEDS {
        let (engine, name) = (Engine::new(), unique("told"));
        let client = Client::builder().embedded(&engine).build().unwrap();
        let other = Client::builder().embedded(&engine).build().unwrap();
        let redis = connection_over(engine.connect()).await.unwrap();
        let guard = client.rlock(&name).lock_with(options()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(777)).await;
        misdeed.come(&name, &redis, &other).await;
        let start = tokio::time::Instant::now();
        let reason = within(DEADLINE, guard.lost()).await;
        assert_eq!(reason, misdeed.reason(), "{misdeed:?}");
        let took = start.elapsed();
        assert!(
            took <= INTERVAL + Duration::from_millis(2),
            "{misdeed:?}: {took:?}"
        );
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        let _: usize = ask(&redis, &["DEL", &name]).await;
        assert_clean_in(&engine, &name, [&client, &other]).await;
    }
}

/// The same with a real server; the new value there stays unchanged.
#[tokio::test]
async fn a_loss_on_a_server_is_told_within_a_renewal_interval() {
    trace_init();
    join_all(MISDEEDS.map(tell_on_a_server)).await;
}

async fn tell_on_a_server(misdeed: End) {
    // A separate server, since one case flushes it.
    let (server, name) = (RedisServer::start(), unique("server"));
    let redis = server.connect().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let other = Client::connect(&server.url()).await.unwrap();
    let guard = client.rlock(&name).lock_with(options()).await.unwrap();
    held_beyond(&guard, valid_until(&guard.state())).await;
    misdeed.come(&name, &redis, &other).await;
    let start = Instant::now();
    assert_eq!(within(DEADLINE, guard.lost()).await, misdeed.reason());
    let took = start.elapsed();
    assert!(took <= INTERVAL + LATE, "{misdeed:?}: {took:?}");
    let before: Option<Vec<u8>> = ask(&redis, &["DUMP", &name]).await;
    assert_eq!(before.is_some(), misdeed.reason() == LostReason::Taken);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let after: Option<Vec<u8>> = ask(&redis, &["DUMP", &name]).await;
    assert_eq!(before, after, "{misdeed:?}");
    let _: usize = ask(&redis, &["DEL", &name]).await;
    assert_clean(&server, &name, [&client, &other]).await;
}

/// Redisson takes the lock by force: our guard is lost, and Redisson's lock is unchanged.
#[tokio::test]
async fn a_lock_stolen_by_redisson_is_lost() {
    trace_init();
    let (server, name) = (tests::shared_server(), unique("stolen"));
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.rlock(&name).lock_with(options()).await.unwrap();
    let redisson = RedissonClient::connect(&server.url()).await.unwrap();
    let theirs = redisson.rlock(&name);
    assert!(theirs.force_unlock().await.unwrap());
    assert!(theirs.try_lock(1, None).await.unwrap());
    let start = Instant::now();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Taken);
    assert!(start.elapsed() <= INTERVAL + LATE, "{:?}", start.elapsed());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(theirs.is_held_by(1).await.unwrap());
    theirs.unlock(1).await.unwrap();
    assert_clean(&server, &name, [&client]).await;
}

/// Without renewal the lock is not verified, and the guard is lost at its deadline.
#[tokio::test(start_paused = true)]
async fn a_loss_that_nobody_looks_for_is_told_at_the_deadline() {
    let (engine, name) = (Engine::new(), unique("unseen"));
    let client = Client::builder().embedded(&engine).build().unwrap();
    let redis = connection_over(engine.connect()).await.unwrap();
    let lease = Duration::from_secs(1);
    let fixed = LockOptions::new().lease(lease).renew(false);
    let start = tokio::time::Instant::now();
    let guard = client.rlock(&name).lock_with(fixed).await.unwrap();
    End::Deleted.come(&name, &redis, &client).await;
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Expired);
    let took = start.elapsed();
    assert!(took <= lease && took >= lease * 95 / 100, "{took:?}");
    drop(guard);
    assert_clean_in(&engine, &name, [&client]).await;
}

/// The scripts are flushed repeatedly: holding, waiting, extending and releasing continue.
#[tokio::test]
async fn flushed_scripts_lose_nothing() {
    trace_init();
    let (server, name) = (RedisServer::start(), unique("scripts"));
    let redis = server.connect().await.unwrap();
    let client = Client::builder()
        .url(&server.url())
        .poll_interval(NEVER)
        .linger(LINGER);
    let (client, other) = (client.clone().build().unwrap(), client.build().unwrap());
    let flush = async || drop(ask::<String>(&redis, &["SCRIPT", "FLUSH"]).await);
    flush().await;
    let renewed = LockOptions::new()
        .lease(Duration::from_secs(60))
        .renew(INTERVAL);
    let guard = client.rlock(&name).lock_with(renewed).await.unwrap();
    let lock = other.rlock(&name);
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    for _ in 0..4 {
        flush().await;
        held_beyond(&guard, valid_until(&guard.state())).await;
    }
    flush().await;
    let inner = guard.reenter().await.unwrap();
    flush().await;
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(!waiter.is_finished());
    flush().await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    flush().await;
    let next = within(DEADLINE, waiter).await.unwrap();
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    assert_clean(&server, &name, [&client, &other]).await;
}

/// The server has run the renewal, and says so later: the lease counts from when it was sent.
#[tokio::test(start_paused = true)]
async fn a_guard_outlived_its_key_when_the_reply_to_a_renewal_came_late() {
    let (engine, name) = (Engine::new(), unique("late-reply"));
    let wires = Wires::to_engine(&engine);
    let client = wires.builder().build().unwrap();
    let redis = connection_over(engine.connect()).await.unwrap();
    let renewed = LockOptions::new().lease(20 * INTERVAL).renew(INTERVAL);
    let guard = client.rlock(&name).lock_with(renewed).await.unwrap();
    // The next one has its connection and its script.
    held_beyond(&guard, valid_until(&guard.state())).await;
    let (before, sent) = (valid_until(&guard.state()), wires.count());
    wires.hang();
    eventually(DEADLINE, async || wires.count() > sent).await;
    tokio::time::sleep(2 * INTERVAL).await;
    wires.speak();
    held_beyond(&guard, before).await;
    let left = valid_until(&guard.state()) - tokio::time::Instant::now().into_std();
    let ttl = Duration::from_millis(ask(&redis, &["PTTL", &name]).await);
    assert!(left <= ttl, "{left:?}, and the key for {ttl:?}");
    guard.unlock().await.unwrap();
    assert_clean_in(&engine, &name, [&client]).await;
}

/// The client learns of it by the unlock.
#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_lock_that_was_gone_said_released() {
    let (engine, name) = (Engine::new(), unique("gone"));
    let client = Client::builder().embedded(&engine).build().unwrap();
    let redis = connection_over(engine.connect()).await.unwrap();
    let guard = client.rlock(&name).lock_with(options()).await.unwrap();
    End::Deleted.come(&name, &redis, &client).await;
    assert!(guard.is_valid());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_clean_in(&engine, &name, [&client]).await;
}

/// The lease ended while there was no connection; then the first try of the release was lost.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_was_sent_after_the_lease_said_released() {
    let (engine, name) = (Engine::new(), unique("sent-after"));
    let wires = Wires::to_engine(&engine);
    let client = wires.builder().build().unwrap();
    let fixed = LockOptions::new().lease(INTERVAL).renew(false);
    let guard = client.rlock(&name).lock_with(fixed).await.unwrap();
    wires.refuse();
    assert!(wires.cut(Which::All) > 0);
    let unlocked = tokio::spawn(guard.unlock());
    tokio::time::sleep(2 * INTERVAL).await;
    wires.lose_next("CALL");
    wires.accept();
    let unlocked = within(DEADLINE, unlocked).await.unwrap();
    assert_eq!(unlocked.unwrap(), Unlocked::AlreadyExpired);
    assert_clean_in(&engine, &name, [&client]).await;
}

/// Both guards of one process reported held until the next renewal of the first.
#[tokio::test(start_paused = true)]
async fn a_guard_reported_held_after_its_client_took_the_forced_lock_again() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.rlock("forced");
    let first = lock.lock().await.unwrap();
    assert!(other.rlock("forced").force_unlock().await.unwrap());
    let second = within(Duration::from_secs(5), lock.lock()).await.unwrap();
    assert!(second.is_valid());
    assert_eq!(first.state(), GuardState::Lost(LostReason::Taken));
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
}
