//! The commands that are sent as time passes, on in-process streams.

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, FairLockGuard, LockOptions, RLockGuard, embedded::Engine};
use tests::{Wires, eventually, lock_and_unlock, unique};
use tokio::task::JoinSet;

use crate::{DEADLINE, NEVER, counts, renewals::is_held};

const S: Duration = Duration::from_secs(1);

/// A client, and its connections.
pub(crate) fn recorded(
    engine: &Engine,
    options: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Client, Wires) {
    let wires = Wires::to_engine(engine);
    (options(wires.builder()).build().unwrap(), wires)
}

/// Lets time pass: all tasks are idle, so the clock jumps from one timer to the next.
async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

/// All connections are there, and have been used.
async fn warm_up(client: &Client, other: &Client) {
    let name = unique("warm");
    let guard = other.rlock(&name).lock().await.unwrap();
    let lock = client.rlock(&name);
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || client.stats().subscriptions == 1).await;
    guard.unlock().await.unwrap();
    let guard = waiter.await.unwrap();
    // Renewed once, on the connection for renewals.
    pass(11 * S).await;
    guard.unlock().await.unwrap();
    eventually(DEADLINE, async || client.stats().subscriptions == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_sends_nothing_but_a_ping_every_half_minute() {
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder);
    let (other, _) = recorded(&engine, |builder| builder);
    warm_up(&client, &other).await;
    wires.mark();
    pass(10 * S).await;
    assert!(wires.count() <= 1, "{:?}", wires.frames(0));
    pass(290 * S).await;
    let sent = wires.counts();
    // The PINGs of the subscribing connection, after this time without a message.
    assert_eq!(sent, counts([("PING", 10)]), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_waited_does_not_even_ping() {
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder);
    let lock = client.rlock(unique("idle"));
    lock_and_unlock(&lock).await;
    wires.mark();
    pass(300 * S).await;
    assert_eq!(wires.counts(), counts([]));
}

async fn hold(client: &Client, prefix: &str, locks: usize) -> Vec<RLockGuard> {
    let mut guards = Vec::new();
    for index in 0..locks {
        let lock = client.rlock(format!("{prefix}:{index}"));
        guards.push(lock.lock().await.unwrap());
    }
    guards
}

/// Renewal is batched: 1/100 call per lock and third of a lease.
#[tokio::test(start_paused = true)]
async fn held_locks_are_renewed_a_hundred_a_call() {
    const LOCKS: usize = 1_000;
    const THIRDS: u32 = 6;
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder.lease(30 * S));
    let prefix = unique("held");
    let mut guards = Vec::new();
    // The locks are acquired over nine seconds.
    for part in 0..9 {
        guards.extend(hold(&client, &format!("{prefix}:{part}"), LOCKS / 9 + 1).await);
        pass(S).await;
    }
    pass(20 * S).await;
    wires.mark();
    pass(THIRDS * 10 * S).await;
    let sent = wires.counts();
    let calls = sent["EVALSHA"];
    println!("{calls} calls for {} locks, {THIRDS} times", guards.len());
    // Some are renewed early to fill a call, so there are a few more calls in the same time.
    let full = THIRDS as usize * LOCKS / 100;
    assert!(calls <= full + full / 3, "{calls} calls, {full} full ones");
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(guards.iter().all(RLockGuard::is_valid));
    // No renewals after the releases.
    drop(guards);
    eventually(DEADLINE, async || client.stats().names == 0).await;
    wires.mark();
    pass(60 * S).await;
    assert_eq!(wires.counts(), counts([]));
}

/// In a long run, a hundred thousand. `benches/watchdog.rs` holds as many on a real server.
#[tokio::test(start_paused = true)]
async fn many_held_locks_are_renewed_in_time_a_hundred_a_call() {
    const THIRDS: u32 = 15;
    let soaks = std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
    let locks = if soaks { 100_000 } else { 10_000 };
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder.lease(30 * S));
    let mut guards = Vec::with_capacity(locks);
    for part in 0..10 {
        guards.extend(hold(&client, &format!("many:{part}"), locks / 10).await);
        pass(S).await;
    }
    pass(20 * S).await;
    wires.mark();
    let mut calls = 0;
    for _ in 0..THIRDS {
        pass(10 * S).await;
        calls += wires.counts()["EVALSHA"];
        wires.mark();
        // None has been late.
        assert!(guards.iter().all(is_held));
    }
    // Some are renewed early to fill a call, so there are a few more calls in the same time.
    let full = THIRDS as usize * locks / 100;
    println!("{calls} calls for {locks} locks, {THIRDS} times");
    assert!(calls <= full + full / 10, "{calls} calls, {full} full ones");
    drop(guards);
    eventually(DEADLINE, async || client.stats().names == 0).await;
}

#[tokio::test(start_paused = true)]
async fn one_held_lock_is_one_call_a_third_of_its_lease() {
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder.lease(30 * S));
    let guards = hold(&client, &unique("one"), 1).await;
    pass(20 * S).await;
    wires.mark();
    pass(90 * S).await;
    let calls = wires.counts()["EVALSHA"];
    assert!((9..=10).contains(&calls), "{calls} in nine thirds");
    drop(guards);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_costs_nothing_while_it_is_held() {
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder);
    let lock = client.rlock(unique("fixed"));
    let options = LockOptions::new().lease(100 * S).renew(false);
    let guard = lock.lock_with(options).await.unwrap();
    wires.mark();
    pass(90 * S).await;
    assert!(guard.is_valid());
    assert_eq!(wires.counts(), counts([]));
    drop(guard);
}

/// A process polls once per poll interval, independently of the number of its waiting tasks.
#[tokio::test(start_paused = true)]
async fn waiting_costs_a_try_a_poll_interval() {
    const TASKS: usize = 100;
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder.poll_interval(S));
    let (other, _) = recorded(&engine, |builder| builder.poll_interval(NEVER));
    let name = unique("poll");
    let guard = other.rlock(&name).lock().await.unwrap();
    let waiters: Vec<_> = (0..TASKS)
        .map(|_| {
            let lock = client.rlock(&name);
            tokio::spawn(async move { lock.lock().await })
        })
        .collect();
    eventually(DEADLINE, async || client.stats().waiting == TASKS).await;
    pass(5 * S).await;
    wires.mark();
    pass(120 * S).await;
    let sent = wires.counts();
    // Between one and two intervals apart.
    let tries = sent["EVALSHA"];
    assert!((60..=121).contains(&tries), "{tries} tries");
    assert_eq!(sent, counts([("EVALSHA", tries), ("PING", 4)]));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    drop(guard);
}

/// This many fair locks that `holder` holds and `client` waits for.
async fn waited_for(
    holder: &Client,
    client: &Client,
    names: usize,
) -> (Vec<FairLockGuard>, JoinSet<()>) {
    let (mut guards, mut waiters) = (Vec::new(), JoinSet::new());
    let prefix = unique("fair-idle");
    for at in 0..names {
        let name = format!("{prefix}:{at}");
        guards.push(holder.fair_lock(&name).lock().await.unwrap());
        let lock = client.fair_lock(name);
        waiters.spawn(async move { drop(lock.lock().await.unwrap()) });
    }
    eventually(DEADLINE, async || client.stats().waiting == names).await;
    (guards, waiters)
}

/// Once, the head of each queue polled by itself: 63 calls a second for a hundred names.
#[tokio::test(start_paused = true)]
async fn fair_locks_that_are_waited_for_cost_a_call_a_second_for_a_hundred() {
    const SECONDS: u32 = 60;
    for names in [100, 250] {
        let engine = Engine::new();
        let (client, wires) = recorded(&engine, |builder| builder);
        let (holder, _) = recorded(&engine, |builder| builder);
        let (guards, mut waiters) = waited_for(&holder, &client, names).await;
        pass(10 * S).await;
        wires.mark();
        pass(SECONDS * S).await;
        let sent = wires.counts();
        let calls = sent["EVALSHA"];
        println!("{calls} calls for {names} names in {SECONDS} s");
        let hundreds = names.div_ceil(100);
        assert!(calls <= hundreds * SECONDS as usize, "{calls} calls");
        // Each name is checked within two poll intervals.
        assert!(calls >= hundreds * SECONDS as usize / 2, "{calls} calls");
        assert_eq!(sent, counts([("EVALSHA", calls), ("PING", 2)]));
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        while let Some(served) = waiters.join_next().await {
            served.unwrap();
        }
    }
}
