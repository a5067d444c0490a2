//! Lock and unlock without contention: two round trips, or one if the guard is dropped. Of 64 tasks with a
//! key each the round trips are shared.
//!
//! ```text
//! cargo bench -p benches --bench uncontended
//! ```
//!
//! `compare` shows the share of the library.

#[path = "support/stage.rs"]
mod stage;

use criterion::{Criterion, Throughput};
use redlock_rt::{Client, RLock};

use self::stage::{Stage, all_take_turns, pair};

const KEYS: u64 = 64;

fn main() {
    stage::run(|criterion| {
        on_server(criterion);
        distinct(criterion);
        embedded(criterion);
    });
}

fn on_server(criterion: &mut Criterion) {
    let stage = Stage::set();
    let lock = stage.client.rlock("bench:uncontended");
    criterion.bench_function("uncontended/redis-server", |bencher| {
        bencher.to_async(&stage.runtime).iter(|| pair(&lock));
    });
    criterion.bench_function("uncontended/dropped", |bencher| {
        bencher.to_async(&stage.runtime).iter(async || {
            drop(lock.lock().await.expect("it comes free"));
        });
    });
}

fn distinct(criterion: &mut Criterion) {
    let stage = Stage::set();
    let locks = (0..KEYS).map(|key| stage.client.rlock(format!("bench:uncontended:{key}")));
    let locks: Vec<RLock> = locks.collect();
    let mut group = criterion.benchmark_group("uncontended");
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("64 keys", |bencher| {
        let bencher = &mut bencher.to_async(&stage.runtime);
        bencher.iter_custom(|turns| all_take_turns(&locks, turns));
    });
}

/// Without sockets; the scripts run in this process.
fn embedded(criterion: &mut Criterion) {
    let runtime = stage::runtime();
    let lock = Client::embedded().rlock("bench:uncontended");
    criterion.bench_function("uncontended/embedded", |bencher| {
        bencher.to_async(&runtime).iter(|| pair(&lock));
    });
}
