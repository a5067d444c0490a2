//! The spin lock: waiters that poll, at a pace of their own.
//!
//! `cargo run -p examples --example spin_lock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::{Duration, Instant};

use redlock_rt::{Backoff, Error, Shutdown, Unlocked};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let ms = Duration::from_millis;

    let lock = client.spin_lock("example:slot");
    let guard = lock.lock().await?;

    // Three tries, 10 ms apart: enough for who expects holds of a few milliseconds.
    let brief = lock
        .clone()
        .backoff(Backoff::constant(ms(10)).max_retries(2));
    match brief.lock().await {
        Err(error) if error.is_timed_out() => println!("as expected: {error}"),
        other => println!("unexpected: {other:?}"),
    }

    // 2, 4, 8, 16, 20, 20 ... and up to half as much again, so that waiters come apart.
    let gentle = Backoff::exponential(ms(2), ms(20)).jitter(0.5);
    let waiter = lock.clone().backoff(gentle);
    let waits = tokio::spawn(async move {
        let guard = waiter.lock().await?;
        let since = Instant::now();
        guard.unlock().await?;
        Ok::<_, Error>(since)
    });
    tokio::time::sleep(ms(50)).await;
    let freed = Instant::now();
    assert_eq!(guard.unlock().await?, Unlocked::Released);
    match waits.await {
        Ok(taken) => println!("taken {:?} after the release", taken? - freed),
        Err(panic) => println!("unexpected: {panic}"),
    }

    // Nobody has ever subscribed to anything.
    assert_eq!(client.stats().subscriptions, 0);
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
