//! `redlock unlock --force`: frees what somebody else holds.

use std::io::{IsTerminal, Write, stderr, stdin};

use clap::Args;
use redlock_rt::{Client, Error, HoldId, Shutdown};
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::output::Output;
use crate::server::Server;

/// Frees a lock, whoever holds it
///
/// Of any kind with one holder, and a lock of readers with all of them. The holder is not asked: it goes on
/// until it notices that its lock is lost, at its next renewal. Exits with 1 if the lock is free already, or
/// if the answer to the question is no.
#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// The lock
    key: String,
    /// Says that this takes the lock away from its holder
    #[arg(long, required = true)]
    force: bool,
    /// Does not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn perform(
    unlock: Unlock,
    server: &Server,
    output: Output,
) -> Result<Code, Failure> {
    if !unlock.yes && !stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal to ask at: say --yes"));
    }
    let client = server.client().await?;
    let key = server.full_name(&unlock.key);
    let holder = client.rlock(&unlock.key).holder().await?;
    let freed = match &holder {
        Some(holder) if unlock.yes || agreed(&key, holder)? => free(&client, &unlock.key).await?,
        _ => false,
    };
    client.shutdown(Shutdown::ReleaseAll).await?;
    let text = match (&holder, freed) {
        (Some(holder), true) => format!("{key} is free; it was held by {}", holder.as_str()),
        (Some(_), false) => format!("{key} was not freed"),
        (None, _) => format!("{key} was free already"),
    };
    let holder = holder.as_ref().map(HoldId::as_str);
    output.say(
        &json!({ "key": key, "freed": freed, "holder": holder }),
        text,
    )?;
    Ok(if freed { Code::DONE } else { Code::NO })
}

fn agreed(key: &str, holder: &HoldId) -> Result<bool, Failure> {
    write!(stderr(), "Take {key} away from {}? [y/N] ", holder.as_str())?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Frees it as its own kind does, so that those who wait for it are woken.
async fn free(client: &Client, key: &str) -> Result<bool, Error> {
    let modes = client.read_write_lock(key);
    if modes.write_lock().force_unlock().await? || modes.read_lock().force_unlock().await? {
        return Ok(true);
    }
    let fair = client.fair_lock(key);
    match fair.queue_len().await? {
        0 => client.rlock(key).force_unlock().await,
        _ => fair.force_unlock().await,
    }
}
