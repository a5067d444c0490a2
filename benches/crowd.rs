//! What a hand-over costs among 1, 2, 4 and 8 clients with four tasks each that all want one lock: calls a
//! turn, counted by the server, and the time from the call that releases to the next turn.
//!
//! ```text
//! cargo bench -p benches --bench crowd
//! ```
//!
//! The numbers of clients take turns of half a second, so that what else the machine does falls on all of
//! them. Each turn is a release and an acquisition: nothing is handed over inside a process.

#![allow(clippy::print_stdout, reason = "a report")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, RLock};
use tests::RedisServer;
use tokio::runtime::Builder;

const CLIENTS: [usize; 4] = [1, 2, 4, 8];
const TASKS: usize = 4;
const ROUNDS: usize = 12;
const ROUND: Duration = Duration::from_millis(500);
/// How long a task has the lock.
const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

/// Some clients and what their turns were.
struct Crowd {
    locks: Vec<RLock>,
    turns: Vec<u64>,
    calls: u64,
    took: Histogram<u64>,
}

/// What the tasks of a round share; locked by whoever has the lock under test.
struct Shared {
    turns: Vec<u64>,
    released: Option<Instant>,
    took: Histogram<u64>,
}

fn main() {
    let server = RedisServer::start();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for hold in HOLDS {
        println!("held for {hold:?}:");
        runtime.block_on(measure(&server, hold));
    }
}

async fn measure(server: &RedisServer, hold: Duration) {
    let mut redis = server.connect().await.expect("the server answers");
    let mut crowds = Vec::new();
    for clients in CLIENTS {
        crowds.push(Crowd::of(clients, server).await);
    }
    // The first round is to learn what there is to know.
    for round in 0..=ROUNDS {
        for crowd in &mut crowds {
            crowd.round(&mut redis, hold, round > 0).await;
        }
    }
    for crowd in crowds {
        crowd.report();
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

impl Crowd {
    async fn of(clients: usize, server: &RedisServer) -> Self {
        let locks = (0..clients).map(|_| async {
            let builder = Client::builder().url(&server.url()).hand_over(None);
            let client = builder.connect().await.expect("the server answers");
            client.rlock(format!("bench:crowd:{clients}"))
        });
        Self {
            locks: join_all(locks).await,
            turns: vec![0; clients],
            calls: 0,
            took: histogram(),
        }
    }

    async fn round(&mut self, redis: &mut MultiplexedConnection, hold: Duration, counts: bool) {
        let before = calls(redis).await;
        let shared = Arc::new(Mutex::new(Shared {
            turns: vec![0; self.locks.len()],
            released: None,
            took: histogram(),
        }));
        let until = Instant::now() + ROUND;
        let tasks = (0..self.locks.len() * TASKS).map(|at| {
            let client = at % self.locks.len();
            let (lock, shared) = (self.locks[client].clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                while Instant::now() < until {
                    let guard = lock.lock().await.expect("it comes free");
                    shared.lock().expect("no task panics").begin(client);
                    if !hold.is_zero() {
                        tokio::time::sleep(hold).await;
                    }
                    shared.lock().expect("no task panics").released = Some(Instant::now());
                    guard.unlock().await.expect("the server answers");
                }
            })
        });
        for ended in join_all(tasks).await {
            ended.expect("no task panics");
        }
        if counts {
            self.calls += calls(redis).await - before;
            let shared = shared.lock().expect("no task panics");
            self.took.add(&shared.took).expect("the same digits");
            let all = self.turns.iter_mut().zip(&shared.turns);
            all.for_each(|(all, turns)| *all += turns);
        }
    }

    fn report(&self) {
        let turns: u64 = self.turns.iter().sum();
        let least = self.turns.iter().min().expect("there is one");
        println!(
            "{:>3} clients: {:.2} calls a turn, p50 {} us, p99 {} us, {turns} turns, least share {:.0} %",
            self.locks.len(),
            self.calls as f64 / turns as f64,
            self.took.value_at_quantile(0.5),
            self.took.value_at_quantile(0.99),
            100.0 * (*least * self.locks.len() as u64) as f64 / turns as f64,
        );
    }
}

impl Shared {
    fn begin(&mut self, client: usize) {
        self.turns[client] += 1;
        if let Some(released) = self.released.take() {
            let micros = u64::try_from(released.elapsed().as_micros()).expect("it is short");
            self.took.record(micros).expect("it grows");
        }
    }
}

/// The number of calls that the server has answered: scripts, and plain commands in their place.
async fn calls(redis: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(redis)
        .await
        .expect("the server answers");
    // No script of this lock sends HDEL.
    let of = |command: &str| {
        let line = info.lines().find_map(|line| {
            let line = line.strip_prefix("cmdstat_")?.strip_prefix(command)?;
            line.strip_prefix(":calls=")
        });
        let count = line.and_then(|line| line.split(',').next());
        count.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    of("evalsha") + of("restore") + of("hdel")
}
