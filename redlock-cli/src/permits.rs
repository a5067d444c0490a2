//! `redlock permits`: the permits of a semaphore.

use clap::{Args, Subcommand};
use redlock_rt::{Client, Shutdown};
use serde_json::{Value, json};

use crate::exit::{Code, Failure};
use crate::output::Output;
use crate::server::Server;

/// Shows and sets the permits of a semaphore
#[derive(Debug, Args)]
pub(crate) struct Permits {
    /// The semaphore
    key: String,
    /// It is one whose permits have no lease (RSemaphore)
    #[arg(long)]
    without_lease: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints how many there are, and how many are free; so does no command
    Show,
    /// Sets how many there are. Those that are held count: they stay held. Without leases only if none are set
    Set {
        /// How many
        permits: u32,
    },
}

pub(crate) async fn perform(
    permits: Permits,
    server: &Server,
    output: Output,
) -> Result<Code, Failure> {
    let client = server.client().await?;
    let done = match permits.without_lease {
        true => without_lease(&permits, &client).await,
        false => with_leases(&permits, &client).await,
    };
    client.shutdown(Shutdown::ReleaseAll).await?;
    let (mut object, text, code) = done?;
    let key = server.full_name(&permits.key);
    object["key"] = json!(key);
    output.say(&object, format!("{key}: {text}"))?;
    Ok(code)
}

async fn with_leases(permits: &Permits, client: &Client) -> Result<(Value, String, Code), Failure> {
    let semaphore = client.permit_expirable_semaphore(&permits.key);
    if let Some(Action::Set { permits }) = permits.action {
        semaphore.set_permits(permits).await?;
    }
    let free = semaphore.available_permits().await?;
    let held = semaphore.acquired().await?;
    let all = free.saturating_add(held);
    let object = json!({ "permits": all, "free": free, "held": held });
    Ok((
        object,
        format!("{all} permits, {free} free, {held} held"),
        Code::DONE,
    ))
}

async fn without_lease(
    permits: &Permits,
    client: &Client,
) -> Result<(Value, String, Code), Failure> {
    let semaphore = client.semaphore(&permits.key);
    let is_set = match permits.action {
        Some(Action::Set { permits }) => semaphore.try_set_permits(permits).await?,
        _ => true,
    };
    // Redis does not know the holders of the others.
    let free = semaphore.available_permits().await?;
    let object = json!({ "free": free, "set": is_set });
    Ok(match is_set {
        true => (object, format!("{free} free"), Code::DONE),
        false => (
            object,
            format!("has permits already, {free} free"),
            Code::NO,
        ),
    })
}
