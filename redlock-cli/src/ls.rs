//! `redlock ls`: what is held.

use std::pin::pin;

use clap::Args;
use futures::TryStreamExt;
use redlock_rt::{Inspection, Shutdown};

use crate::exit::{Code, Failure};
use crate::found::{holder, kind, object, short, waiters};
use crate::output::Output;
use crate::server::Server;

/// Lists locks, semaphores and latches that are there, whoever holds them
///
/// Asks by SCAN, a page at a time with a pause after each. Without --namespace the keys of other programs are
/// looked at, too, and a number of theirs is a `number` here.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// A pattern of Redis
    #[arg(default_value = "*")]
    pattern: String,
}

pub(crate) async fn perform(ls: Ls, server: &Server, output: Output) -> Result<Code, Failure> {
    let client = server.client().await?;
    let mut all = pin!(client.scan(&ls.pattern));
    output.head(&line("KEY", ["KIND", "TTL", "WAITERS", "HOLDER"]))?;
    while let Some(found) = all.try_next().await? {
        output.say(&object(server, &found), text(server, &found))?;
    }
    client.shutdown(Shutdown::ReleaseAll).await?;
    Ok(Code::DONE)
}

fn text(server: &Server, found: &Inspection) -> String {
    let (ttl, waiters) = (short(found.ttl), waiters(found).to_string());
    let columns = [kind(found.kind), &ttl, &waiters, &holder(found)];
    line(&server.full_name(&found.name), columns)
}

fn line(key: &str, [kind, ttl, waiters, holder]: [&str; 4]) -> String {
    format!("{key:40} {kind:10} {ttl:>7} {waiters:>7}  {holder}")
}
