//! The cost of holding ten thousand locks: **processor time** of this process, not elapsed time, for
//! one renewal of all.
//!
//! ```text
//! cargo bench -p benches --bench watchdog
//! ```
//!
//! Each lock is renewed every second, a hundred per call. At the end the program prints the cost of
//! the calls for the server (INFO commandstats).

#[path = "support/stage.rs"]
mod stage;

use std::time::Duration;

use criterion::{SamplingMode, Throughput};
use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redlock_rt::{LockOptions, RLockGuard};
use rustix::time::{ClockId, clock_gettime};

use self::stage::Stage;

const LOCKS: u32 = 10_000;
const INTERVAL: Duration = Duration::from_secs(1);

fn main() {
    stage::run(|criterion| {
        let stage = Stage::set();
        let guards = stage.runtime.block_on(hold(&stage));
        let connection = stage.runtime.block_on(stage.server.connect());
        let mut connection = connection.expect("the server answers");
        let before = stage.runtime.block_on(calls(&mut connection));
        let mut group = criterion.benchmark_group("watchdog");
        group.throughput(Throughput::Elements(LOCKS.into()));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.measurement_time(20 * INTERVAL);
        group.bench_function("10000 locks, processor time", |bencher| {
            let bencher = &mut bencher.to_async(&stage.runtime);
            bencher.iter_custom(async |renewals| {
                let start = processor_time();
                let renewals = u32::try_from(renewals).expect("they are few");
                tokio::time::sleep(INTERVAL * renewals).await;
                processor_time() - start
            });
        });
        group.finish();
        let after = stage.runtime.block_on(calls(&mut connection));
        let (count, micros) = (after.0 - before.0, after.1 - before.1);
        if count > 0.0 {
            eprintln!("server: {count} calls, {:.0} us each", micros / count);
        }
        assert!(guards.iter().all(RLockGuard::is_valid));
    });
}

async fn hold(stage: &Stage) -> Vec<RLockGuard> {
    let options = LockOptions::new().lease(10 * INTERVAL).renew(INTERVAL);
    let guards = (0..LOCKS).map(|number| {
        let lock = stage.client.rlock(format!("bench:watchdog:{number:05}"));
        let options = options.clone();
        async move { lock.lock_with(options).await.expect("it is free") }
    });
    join_all(guards).await
}

/// The processor time of all threads of this process.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(spent).expect("it is not negative")
}

/// The number of scripts that the server has run, and their time in microseconds.
async fn calls(connection: &mut MultiplexedConnection) -> (f64, f64) {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .expect("the server answers");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let field = |name: &str| {
        let fields = line.unwrap_or_default().split(',');
        let mut fields = fields.filter_map(|field| field.split_once('='));
        let (_, value) = fields.find(|(key, _)| *key == name)?;
        value.parse().ok()
    };
    (field("calls").unwrap_or(0.0), field("usec").unwrap_or(0.0))
}
