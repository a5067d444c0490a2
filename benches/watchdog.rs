//! The cost of holding ten and a hundred thousand locks: **processor time** of this process, not elapsed
//! time, for one renewal of all.
//!
//! ```text
//! cargo bench -p benches --bench watchdog
//! ```
//!
//! Each lock is renewed every second, or every ten seconds for five leases, a hundred per call. After each
//! case the program prints what the calls cost the server (INFO commandstats), how many of them took
//! longer than a millisecond (SLOWLOG), and how long other calls of this client took meanwhile.

#[path = "support/stage.rs"]
mod stage;

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, GuardState, LockOptions, RLockGuard};
use rustix::time::{ClockId, clock_gettime};

use self::stage::Stage;

/// How many locks, how often each is renewed, and how often that is measured.
const CASES: [(u32, Duration, usize); 2] = [
    (10_000, Duration::from_secs(1), 20),
    (100_000, Duration::from_secs(10), 15),
];

fn main() {
    stage::run(|criterion| CASES.iter().for_each(|case| measure(criterion, *case)));
}

fn measure(criterion: &mut Criterion, (locks, interval, samples): (u32, Duration, usize)) {
    let stage = Stage::set();
    let guards = stage.runtime.block_on(hold(&stage.client, locks, interval));
    let connection = stage.runtime.block_on(stage.server.connect());
    let mut connection = connection.expect("the server answers");
    let before = stage.runtime.block_on(calls(&mut connection));
    let mut group = criterion.benchmark_group("watchdog");
    group.throughput(Throughput::Elements(locks.into()));
    group.sample_size(samples).sampling_mode(SamplingMode::Flat);
    let samples = u32::try_from(samples).expect("they are few");
    group.measurement_time(samples * interval);
    group.warm_up_time(interval);
    let mut measured = false;
    let mut beside = Histogram::<u64>::new(3).expect("three digits");
    group.bench_function(format!("{locks} locks, processor time"), |bencher| {
        measured = true;
        let bencher = &mut bencher.to_async(&stage.runtime);
        bencher.iter_custom(async |renewals| {
            let start = processor_time();
            let renewals = u32::try_from(renewals).expect("they are few");
            tokio::time::sleep(interval * renewals).await;
            processor_time() - start
        });
    });
    group.finish();
    if measured {
        let after = stage.runtime.block_on(calls(&mut connection));
        let (count, micros) = (after.0 - before.0, after.1 - before.1);
        let slow = stage.runtime.block_on(slow(&mut connection));
        eprintln!(
            "server: {count} calls, {:.0} us each, {slow} over 1 ms",
            micros / count
        );
        stage
            .runtime
            .block_on(pairs(&stage.client, interval, &mut beside));
        eprintln!(
            "a lock and unlock beside: p50 {} us, p99 {} us, longest {} us",
            beside.value_at_quantile(0.5),
            beside.value_at_quantile(0.99),
            beside.max()
        );
    }
    let is_held = |guard: &RLockGuard| matches!(guard.state(), GuardState::Held { .. });
    assert!(guards.iter().all(is_held));
    stage.runtime.block_on(async { drop(guards) });
}

async fn hold(client: &Client, locks: u32, interval: Duration) -> Vec<RLockGuard> {
    let options = LockOptions::new().lease(3 * interval).renew(interval);
    let mut guards = Vec::new();
    for number in 0..locks {
        let lock = client.rlock(format!("bench:watchdog:{number:06}"));
        guards.push(lock.lock_with(options.clone()).await.expect("it is free"));
    }
    guards
}

/// Takes and releases another lock for one interval.
async fn pairs(client: &Client, interval: Duration, took: &mut Histogram<u64>) {
    let (lock, start) = (client.rlock("bench:beside"), Instant::now());
    while start.elapsed() < interval {
        let before = Instant::now();
        let guard = lock.lock().await.expect("it is free");
        guard.unlock().await.expect("the server answers");
        let micros = u64::try_from(before.elapsed().as_micros()).expect("it is short");
        took.record(micros).expect("it grows");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The processor time of all threads of this process.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(spent).expect("it is not negative")
}

/// The number of scripts that the server has run, and their time in microseconds.
async fn calls(connection: &mut MultiplexedConnection) -> (f64, f64) {
    let mut slower = redis::cmd("CONFIG");
    slower.arg("SET").arg("slowlog-log-slower-than").arg(1000);
    let set: Result<(), _> = slower.query_async(connection).await;
    set.expect("the server answers");
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

/// How many commands took longer than a millisecond; of more than 128 the server keeps 128.
async fn slow(connection: &mut MultiplexedConnection) -> usize {
    let mut asked = redis::cmd("SLOWLOG");
    let length = asked.arg("LEN").query_async(connection).await;
    length.expect("the server answers")
}
