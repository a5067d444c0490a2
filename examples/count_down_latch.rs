//! The count-down latch: nobody starts before all are ready, in whatever process they are.
//!
//! `cargo run -p examples --example count_down_latch`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, Shutdown};

const CACHES: u64 = 3;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    // A latch whose parties died is not there for ever.
    let warm = client
        .count_down_latch("example:count_down_latch")
        .ttl(Duration::from_secs(60));
    warm.try_set_count(CACHES).await?;

    let mut visitors = Vec::new();
    for number in 1..=2 {
        let warm = warm.clone();
        visitors.push(tokio::spawn(async move {
            warm.wait_with(Duration::from_secs(10)).await?;
            println!("visitor {number} comes in");
            Ok::<_, Error>(())
        }));
    }
    for number in 1..=CACHES {
        // Counts down however the work ends; dropped, it would do so in the background.
        let ready = warm.count_down_guard()?;
        println!("cache {number} is filled");
        println!("{} to go", ready.count_down().await?);
    }
    for visitor in visitors {
        match visitor.await {
            Ok(came) => came?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
