//! `redlock latch`: a count-down latch.

use std::time::Duration;

use clap::{Args, Subcommand};
use redlock_rt::{CountDownLatch, Shutdown};
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::output::Output;
use crate::server::Server;
use crate::span::span;

/// Sets, counts down and waits for a latch
#[derive(Debug, Args)]
pub(crate) struct Latch {
    /// The latch
    key: String,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints the count; so does no command
    Show,
    /// Makes the count one less
    CountDown,
    /// Waits until the count is zero: exits with 75 at the end of --wait, with 76 if the latch was deleted
    Wait {
        /// Waits at most this long [default: without a limit]
        #[arg(long, short = 'w', value_parser = span, value_name = "TIME")]
        wait: Option<Duration>,
    },
    /// Sets the count of a latch that has none: exits with 1 if it has one
    Set {
        /// The count
        count: u64,
        /// Deletes the latch after this time [default: never]
        #[arg(long, value_parser = span, value_name = "TIME")]
        ttl: Option<Duration>,
    },
}

pub(crate) async fn perform(
    latch: Latch,
    server: &Server,
    output: Output,
) -> Result<Code, Failure> {
    let client = server.client().await?;
    let key = server.full_name(&latch.key);
    let handle = client.count_down_latch(&latch.key);
    let done = act(latch.action.unwrap_or(Action::Show), &handle, &key).await;
    client.shutdown(Shutdown::ReleaseAll).await?;
    let (count, is_set, text) = done?;
    let object = json!({ "key": key, "count": count, "set": is_set });
    output.say(&object, text)?;
    Ok(if is_set == Some(false) {
        Code::NO
    } else {
        Code::DONE
    })
}

/// The count, whether it was set, and the line to print.
async fn act(
    action: Action,
    latch: &CountDownLatch,
    key: &str,
) -> Result<(u64, Option<bool>, String), Failure> {
    match action {
        Action::Show => {
            let count = latch.count().await?;
            Ok((count, None, format!("{key}: {count}")))
        }
        Action::CountDown => {
            let count = latch.count_down().await?;
            Ok((count, None, format!("{key}: {count}")))
        }
        Action::Wait { wait } => {
            latch.wait_with(wait).await?;
            Ok((0, None, format!("{key} is open")))
        }
        Action::Set { count, ttl } => match latch.clone().ttl(ttl).try_set_count(count).await? {
            true => Ok((count, Some(true), format!("{key}: {count}"))),
            false => {
                let count = latch.count().await?;
                Ok((
                    count,
                    Some(false),
                    format!("{key} has a count already: {count}"),
                ))
            }
        },
    }
}
