//! The semaphore with leases: at most three at a time, also where processes die.
//!
//! `cargo run -p examples --example permit_expirable_semaphore`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, PermitOptions, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let calls = client.permit_expirable_semaphore("example:calls");
    calls.set_permits(3).await?;

    let mut workers = Vec::new();
    for number in 1..=6_u64 {
        let calls = calls.clone();
        workers.push(tokio::spawn(async move {
            // Free again after so long if this process dies; renewed while it lives.
            let options = PermitOptions::new().lease(Duration::from_secs(5));
            let permit = calls.acquire_with(options).await?;
            println!("worker {number} has permit {}", permit.id());
            tokio::select! {
                reason = permit.lost() => println!("worker {number} stops: {reason}"),
                () = tokio::time::sleep(Duration::from_millis(20 * number)) => {}
            }
            permit.release().await
        }));
    }
    for worker in workers {
        match worker.await {
            Ok(released) => drop(released?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    println!(
        "{} of {} permits are free",
        calls.available_permits().await?,
        calls.permits().await?
    );
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
