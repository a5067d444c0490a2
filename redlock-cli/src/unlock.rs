//! `redlock unlock --force`: frees a lock of another holder.

use std::env;
use std::io::{IsTerminal, Write, stderr, stdin};

use clap::Args;
use redlock_rt::{Client, Error, HoldId, Kind, Lock, Shutdown};
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::output::{Output, plain};
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
    /// Tells the holder why, and the name of the user, as far as it uses redlock-rt
    #[arg(long)]
    why: Option<String>,
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
    let user = env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    let builder = server
        .builder()?
        .identity(format!("{user} (redlock unlock)"));
    let client = builder.connect().await?;
    let key = server.full_name(&unlock.key);
    let lock = client.rlock(&unlock.key);
    let mut holder = lock.holder().await?;
    let mut agreed = unlock.yes;
    while !agreed
        && let Some(asked) = &holder
        && is_agreed(&key, asked)?
    {
        // The answer took some time, and concerns only this holder.
        let now = lock.holder().await?;
        agreed = now == holder;
        holder = now;
    }
    let freed =
        agreed && holder.is_some() && free(&client, &unlock.key, unlock.why.as_deref()).await?;
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

fn is_agreed(key: &str, holder: &HoldId) -> Result<bool, Failure> {
    let question = plain(&format!("Take {key} away from {}?", holder.as_str()));
    write!(stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Frees it as its own kind does, so that its waiters are woken.
async fn free(client: &Client, key: &str, why: Option<&str>) -> Result<bool, Error> {
    let modes = client.read_write_lock(key);
    if end(&modes.write_lock(), why).await? || end(&modes.read_lock(), why).await? {
        return Ok(true);
    }
    let fair = client.fair_lock(key);
    match fair.queue_len().await? {
        0 => end(&client.rlock(key), why).await,
        _ => end(&fair, why).await,
    }
}

async fn end<K: Kind>(lock: &Lock<K>, why: Option<&str>) -> Result<bool, Error> {
    match why {
        Some(why) => lock.force_unlock_because(why).await,
        None => lock.force_unlock().await,
    }
}
