//! The fair lock: whoever comes first is served first, and everybody can see the queue.
//!
//! `cargo run -p examples --example fair_lock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, LockOptions, Owner, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let lock = client.fair_lock("example:fair_lock");

    let guard = lock.lock().await?;
    let mut customers = Vec::new();
    for number in 1..=3_u64 {
        let (lock, customer) = (lock.clone(), Owner::new());
        let options = LockOptions::new().owner(&customer);
        customers.push(tokio::spawn(async move {
            let guard = lock.lock_with(options).await?;
            println!("customer {number} is served");
            guard.unlock().await
        }));
        // Each is in the queue before the next comes.
        while client.fair_lock("example:fair_lock").queue_len().await? < number {
            tokio::task::yield_now().await;
        }
    }
    println!(
        "{} wait",
        client.fair_lock("example:fair_lock").queue_len().await?
    );

    // Nobody passes those who wait, not even at a moment when it is free.
    guard.unlock().await?;
    for customer in customers {
        match customer.await {
            Ok(unlocked) => drop(unlocked?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    println!(
        "{} wait",
        client.fair_lock("example:fair_lock").queue_len().await?
    );
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
