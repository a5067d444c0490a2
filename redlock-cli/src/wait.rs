//! `redlock wait`: until a lock is free.

use std::time::Duration;

use clap::Args;
use redlock_rt::Shutdown;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::exit::{Code, Failure};
use crate::output::Output;
use crate::server::Server;
use crate::span::{nonzero_span, span};

/// Waits until a lock is free, without taking it
///
/// Of any kind. It may be taken again when this command has ended: to do something while it is free, use run.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The lock
    key: String,
    /// Waits at most this long, then exits with 75 [default: without a limit]
    #[arg(long, short = 'w', value_parser = span, value_name = "TIME")]
    wait: Option<Duration>,
    /// How often to ask
    #[arg(long, value_parser = nonzero_span, value_name = "TIME", default_value = "250ms")]
    every: Duration,
}

pub(crate) async fn perform(wait: Wait, server: &Server, output: Output) -> Result<Code, Failure> {
    let client = server.client().await?;
    let lock = client.rlock(&wait.key);
    let started = Instant::now();
    let is_free = loop {
        if !lock.is_locked().await? {
            break true;
        }
        let left = wait.wait.map(|wait| wait.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break false;
        }
        sleep(left.map_or(wait.every, |left| left.min(wait.every))).await;
    };
    client.shutdown(Shutdown::ReleaseAll).await?;
    let key = server.full_name(&wait.key);
    if !is_free {
        return Err(Failure::new(
            Code::NOT_HAD,
            format!("{key:?} is still held"),
        ));
    }
    let waited = started.elapsed().as_secs_f64();
    let object = json!({ "key": key, "free": true, "waited_seconds": waited });
    output.say(&object, format!("{key} is free"))?;
    Ok(Code::DONE)
}
