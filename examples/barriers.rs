//! Barriers: workers take each step together, and two services stand still at the same time.
//!
//! `cargo run -p examples --example barriers`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Client, Error, Shutdown};

const WORKERS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    tokio::try_join!(steps(&client, "ann"), steps(&client, "bob"))?;
    tokio::try_join!(stands_still(&client, "shop"), stands_still(&client, "bank"))?;
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}

/// Nobody begins a step before all have finished the one before.
async fn steps(client: &Client, worker: &str) -> Result<(), Error> {
    let step = client.cyclic_barrier("example:cyclic_barrier", WORKERS);
    for number in 1..=3 {
        println!("{worker} has done its part of step {number}");
        let arrival = step.wait_with(LIMIT).await?;
        // Each has another index: one of them goes on alone.
        if arrival.index == WORKERS - 1 {
            println!("{worker} writes the result of step {number}");
        }
    }
    Ok(())
}

/// Both are inside at once, and none leaves before the other.
async fn stands_still(client: &Client, service: &str) -> Result<(), Error> {
    let migration = client.double_barrier("example:double_barrier", WORKERS);
    let inside = migration.enter_with(LIMIT).await?;
    println!("{service} stands still, as all do");
    inside.leave_with(LIMIT).await?;
    println!("{service} goes on");
    Ok(())
}
