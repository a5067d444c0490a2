//! Runs lock + unlock pairs on the embedded engine, and nothing else.
//!
//! ```text
//! cargo run --release -p embedded-pairs -- TASKS PAIRS [current|multi]
//! ```
//!
//! Each task has a key of its own and does so many pairs. Prints the pairs per second of all.
//!
//! `ci/instructions` counts the instructions of a pair. Where they are:
//!
//! ```text
//! export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_TARGET_DIR=target/profiling
//! cargo build --release -p embedded-pairs --features valgrind
//! valgrind --tool=callgrind target/profiling/release/embedded-pairs 64 100
//! callgrind_annotate --inclusive=yes callgrind.out.*
//! ```

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use redlock_rt::Client;
use redlock_rt::embedded::Engine;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at)?.parse::<u64>().ok();
    let builder = match arguments.get(2).map(String::as_str) {
        None | Some("current") => Some(Builder::new_current_thread()),
        Some("multi") => Some(Builder::new_multi_thread()),
        Some(_) => None,
    };
    let (Some(tasks), Some(pairs), Some(mut builder)) = (number(0), number(1), builder) else {
        let _ = io::stderr().write_all(b"usage: embedded-pairs TASKS PAIRS [current|multi]\n");
        return ExitCode::from(2);
    };
    #[cfg(feature = "metrics")]
    metrics_exporter_prometheus::PrometheusBuilder::new()
        .install_recorder()
        .expect("there is no other recorder");
    let runtime = builder.enable_time().build().expect("a runtime starts");
    let rate = runtime.block_on(run(tasks, pairs));
    let _ = writeln!(io::stdout(), "{rate:.0}");
    ExitCode::SUCCESS
}

/// Returns the pairs per second.
async fn run(tasks: u64, pairs: u64) -> f64 {
    let engine = Engine::new();
    let client = Client::builder().embedded(&engine).connect().await;
    let client = client.expect("the engine answers");
    let locks: Vec<_> = (0..tasks)
        .map(|task| client.rlock(format!("pairs:{task:02}")))
        .collect();
    let start = Instant::now();
    let tasks: Vec<_> = locks
        .into_iter()
        .map(|lock| {
            tokio::spawn(async move {
                for _ in 0..pairs {
                    let guard = lock.lock().await.expect("it is free");
                    guard.unlock().await.expect("the engine answers");
                }
            })
        })
        .collect();
    let all = tasks.len() as f64 * pairs as f64;
    for task in tasks {
        task.await.expect("no task panics");
    }
    all / start.elapsed().as_secs_f64()
}
