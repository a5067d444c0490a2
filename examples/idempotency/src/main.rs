//! `cargo run -p payments`, with `REDIS_URL` for a real server; then twice:
//!
//!     curl -i localhost:8080/users/ann/payments -H 'Idempotency-Key: 1' -H 'Content-Type: text/plain' -d 100
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use payments::{Bank, router};
use redlock_rt::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => Client::connect(&url).await?,
        Err(_) => Client::embedded(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router(locks, Bank::new(10))).await?)
}
