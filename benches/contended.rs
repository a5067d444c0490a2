//! Locks for which tasks wait.
//!
//! ```text
//! cargo bench -p benches --bench contended
//! ```
//!
//! * 32 tasks of one process, one turn each: handed over inside the process for 10 ms at a time, and then
//!   through Redis.
//! * Two tasks of one process: a fenced lock, and a fair one.
//! * Two clients: from the release in one to the lock in the other, which waits for it.

#[path = "support/stage.rs"]
mod stage;

use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use redlock_rt::{Client, Kind, Lock};
use tests::eventually;

use self::stage::{Stage, all_take_turns};

fn main() {
    stage::run(|criterion| {
        in_one_process(criterion);
        between_clients(criterion);
    });
}

fn in_one_process(criterion: &mut Criterion) {
    let stage = Stage::set();
    let client = &stage.client;
    let mut group = criterion.benchmark_group("contended");
    let plain = client.rlock("bench:contended");
    tasks(&mut group, &stage, "32 tasks", &vec![plain; 32]);
    let fenced = client.fenced_lock("bench:contended:fenced");
    tasks(
        &mut group,
        &stage,
        "2 tasks, fenced",
        &[fenced.clone(), fenced],
    );
    let fair = client.fair_lock("bench:contended:fair");
    tasks(&mut group, &stage, "2 tasks, fair", &[fair.clone(), fair]);
}

fn tasks<K: Kind>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    stage: &Stage,
    name: &str,
    locks: &[Lock<K>],
) {
    group.throughput(Throughput::Elements(locks.len() as u64));
    group.bench_function(name, |bencher| {
        let bencher = &mut bencher.to_async(&stage.runtime);
        bencher.iter_custom(|turns| all_take_turns(locks, turns));
    });
}

fn between_clients(criterion: &mut Criterion) {
    let stage = Stage::set();
    let other = stage.runtime.block_on(Client::connect(&stage.server.url()));
    let clients = [stage.client, other.expect("the server answers")];
    criterion.bench_function("contended/2 clients", |bencher| {
        let bencher = &mut bencher.to_async(&stage.runtime);
        bencher.iter_custom(|times| hand_over(&clients, times));
    });
}

/// How long so many hand-overs take, without the time in which the next client begins to wait.
async fn hand_over(clients: &[Client; 2], times: u64) -> Duration {
    let locks = clients
        .each_ref()
        .map(|client| client.rlock("bench:contended"));
    let mut guard = locks[0].lock().await.expect("it is free");
    let mut spent = Duration::ZERO;
    for next in [1, 0].into_iter().cycle().take(times as usize) {
        let lock = locks[next].clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.lock().await.expect("it comes free");
            (guard, Instant::now())
        });
        eventually(Duration::from_secs(10), async || {
            let stats = clients[next].stats();
            stats.waiting == 1 && stats.subscriptions == 1
        })
        .await;
        let released = Instant::now();
        guard.unlock().await.expect("the server answers");
        let (held, at) = waiter.await.expect("no task panics");
        guard = held;
        spent += at - released;
    }
    guard.unlock().await.expect("the server answers");
    spent
}
