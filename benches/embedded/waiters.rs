//! Waits for one lock many times, joins and leaves those that wait, and ends.
//!
//! ```text
//! cargo run --release -p embedded-pairs --bin waiters -- WAITING PAIRS
//! ```
//!
//! Each pair is a call that joins and one that leaves, from another place of the queue each time.
//! `ci/instructions` counts the instructions of a pair with few and with many that wait. The calls are
//! polled here, so no scheduler is in the figure.

use std::io::{self, Write};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Waker};
use std::time::Duration;

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, RLock};
use tokio::time::sleep;

/// A call that waits.
type Waits = Pin<Box<dyn Future<Output = ()>>>;

/// No divisor of a count of waiters: the places follow no order of the queue.
const STEP: usize = 7919;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at)?.parse::<usize>().ok();
    let (Some(waiting @ 1..), Some(pairs)) = (number(0), number(1)) else {
        let _ = io::stderr().write_all(b"usage: waiters WAITING PAIRS\n");
        return ExitCode::from(2);
    };
    let engine = Engine::new();
    let connect = || Client::builder().embedded(&engine).connect();
    let client = connect().await.expect("the engine answers");
    let other = connect().await.expect("the engine answers");
    let held = other.rlock("waiters").lock().await.expect("it is free");
    let lock = client.rlock("waiters");
    // It is polled by the runtime: only the first of the queue has anything to do.
    let head = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.map(drop) }
    });
    while client.stats().subscriptions == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let mut waits: Vec<Waits> = (0..waiting).map(|_| joined(&lock)).collect();
    for pair in 0..pairs {
        waits[pair * STEP % waiting] = joined(&lock);
    }
    assert_eq!(client.stats().waiting, waiting + 1);
    head.abort();
    drop((waits, held));
    ExitCode::SUCCESS
}

/// A call that has joined.
fn joined(lock: &RLock) -> Waits {
    let lock = lock.clone();
    let mut call: Waits = Box::pin(async move {
        let _ = lock.lock().await;
    });
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it is held");
    call
}
