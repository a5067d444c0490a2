//! Lock and unlock without contention: two round trips.
//!
//! ```text
//! cargo bench -p benches --bench uncontended
//! ```
//!
//! `compare` shows the share of the library.

#[path = "support/stage.rs"]
mod stage;

use criterion::Criterion;
use redlock_rt::{Client, RLock};

use self::stage::Stage;

fn main() {
    stage::run(|criterion| {
        on_server(criterion);
        embedded(criterion);
    });
}

fn on_server(criterion: &mut Criterion) {
    let stage = Stage::set();
    let lock = stage.client.rlock("bench:uncontended");
    criterion.bench_function("uncontended/redis-server", |bencher| {
        bencher.to_async(&stage.runtime).iter(|| pair(&lock));
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

async fn pair(lock: &RLock) {
    let guard = lock.lock().await.expect("it is free");
    guard.unlock().await.expect("the server answers");
}
