//! An election: two candidates, a resignation, a deposition, and a store that refuses the old term.
//!
//! `cargo run -p examples --example leader_election`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use futures::StreamExt;
use redlock_rt::{Client, Error, LeaderElection, Shutdown};

/// A candidate that leads two terms of a moment each.
async fn candidate(name: &'static str, election: LeaderElection) -> Result<(), Error> {
    for _ in 0..2 {
        let leadership = election.campaign().await?;
        println!("{name} leads in term {}", leadership.term());
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The other one wins next, if it campaigns.
        leadership.resign().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let election = |client: &Client| client.leader_election("example:scheduler");
    let elected = futures::try_join!(
        candidate("one", election(&client)),
        candidate("two", election(&client)),
    );
    elected?;

    let leadership = election(&client).campaign().await?;
    let mut leaders = election(&client).observe();
    if let Some(leader) = leaders.next().await.transpose()? {
        println!("{} leads in term {}", leader.hold, leader.term);
    }

    // An operator deposes it, since it does not answer.
    let schedule = client.fenced_value("example:scheduler:plan");
    let lock = client.fenced_lock("example:scheduler");
    let next = lock.steal("deploy 42: stuck leader").await?;
    println!("lost: {}", leadership.lost().await);
    schedule.set("the new plan", next.token()).await?;
    match schedule.set("a late plan", leadership.term()).await {
        Err(error) if error.is_stale_token() => println!("as expected: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    drop((leadership, next));
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
