//! Many locks: the cost of their renewal, and one bad key that does not affect the others.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{Client, LockOptions, LostReason, RLockGuard};
use tests::{
    Proxy, Which, ask, assert_clean, calls, eventually, shared_server, trace_init, unique, within,
};

use crate::{DEADLINE, LATE, all_renewed};

async fn hold(
    client: &Client,
    prefix: &str,
    count: usize,
    options: &LockOptions,
) -> Vec<RLockGuard> {
    let locks = (0..count).map(|number| client.rlock(format!("{prefix}:{number}")));
    let locks: Vec<_> = locks.collect();
    let guards = locks.iter().map(|lock| lock.lock_with(options.clone()));
    join_all(guards)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

/// Renewals are calls of up to a hundred locks, whenever each lock was acquired.
#[tokio::test]
async fn renewals_of_many_locks_share_calls() {
    trace_init();
    let interval = Duration::from_secs(1);
    let options = LockOptions::new().lease(3 * interval);
    // About a third of the lease, which varies from lock to lock.
    let exactly = options.clone().renew(interval);
    tokio::join!(
        renew_many(&options, interval),
        renew_many(&exactly, interval)
    );
}

async fn renew_many(options: &LockOptions, interval: Duration) {
    const COUNT: usize = 250;
    const CALLS: usize = COUNT.div_ceil(100);
    const ROUNDS: usize = 3;
    let (server, prefix) = (shared_server(), unique("calls"));
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let begun = Instant::now();
    let guards = hold(&client, &prefix, COUNT, options).await;
    // What was acquired more than a tenth of an interval later is renewed apart.
    let apart = begun.elapsed().div_duration_f64(interval / 10) as usize;
    let a_round = CALLS + apart.min(10);
    // The first round.
    all_renewed(&guards).await;
    proxy.mark();
    let start = Instant::now();
    let renewals = calls("renew");
    proxy.wait_for_count(renewals, a_round * ROUNDS).await;
    // An interval is up to a tenth shorter, and a renewal may be a tenth of it early.
    let intervals = start.elapsed().div_duration_f64(interval * 8 / 10);
    assert!(
        intervals > ROUNDS as f64 - 1.0,
        "{ROUNDS} rounds in {intervals} intervals"
    );
    let counts = proxy.counts();
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["EVALSHA"]);
    assert!(guards.iter().all(RLockGuard::is_valid));
    let released = join_all(guards.into_iter().map(RLockGuard::unlock)).await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert_clean(&server, &prefix, [&client]).await;
}

/// An overwritten key makes the call of a whole batch fail; the other locks are still renewed.
#[tokio::test]
async fn one_bad_key_among_a_hundred() {
    const INTERVAL: Duration = Duration::from_millis(200);
    trace_init();
    let (server, prefix) = (shared_server(), unique("poison"));
    let redis = server.connect().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let options = LockOptions::new()
        .lease(Duration::from_secs(60))
        .renew(INTERVAL);
    let mut guards = hold(&client, &prefix, 100, &options).await;
    let poisoned = guards.remove(50);
    let _: String = ask(&redis, &["SET", poisoned.name(), "poison"]).await;
    let start = Instant::now();
    assert_eq!(within(DEADLINE, poisoned.lost()).await, LostReason::Taken);
    assert!(start.elapsed() < INTERVAL + LATE, "{:?}", start.elapsed());
    let ends = all_renewed(&guards).await;
    // No lock was renewed so late that it was nearly lost.
    let first = *ends.iter().min().unwrap();
    assert!(Instant::now() < first, "renewed {:?} late", first.elapsed());
    let value: String = ask(&redis, &["GETDEL", poisoned.name()]).await;
    assert_eq!(value, "poison");
    drop((poisoned, guards));
    eventually(DEADLINE, async || client.stats().held == 0).await;
    assert_clean(&server, &prefix, [&client]).await;
}

/// Renewals have a separate connection.
#[tokio::test]
async fn renewals_have_a_connection_of_their_own() {
    let (server, name) = (shared_server(), unique("own"));
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let options = LockOptions::new().renew(Duration::from_millis(20));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    proxy.wait_for(calls("renew")).await;
    let [main, renewals] = proxy.connections(Which::Scripts)[..] else {
        panic!("two connections")
    };
    // The commands of callers are stuck.
    proxy.go_silent_on(Which::Connection(main));
    let stuck = tokio::spawn({
        let lock = client.rlock(&name);
        async move { lock.is_locked().await }
    });
    proxy.mark();
    proxy
        .wait_for_answer(calls("renew").on(Which::Connection(renewals)))
        .await;
    assert!(!stuck.is_finished() && guard.is_valid());
    proxy.resume();
    assert!(within(DEADLINE, stuck).await.unwrap().unwrap());
    guard.unlock().await.unwrap();
    assert_clean(&server, &name, [&client]).await;
}
