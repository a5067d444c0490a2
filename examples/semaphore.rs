//! The semaphore without leases: a number of permits, for whoever comes.
//!
//! A crash keeps its permits; `permit_expirable_semaphore.rs` shows those that come back.
//!
//! `cargo run -p examples --example semaphore`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, PermitOptions, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let seats = client.semaphore("example:seats");
    if seats.try_set_permits(4).await? {
        println!("the room is open");
    }

    let couple = seats.acquire_many(2).await?;
    println!(
        "two sit, {} seats are free",
        seats.available_permits().await?
    );
    let three = PermitOptions::new()
        .permits(3)
        .wait(Duration::from_millis(100));
    match seats.acquire_with(three).await {
        Err(error) if error.is_timed_out() => println!("three do not find seats together"),
        other => drop(other?),
    }

    // Whoever waits has them as soon as they are free, first come, first served.
    let family = tokio::spawn({
        let seats = seats.clone();
        async move { seats.acquire_many(3).await }
    });
    couple.release().await?;
    match family.await {
        Ok(guard) => println!("{} sit now", guard?.permits()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
    // Nothing that was dropped is left behind when the process ends.
    client.shutdown(Shutdown::ReleaseAll).await
}
