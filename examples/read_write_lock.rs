//! The read-write lock: many look up prices, and who changes them is alone.
//!
//! `cargo run -p examples --example read_write_lock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let prices = client.read_write_lock("example:prices");

    // Readers share it, also those of other processes.
    let (one, other) = tokio::join!(prices.read(), prices.read());
    let (one, other) = (one?, other?);
    let readers = prices.read_lock().holders().await?.len();
    println!(
        "{readers} read, and one may write: {}",
        may_write(&prices).await?
    );
    other.unlock().await?;

    // Who found, while reading, that there is something to write: at once or not at all.
    let writing = match one.try_upgrade().await {
        Ok(writing) => writing,
        Err(refused) => {
            println!("others read: {refused}");
            refused.into_guard().unlock().await?;
            prices.write().await?
        }
    };
    println!(
        "written, while another may read: {}",
        may_read(&prices).await?
    );

    // Goes on reading what it wrote: nobody writes between.
    match writing.downgrade().await {
        Ok(reading) => {
            println!(
                "read back, while another may read: {}",
                may_read(&prices).await?
            );
            // What was read stays true, whatever becomes of the release.
            drop(reading);
        }
        Err(refused) => return Err(refused.into_error()),
    }

    // Under a read lock, writing would wait for itself for ever; it is refused.
    let outcome = prices
        .with_read(async |_reading| prices.write().await.map(drop))
        .await?;
    if let Err(error) = outcome {
        println!("{error}");
    }
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}

async fn may_read(lock: &redlock_rt::ReadWriteLock) -> Result<bool, Error> {
    Ok(lock.try_read().await?.is_some())
}

async fn may_write(lock: &redlock_rt::ReadWriteLock) -> Result<bool, Error> {
    Ok(lock.try_write().await?.is_some())
}
