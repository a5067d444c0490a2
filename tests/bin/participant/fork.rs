//! A process that forks, with a client from before.
//!
//! The parent takes a lock, the child tries to take it with the same client, and both tell what came of it,
//! a line each. HOW is what the client was before the fork: `unused`; `used` in a runtime that has ended;
//! with a `dedicated` thread and a connection; `blocking`: the same, and it has waited outside of a runtime; or
//! `held`: there is a guard, which the child drops.

use std::{error::Error, time::Duration};

use fork::{Fork, fork, waitpid};
use redlock_rt::blocking::BlockOn as _;
use redlock_rt::{Client, Error as LockError, LockOptions, RLockGuard};
use tokio::runtime::{Builder, Runtime};

use super::{Failure, say};

/// A child does not outlive its test.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn run(url: &str, name: &str, how: &str) -> Result<(), Failure> {
    let client = Client::builder()
        .url(url)
        .dedicated_thread(matches!(how, "dedicated" | "blocking"))
        .build()?;
    let parents = runtime()?;
    let held = match how {
        "unused" => None,
        "used" => {
            let before = runtime()?;
            before.block_on(async { client.rlock("before").lock().await?.unlock().await })?;
            None
        }
        "dedicated" => {
            parents.block_on(async { client.rlock("before").lock().await?.unlock().await })?;
            None
        }
        "blocking" => {
            let guard = client.rlock(name).lock().block_on()?;
            wait_in_no_runtime(&client, name);
            Some(guard)
        }
        "held" => Some(parents.block_on(client.rlock(name).lock())?),
        other => return Err(format!("no such client: {other}").into()),
    };
    match fork()? {
        Fork::Child => {
            match how {
                "blocking" => {
                    let own = Client::builder().url(url).dedicated_thread(true).build()?;
                    say(&format!("child: {}", wait_in_no_runtime(&own, name)))?;
                }
                _ => child(&client, url, name, held)?,
            }
            // The parent's runtime is not that of the child, which could not end it.
            std::process::exit(0);
        }
        Fork::Parent(child) => {
            waitpid(child)?;
            parents.block_on(parent(&client, name, held))
        }
    }
}

/// Waits for a lock that another client or caller has.
fn wait_in_no_runtime(client: &Client, name: &str) -> String {
    let options = LockOptions::new().wait(PATIENCE / 10);
    told(client.rlock(name).lock_with(options).block_on().map(Some))
}

async fn parent(client: &Client, name: &str, held: Option<RLockGuard>) -> Result<(), Failure> {
    let guard = match held {
        Some(guard) => guard,
        None => client.rlock(name).lock().await?,
    };
    let id = guard.hold_id().as_str().to_owned();
    let holder = client.rlock(name).holder().await?;
    let is_held = holder.is_some_and(|holder| holder.as_str() == id);
    let unlocked = guard.unlock().await?;
    Ok(say(&format!("parent: held {is_held}, {unlocked:?}"))?)
}

fn child(client: &Client, url: &str, name: &str, held: Option<RLockGuard>) -> Result<(), Failure> {
    // In no runtime, as where a daemon leaves `main`.
    drop(held);
    runtime()?.block_on(async {
        let tried = client.rlock(name).try_lock().await;
        let fair = client.fair_lock(name);
        let waited = fair.lock_with(LockOptions::new().wait(PATIENCE)).await;
        say(&format!(
            "child: {}, {}",
            told(tried),
            told(waited.map(Some))
        ))?;
        let own = Client::connect(url).await?;
        let differs = own.uuid() != client.uuid();
        Ok(say(&format!("child: another id {differs}"))?)
    })
}

fn told<G>(tried: Result<Option<G>, LockError>) -> String {
    match tried {
        Ok(Some(_)) => "locked".into(),
        Ok(None) => "contended".into(),
        Err(error) => match error.source() {
            Some(source) => format!("{:?} ({source})", error.kind()),
            None => format!("{:?}", error.kind()),
        },
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
