//! How long a hand-over takes with 10, 100, 1 000 and 10 000 tasks of one client in the queue: from the
//! call that releases to the moment when the next task has the lock.
//!
//! ```text
//! cargo bench -p benches --bench waiters
//! ```
//!
//! Each queue has a client and a name of its own on one server, and all are there for the whole run. They
//! take turns, so that what else the machine does falls on all of them.

#![allow(clippy::print_stdout, reason = "a report")]

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redlock_rt::{Client, RLock, RLockGuard};
use tests::{RedisServer, eventually};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

const LENGTHS: [usize; 4] = [10, 100, 1_000, 10_000];
const ROUNDS: usize = 2_000;

/// One queue.
struct Queue {
    lock: RLock,
    guard: Option<RLockGuard>,
    taken: UnboundedSender<(Instant, RLockGuard)>,
    guards: UnboundedReceiver<(Instant, RLockGuard)>,
    /// Ends with the queue, so that its tasks take no turns beside the next measurement.
    tasks: JoinSet<()>,
    took: Histogram<u64>,
}

fn main() {
    let server = RedisServer::start();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for (how, hand_over) in [
        ("through Redis", None),
        ("inside the process", Some(Duration::from_millis(10))),
    ] {
        println!("{how}:");
        runtime.block_on(measure(&server, hand_over));
    }
}

async fn measure(server: &RedisServer, hand_over: Option<Duration>) {
    let mut queues = Vec::new();
    for length in LENGTHS {
        queues.push(Queue::of(length, server, hand_over).await);
    }
    for _ in 0..ROUNDS {
        for queue in &mut queues {
            queue.hand_over().await;
        }
    }
    for (length, queue) in LENGTHS.iter().zip(&queues) {
        let micros = |quantile| queue.took.value_at_quantile(quantile) as f64 / 1000.0;
        println!(
            "{length:>6} tasks: p50 {:>6.1} us, p99 {:>7.1} us",
            micros(0.5),
            micros(0.99)
        );
    }
}

impl Queue {
    async fn of(length: usize, server: &RedisServer, hand_over: Option<Duration>) -> Self {
        let builder = Client::builder().url(&server.url()).hand_over(hand_over);
        let client = builder.connect().await.expect("the server answers");
        let lock = client.rlock(format!("bench:waiters:{length}:{hand_over:?}"));
        let (taken, guards) = unbounded_channel();
        let mut queue = Self {
            guard: Some(lock.lock().await.expect("it is free")),
            lock,
            taken,
            guards,
            tasks: JoinSet::new(),
            took: Histogram::new(3).expect("three digits"),
        };
        for _ in 0..length {
            queue.wait();
        }
        eventually(Duration::from_secs(10), async || {
            client.stats().waiting == length && client.stats().subscriptions == 1
        })
        .await;
        queue
    }

    /// Adds a task.
    fn wait(&mut self) {
        let (lock, taken) = (self.lock.clone(), self.taken.clone());
        self.tasks.spawn(async move {
            let guard = lock.lock().await.expect("it comes free");
            // Nobody listens at the end of the run.
            let _ = taken.send((Instant::now(), guard));
        });
    }

    async fn hand_over(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.wait();
        tokio::task::yield_now().await;
        let guard = self.guard.take().expect("somebody has it");
        let start = Instant::now();
        guard.unlock().await.expect("the server answers");
        let next = self.guards.recv().await;
        let (taken, guard) = next.expect("a task waits");
        let nanos = u64::try_from((taken - start).as_nanos()).expect("it is short");
        self.took.record(nanos).expect("it grows");
        self.guard = Some(guard);
    }
}
