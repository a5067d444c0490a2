//! A ticket: a web handler takes a lock, and a worker in another process finishes what is under it.
//!
//! `cargo run -p examples --example ticket`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, FencedLockGuard, Shutdown, Ticket};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let export = client.fenced_lock("example:ticket");

    let guard = export.lock().await?;
    println!("the handler has the lock, with token {}", guard.token());
    // The message may wait for as long.
    guard.extend(Duration::from_secs(60)).await?;
    let ticket = guard
        .into_ticket()
        .map_err(|refused| refused.into_error())?;
    let message = ticket.to_string();
    println!(
        "a second click finds it taken: {}",
        export.is_locked().await?
    );

    // In the worker, which has read the message from a queue:
    let ticket: Ticket = message.parse()?;
    let guard: FencedLockGuard = client.adopt(&ticket).await?;
    println!("the worker goes on, with token {}", guard.token());
    guard.unlock().await?;

    // The queue delivers the message once more.
    let again: Result<FencedLockGuard, Error> = client.adopt(&ticket).await;
    if let Err(error) = again {
        println!("{error}");
    }
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
