//! Once per fire: five instances start a nightly job, one that fails leaves it to another, and it is done once.
//!
//! `cargo run -p examples --example once`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::{Duration, SystemTime};

use redlock_rt::{Client, Error, Fire, Shutdown};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    // The schedule says when, not the clocks of the instances.
    let fire = SystemTime::now();
    let mut instances = JoinSet::new();
    for instance in 1..=5 {
        instances.spawn(run(client.clone(), fire, instance));
    }
    while let Some(ended) = instances.join_next().await {
        ended.expect("no instance panics")?;
    }
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}

async fn run(client: Client, fire: SystemTime, instance: u32) -> Result<(), Error> {
    let report = client.once("example:report", fire).attempts(3);
    match report.start().await? {
        Fire::Run(guard) if instance == 1 => {
            println!("{instance} begins, and fails");
            drop(guard);
        }
        Fire::Run(guard) => {
            println!("{instance} begins, with token {}", guard.token());
            guard
                .run(tokio::time::sleep(Duration::from_millis(50)))
                .await?;
            guard.done().await?;
            println!("{instance} has done it");
        }
        Fire::Done(at) => println!("{instance} finds it done at {at:?}"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
