//! Many tasks and one lock: turns per second, waits and their cost for the server, how they are shared
//! with a client like Redisson's, and the time of a hand-over.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use hdrhistogram::Histogram;
use raw::{Raw, RawLock};
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, RLock};
use tests::{RedisServer, RedissonClient};
use tokio::sync::Mutex;

use crate::{
    rounds::{Effort, Quartiles, Rates},
    scenes::client,
};

/// How long the lock is held before its hand-over, so that the other client waits.
const HOLD: Duration = Duration::from_millis(1);
const TASKS: usize = 32;
/// The tasks of each client that share a lock.
const RIVALS: u64 = 4;

/// What one side did with 32 tasks of one process and one key.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Turns per second.
    pub(crate) rates: Rates,
    /// From the call to the lock, in microseconds.
    pub(crate) waits: Histogram<u64>,
    /// Calls per turn: scripts, and plain commands in their place.
    pub(crate) commands: f64,
}

/// The tasks of this process take turns without Redis, and with the bare crate beneath.
#[derive(Clone)]
struct Queued(Arc<Mutex<RawLock>>);

/// A task's turn.
trait Turn: Clone + Send + 'static {
    /// Returns when it had the lock.
    fn turn(&self) -> impl Future<Output = Instant> + Send;
}

impl Turn for RLock {
    async fn turn(&self) -> Instant {
        let guard = self.lock().await.expect("it comes free");
        let held = Instant::now();
        guard.unlock().await.expect("the server answers");
        held
    }
}

impl Turn for Queued {
    async fn turn(&self) -> Instant {
        let mut lock = self.0.lock().await;
        let taken = lock.acquire().await.expect("the server answers");
        assert_eq!(taken, None, "the lock is free");
        let held = Instant::now();
        lock.release().await.expect("the server answers");
        held
    }
}

/// Three sides in turn: hand-overs inside the process, a release and an acquisition each turn, and a
/// queue of the process with the bare crate.
pub(crate) async fn contended(server: &RedisServer, effort: Effort) -> Vec<Crowd> {
    let handing = client(server).await;
    let calling = Client::builder().url(&server.url()).hand_over(None);
    let calling = calling.connect().await.expect("the server answers");
    let raw = Raw::connect(server.address())
        .await
        .expect("the server answers");
    let queued = Queued(Arc::new(Mutex::new(raw.lock("bench:contended:raw", 0))));
    let handing = handing.rlock("bench:contended:handing");
    let calling = calling.rlock("bench:contended:calling");
    let mut connection = server.connect().await.expect("the server answers");
    let names = ["handing over", "a call each", "FIFO + raw"];
    let mut crowds = names.map(|name| Crowd {
        rates: Rates {
            name,
            rounds: Vec::with_capacity(effort.rounds),
        },
        waits: Histogram::new(3).expect("three digits are allowed"),
        commands: 0.0,
    });
    let mut sums = [0.0; 3];
    let span = effort.slice * u32::try_from(effort.turns).unwrap_or(1);
    for round in 0..=effort.rounds {
        for place in 0..3 {
            let side = match round % 2 {
                0 => place,
                _ => 2 - place,
            };
            let before = commands(&mut connection).await;
            let (done, seconds, waits) = match side {
                0 => turns(&handing, span).await,
                1 => turns(&calling, span).await,
                _ => turns(&queued, span).await,
            };
            // The first round warms up.
            if round > 0 {
                let crowd = &mut crowds[side];
                crowd.rates.rounds.push(done / seconds);
                crowd.commands += commands(&mut connection).await - before;
                crowd.waits += waits;
                sums[side] += done;
            }
        }
    }
    for (crowd, all) in crowds.iter_mut().zip(sums) {
        crowd.commands /= all;
    }
    crowds.into()
}

/// Lets all tasks take turns for `span`; returns the number of turns, the seconds and the waits.
async fn turns<T: Turn>(lock: &T, span: Duration) -> (f64, f64, Histogram<u64>) {
    let start = Instant::now();
    let end = start + span;
    let tasks = (0..TASKS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            let mut waits = Histogram::<u64>::new(3).expect("three digits are allowed");
            loop {
                let asked = Instant::now();
                if asked >= end {
                    return waits;
                }
                let wait = lock.turn().await.duration_since(asked);
                waits.record(micros(wait)).expect("it grows");
            }
        })
    });
    let mut all = Histogram::new(3).expect("three digits are allowed");
    for ended in join_all(tasks).await {
        all += ended.expect("no task panics");
    }
    let seconds = start.elapsed().as_secs_f64();
    (all.len() as f64, seconds, all)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How a saturated lock is shared with a client like Redisson's.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: &'static str,
    /// The other client's share of the turns, by round.
    pub(crate) share: Quartiles,
    pub(crate) turns: f64,
    /// In milliseconds.
    pub(crate) longest_wait: f64,
    pub(crate) longest_wait_of_other: f64,
}

pub(crate) async fn shared(server: &RedisServer, effort: Effort) -> Vec<Shared> {
    let handing = client(server).await;
    let calling = Client::builder().url(&server.url()).hand_over(None);
    let calling = calling.connect().await.expect("the server answers");
    let other = RedissonClient::connect(&server.url())
        .await
        .expect("the server answers");
    let span = effort.slice * u32::try_from(effort.turns).unwrap_or(1) * 2;
    let mut sides = ["handing over", "a call each"].map(|name| (name, Vec::new(), 0.0, [0.0; 2]));
    for round in 0..effort.rounds {
        for place in 0..2 {
            let at = (round + place) % 2;
            let ours = [&handing, &calling][at];
            let waits = rivals(ours, &other, span).await;
            let [own, others] = waits.each_ref().map(|waits| waits.len() as f64);
            let (_, shares, turns, longest) = &mut sides[at];
            shares.push(others / (own + others));
            *turns += own + others;
            for (longest, waits) in longest.iter_mut().zip(&waits) {
                *longest = f64::max(*longest, waits.max() as f64 / 1000.0);
            }
        }
    }
    let sides = sides.into_iter();
    sides
        .map(|(name, shares, turns, [own, other])| Shared {
            name,
            share: Quartiles::of(shares),
            turns,
            longest_wait: own,
            longest_wait_of_other: other,
        })
        .collect()
}

/// Tasks of both clients take turns of a millisecond for `span`; returns the waits of each.
async fn rivals(ours: &Client, other: &RedissonClient, span: Duration) -> [Histogram<u64>; 2] {
    let end = Instant::now() + span;
    let mut waits = [(); 2].map(|()| Histogram::new(3).expect("three digits are allowed"));
    let own = (0..RIVALS).map(|_| {
        let lock = ours.rlock("bench:shared");
        tokio::spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = lock.lock().await.expect("it comes free");
                waits.push(asked.elapsed());
                tokio::time::sleep(HOLD).await;
                guard.unlock().await.expect("the server answers");
            }
            waits
        })
    });
    let others = (0..RIVALS).map(|thread| {
        let lock = other.rlock("bench:shared");
        tokio::spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < end {
                let asked = Instant::now();
                lock.lock(thread, None).await.expect("the server answers");
                waits.push(asked.elapsed());
                tokio::time::sleep(HOLD).await;
                lock.unlock(thread).await.expect("the server answers");
            }
            waits
        })
    });
    let tasks: Vec<_> = own.chain(others).collect();
    for (at, ended) in join_all(tasks).await.into_iter().enumerate() {
        let side = usize::from(at as u64 >= RIVALS);
        for wait in ended.expect("no task panics") {
            waits[side].record(micros(wait)).expect("it grows");
        }
    }
    waits
}

async fn commands(connection: &mut MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .expect("the server answers");
    // HDEL and RESTORE are in no script of ours that runs here.
    let calls = |line: &str| {
        let (command, counts) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let is_call = ["evalsha", "restore", "hdel"].contains(&command);
        let count: f64 = counts.split(',').next()?.parse().ok()?;
        is_call.then_some(count)
    };
    info.lines().filter_map(calls).sum()
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
        // Saturated, it would be clamped to the range of an empty histogram.
        let latency = micros(held.duration_since(released));
        latencies.record(latency).expect("it grows");
        guard = next;
    }
    guard.unlock().await.expect("the server answers");
    latencies
}
