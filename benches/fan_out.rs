//! A thousand tasks wait for one lock; it is released, and each task acquires it once.
//!
//! ```text
//! cargo bench -p benches --bench fan_out
//! ```
//!
//! Timed from the release by the first holder to the last waiter's.

#[path = "support/stage.rs"]
mod stage;

use std::time::{Duration, Instant};

use criterion::{SamplingMode, Throughput};
use redlock_rt::Client;
use tests::eventually;
use tokio::task::JoinSet;

use self::stage::Stage;

const WAITERS: usize = 1_000;

fn main() {
    stage::run(|criterion| {
        let stage = Stage::set();
        let mut group = criterion.benchmark_group("fan_out");
        group.throughput(Throughput::Elements(WAITERS as u64));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.bench_function("1000 waiters", |bencher| {
            let bencher = &mut bencher.to_async(&stage.runtime);
            bencher.iter_custom(async |rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    spent += round(&stage.client).await;
                }
                spent
            });
        });
    });
}

async fn round(client: &Client) -> Duration {
    let lock = client.rlock("bench:fan_out");
    let guard = lock.lock().await.expect("it is free");
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = lock.clone();
        waiters.spawn(async move {
            let guard = lock.lock().await.expect("it comes free");
            guard.unlock().await.expect("the server answers");
        });
    }
    eventually(Duration::from_secs(10), async || {
        client.stats().waiting == WAITERS
    })
    .await;
    let start = Instant::now();
    guard.unlock().await.expect("the server answers");
    waiters.join_all().await;
    start.elapsed()
}
