//! Runs a fixed number of lock + unlock pairs and nothing else, for profilers:
//!
//! ```text
//! export CARGO_TARGET_DIR=target/profiling CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
//! RUSTFLAGS='--cfg rustix_use_libc' cargo build --release -p benches --bin pairs
//! valgrind --tool=callgrind target/profiling/release/pairs ours --pairs 1000
//! ```
//!
//! Counts of instructions are the same on a busy machine as on an idle one; the difference between
//! two runs of different length excludes the start. (Valgrind shows no vDSO, without which rustix
//! reads clocks only through libc.)

use clap::{Parser, ValueEnum};
use futures::future::join_all;
use raw::Raw;
use redlock_rt::Client;
use tests::RedisServer;

/// Does lock + unlock pairs, for profilers.
#[derive(Debug, Parser)]
struct Options {
    /// What does them.
    #[arg(value_enum, default_value = "ours")]
    side: Side,
    /// Tasks, each with a key of its own.
    #[arg(long, default_value_t = 1)]
    tasks: u64,
    /// Pairs a task.
    #[arg(long, default_value_t = 10_000)]
    pairs: u64,
}

/// What does the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Ours,
    Raw,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let options = Options::parse();
    let server = RedisServer::start();
    match options.side {
        Side::Ours => {
            let client = Client::connect(&server.url()).await;
            let client = client.expect("the server answers");
            let tasks = (0..options.tasks).map(|task| {
                let lock = client.rlock(format!("pairs:{task:02}"));
                tokio::spawn(async move {
                    for _ in 0..options.pairs {
                        let guard = lock.lock().await.expect("it is free");
                        guard.unlock().await.expect("the server answers");
                    }
                })
            });
            join_all(tasks).await;
        }
        Side::Raw => {
            let raw = Raw::connect(server.address()).await;
            let raw = raw.expect("the server answers");
            let tasks = (0..options.tasks).map(|task| {
                let mut lock = raw.lock(&format!("pairs:{task:02}"), task);
                tokio::spawn(async move {
                    for _ in 0..options.pairs {
                        lock.acquire().await.expect("the server answers");
                        lock.release().await.expect("the server answers");
                    }
                })
            });
            join_all(tasks).await;
        }
    }
}
