//! A separate server for the benchmark, its client, and the runtime of both.

use std::time::{Duration, Instant};

use criterion::Criterion;
use redlock_rt::{Client, Kind, Lock};
use tests::RedisServer;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// The parts of a benchmark. The server ends with it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    #[allow(dead_code, reason = "not every benchmark asks the server")]
    pub(crate) server: RedisServer,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let server = RedisServer::start();
        let runtime = runtime();
        let client = runtime.block_on(Client::connect(&server.url()));
        Self {
            client: client.expect("the server answers"),
            runtime,
            server,
        }
    }
}

/// A runtime of one thread. With more threads, another thread would wake the measured one for every
/// reply.
pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

/// Runs the benchmarks of the command line.
pub(crate) fn run(bench: impl FnOnce(&mut Criterion)) {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}

/// A lock and unlock.
#[allow(dead_code, reason = "not every benchmark has pairs")]
pub(crate) async fn pair<K: Kind>(lock: &Lock<K>) {
    let guard = lock.lock().await.expect("it is free or comes free");
    guard.unlock().await.expect("the server answers");
}

/// How long a task for each lock takes for so many pairs.
#[allow(dead_code, reason = "not every benchmark has tasks")]
pub(crate) async fn all_take_turns<K: Kind>(locks: &[Lock<K>], turns: u64) -> Duration {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in locks {
        let lock = lock.clone();
        tasks.spawn(async move {
            for _ in 0..turns {
                pair(&lock).await;
            }
        });
    }
    tasks.join_all().await;
    start.elapsed()
}
