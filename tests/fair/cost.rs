//! The cost of a queue.

use std::{sync::Arc, time::Duration};

use tests::{Proxy, RedisServer, calls, lock_and_unlock, within};
use tokio::sync::Semaphore;

use crate::stage::{DEADLINE, NEVER, Stage, pass_all, waiter};

#[tokio::test]
async fn without_waiters_a_pair_costs_two_calls() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-two").await;
    stage.url = proxy.url();
    let lock = stage.client().fair_lock(&stage.name);
    lock_and_unlock(&lock).await;
    proxy.mark();
    lock_and_unlock(&lock).await;
    let counts = proxy.counts();
    assert_eq!(counts.get("EVALSHA"), Some(&2), "{counts:?}");
    assert_eq!(counts.len(), 1, "{counts:?}");
    stage.assert_clean().await;
}

/// Each waiter queues by one call; then each turn is one call, for any number of waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_waiters_cost_a_call_each_and_never_slow_the_server_down() {
    const WAITERS: usize = 5000;
    const TURNS: usize = 200;
    let options = RedisServer::options().args([
        "--slowlog-log-slower-than",
        "10000",
        "--slowlog-max-len",
        "100000",
    ]);
    let server = options.start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "fair-many").await;
    stage.url = proxy.url();
    // On a busy machine the reply to the last of so many calls is late.
    let client = stage.client_with(|builder| builder.response_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let (calls_before, spent_before) = (stage.evalsha_calls().await, stage.processor_time().await);
    proxy.mark();
    let served = Arc::new(Semaphore::new(0));
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (lock, served) = (lock.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                served.add_permits(1);
                guard.unlock().await.unwrap();
            })
        })
        .collect();
    stage.queued(WAITERS).await;
    proxy.wait_for_answer(calls("fair_beat")).await;
    // The channel of the client, and that of the head.
    assert_eq!(client.stats().subscriptions, 2);
    let queued = proxy.counts();
    let beats = |counts: &std::collections::BTreeMap<String, usize>| {
        counts.get("EVALSHA").copied().unwrap_or_default()
    };
    assert_eq!(queued.get("SUBSCRIBE"), Some(&2), "{queued:?}");
    // A call for each waiter, one more for the script, and the beats meanwhile.
    assert!(beats(&queued) <= WAITERS + 60, "{queued:?}");

    proxy.mark();
    guard.unlock().await.unwrap();
    let turns = served.acquire_many(TURNS as u32);
    within(DEADLINE, turns).await.unwrap().forget();
    let counts = proxy.counts();
    let turns = TURNS + served.available_permits();
    assert!(
        beats(&counts) <= turns + 2 + 60,
        "{turns} turns: {counts:?}"
    );
    // The others leave, most of them from the middle of the queue.
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    stage.queued(0).await;
    // Measured in the server's processor time, since the duration of a call includes waits for a
    // processor.
    let calls = stage.evalsha_calls().await - calls_before;
    let spent = stage.processor_time().await - spent_before;
    let each = spent / u32::try_from(calls).unwrap();
    assert!(each < Duration::from_millis(1), "{each:?} a call");
    // Most calls must be fast, unlike a call that reads the whole queue. A few are slow because the
    // server waits for a processor during a call.
    let slow: usize = stage.redis(&["SLOWLOG", "LEN"]).await;
    assert!(slow <= calls / 20, "{slow} of {calls} took more than 10 ms");
    stage.assert_clean().await;
}

/// Counted on the server, also inside of scripts.
#[tokio::test]
async fn a_turn_takes_two_calls_and_twenty_commands() {
    const TURNS: usize = 64;
    let server = RedisServer::start();
    let stage = Stage::on(&server, "fair-commands").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let commands = async || -> (usize, usize) {
        let info: String = stage.redis(&["INFO", "commandstats"]).await;
        let counted = info.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let own = ["info", "llen", "command", "evalsha"].contains(&command);
            let calls: usize = rest.split(',').next()?.parse().ok()?;
            Some(if own { 0 } else { calls })
        });
        (stage.evalsha_calls().await, counted.sum())
    };
    // Loads the scripts.
    lock_and_unlock(&lock).await;
    let guard = lock.lock().await.unwrap();
    let mut waiting = stage.queue_up(&lock, 1).await;
    let before = commands().await;
    for number in 2..=TURNS {
        waiting.push(waiter(&lock));
        stage.queued(number).await;
    }
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    let after = commands().await;
    let (calls, inside) = (after.0 - before.0, after.1 - before.1);
    // The first waiter has queued before, and the last one releases a lock for which nobody waits. Three
    // heartbeats tell that the client listens.
    assert!(calls <= 2 * TURNS + 3, "{calls} calls");
    let each = (inside + calls) as f64 / TURNS as f64;
    assert!(each <= 20.0, "{each} commands a turn");
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_waiting_client_beats_three_times_in_the_waiter_timeout() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-beats").await;
    let holder = stage.client().fair_lock(&stage.name);
    let guard = holder.lock().await.unwrap();
    stage.url = proxy.url();
    let alive = Duration::from_millis(600);
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let lock = client.fair_lock(&stage.name);
    let waiting: Vec<_> = (0..20).map(|_| waiter(&lock)).collect();
    stage.queued(20).await;
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.mark();
    let started = tokio::time::Instant::now();
    proxy.wait_for_count(calls("fair_beat"), 6).await;
    let took = started.elapsed();
    assert!(took >= alive, "six beats within {took:?}");
    let counts = proxy.counts();
    assert!(
        counts.get("EVALSHA") <= Some(&8),
        "for twenty waiters: {counts:?}"
    );
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}
