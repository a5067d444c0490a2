//! A lock over three servers that survives the loss of one.
//!
//! `cargo run -p examples --example red_lock`, with `REDIS_URLS` (with commas between them) for real
//! servers.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Client, Error, LockOptions, Quorum, Shutdown, Unlocked};

fn servers() -> Result<Vec<Client>, Error> {
    match std::env::var("REDIS_URLS") {
        // Not connected to yet: one of them may be down.
        Ok(urls) => urls
            .split(',')
            .map(|url| Client::builder().url(url).build())
            .collect(),
        Err(_) => Ok((0..3).map(|_| Client::embedded()).collect()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = servers()?;
    let quorum = Quorum::new(servers.clone())?;
    let lock = quorum.redlock("example:red");
    println!("{} of {} must agree", quorum.majority(), quorum.servers());

    let guard = lock.lock().await?;
    println!("held on {} servers: {:?}", guard.servers(), guard.state());
    assert!(lock.try_lock().await?.is_none());

    // One of them is gone, as far as we are concerned.
    if let Some(first) = servers.first().filter(|_| quorum.servers() > 2) {
        first.shutdown(Shutdown::ReleaseAll).await?;
    }
    println!(
        "still valid, on {} servers: {}",
        guard.servers(),
        guard.is_valid()
    );
    let receipt = guard.run(async { "paid" }).await?;
    println!("{receipt}");
    assert_eq!(guard.unlock().await?, Unlocked::Released);

    let brief = LockOptions::new().wait(Duration::from_secs(2));
    let again = lock.lock_with(brief).await?;
    println!("and again on {}", again.servers());
    again.unlock().await?;
    // Nothing that was dropped is left behind when the process ends.
    for server in servers {
        server
            .shutdown(Shutdown::Drain(Duration::from_secs(5)))
            .await?;
    }
    Ok(())
}
