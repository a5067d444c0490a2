//! 32 tasks of one process contend for one lock: one turn each, handed over inside the process for 10 ms
//! at a time, and then through Redis.
//!
//! ```text
//! cargo bench -p benches --bench contended
//! ```

#[path = "support/stage.rs"]
mod stage;

use std::time::{Duration, Instant};

use criterion::Throughput;
use futures::future::join_all;
use redlock_rt::RLock;

use self::stage::Stage;

const TASKS: u64 = 32;

fn main() {
    stage::run(|criterion| {
        let stage = Stage::set();
        let lock = stage.client.rlock("bench:contended");
        let mut group = criterion.benchmark_group("contended");
        group.throughput(Throughput::Elements(TASKS));
        group.bench_function("32 tasks", |bencher| {
            let bencher = &mut bencher.to_async(&stage.runtime);
            bencher.iter_custom(|turns| all_take_turns(&lock, turns));
        });
    });
}

async fn all_take_turns(lock: &RLock, turns: u64) -> Duration {
    let start = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            for _ in 0..turns {
                let guard = lock.lock().await.expect("it comes free");
                guard.unlock().await.expect("the server answers");
            }
        })
    });
    for ended in join_all(tasks).await {
        ended.expect("no task panics");
    }
    start.elapsed()
}
