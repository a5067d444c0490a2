//! Holds locks, or waits for one, and ends: for profilers of memory.
//!
//! ```text
//! export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_TARGET_DIR=target/profiling
//! cargo build --release -p embedded-pairs --features valgrind
//! valgrind --tool=massif --massif-out-file=OUT target/profiling/release/holds KIND COUNT URL
//! ms_print OUT
//! ```
//!
//! KIND is `held` (each lock with a name of its own), `waiting` (so many tasks wait for one lock) or
//! `fair` (the same for a fair lock). The difference between two counts is what so many take. The
//! server is another process, so that its memory is not in the figure.

use std::process::{ExitCode, exit};
use std::time::Duration;

use redlock_rt::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, url] = &arguments[..] else {
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse::<usize>() else {
        return ExitCode::from(2);
    };
    let client = Client::connect(url).await.expect("the server answers");
    let other = Client::connect(url).await.expect("the server answers");
    match kind.as_str() {
        "held" => {
            let mut guards = Vec::with_capacity(count);
            for lock in 0..count {
                let guard = client.rlock(format!("holds:{lock:05}")).lock().await;
                guards.push(guard.expect("it is free"));
            }
            exit(0)
        }
        "waiting" => {
            let _held = other.rlock("holds:one").lock().await.expect("it is free");
            for _ in 0..count {
                let lock = client.rlock("holds:one");
                tokio::spawn(async move { lock.lock().await.map(drop) });
            }
            queued().await
        }
        "fair" => {
            let held = other.fair_lock("holds:one").lock().await;
            let _held = held.expect("it is free");
            for _ in 0..count {
                let lock = client.fair_lock("holds:one");
                tokio::spawn(async move { lock.lock().await.map(drop) });
            }
            queued().await
        }
        _ => ExitCode::from(2),
    }
}

/// Ends the process while all tasks wait.
async fn queued() -> ! {
    tokio::time::sleep(Duration::from_secs(5)).await;
    exit(0)
}
