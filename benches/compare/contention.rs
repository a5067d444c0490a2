//! Many tasks and one lock: turns per second, their cost for the server, and the time of a hand-over.

use std::time::{Duration, Instant};

use futures::future::join_all;
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redlock_rt::RLock;
use tests::RedisServer;

use crate::{
    rounds::{Effort, Quartiles},
    scenes::client,
};

/// How long the lock is held before its hand-over, so that the other client waits.
const HOLD: Duration = Duration::from_millis(1);

/// Turns per second of 32 tasks of one process on one key.
#[derive(Debug)]
pub(crate) struct Contended {
    pub(crate) turns: Quartiles,
    /// EVALSHA commands per turn.
    pub(crate) commands: f64,
}

pub(crate) async fn contended(server: &RedisServer, effort: Effort) -> Contended {
    let client = client(server).await;
    let mut connection = server.connect().await.expect("the server answers");
    let locks: Vec<RLock> = (0..32).map(|_| client.rlock("bench:contended")).collect();
    let span = effort.slice * u32::try_from(effort.turns).unwrap_or(1);
    turns(&locks, effort.slice * 4).await;
    let commands_before = commands(&mut connection).await;
    let (mut rates, mut all) = (Vec::new(), 0.0);
    for _ in 0..effort.rounds {
        let (done, seconds) = turns(&locks, span).await;
        rates.push(done / seconds);
        all += done;
    }
    Contended {
        turns: Quartiles::of(rates),
        commands: (commands(&mut connection).await - commands_before) / all,
    }
}

/// Lets all tasks take turns for `span`; returns the number of turns and the seconds.
async fn turns(locks: &[RLock], span: Duration) -> (f64, f64) {
    let start = Instant::now();
    let end = start + span;
    let tasks = locks.iter().cloned().map(|lock| {
        tokio::spawn(async move {
            let mut done = 0_u32;
            while Instant::now() < end {
                let guard = lock.lock().await.expect("it comes free");
                guard.unlock().await.expect("the server answers");
                done += 1;
            }
            f64::from(done)
        })
    });
    let done = join_all(tasks).await.into_iter();
    let done = done.map(|ended| ended.expect("no task panics")).sum();
    (done, start.elapsed().as_secs_f64())
}

async fn commands(connection: &mut MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .expect("the server answers");
    let calls = |line: &str| {
        let counts = line.strip_prefix("cmdstat_evalsha:calls=")?;
        counts.split(',').next()?.parse().ok()
    };
    info.lines().find_map(calls).unwrap_or(0.0)
}

/// From the call of unlock in one client to the guard in another, in microseconds.
pub(crate) async fn handover(server: &RedisServer, turns: usize) -> Histogram<u64> {
    let clients = [client(server).await, client(server).await];
    let locks = clients.map(|client| client.rlock("bench:handover"));
    let mut latencies = Histogram::new(3).expect("three digits are allowed");
    let mut guard = locks[0].lock().await.expect("it is free");
    for turn in 1..=turns {
        let lock = locks[turn % 2].clone();
        let next = tokio::spawn(async move {
            let guard = lock.lock().await.expect("it comes free");
            (guard, Instant::now())
        });
        tokio::time::sleep(HOLD).await;
        let released = Instant::now();
        guard.unlock().await.expect("the server answers");
        let (next, held) = next.await.expect("no task panics");
        let micros = held.duration_since(released).as_micros();
        latencies.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
        guard = next;
    }
    guard.unlock().await.expect("the server answers");
    latencies
}
