//! A turn of a function under the attribute. Its body runs only while the lock is held, so it is what
//! believes.

use std::time::Duration;

use redlock_rt::{Client, Error, distributed_lock};
use tokio::time::Instant;

use super::act::{Host, sleep, told};
use super::log::Entry;
use super::plan::Turn;
use super::turn::cut;
use crate::history::{Ms, Outcome};

/// How often the body says that it runs.
const OFTEN: Ms = 5;

#[distributed_lock(key = "<key>", wait = wait, client = client)]
async fn function(
    client: &Client,
    key: &str,
    wait: Duration,
    (entry, owner): (&Entry, &str),
    (lease, hold): (Ms, Ms),
) -> Result<(), Error> {
    entry.granted(owner, None, (Some(lease), true), true);
    let mut left = hold;
    while left > 0 {
        let (nap, from) = (left.min(OFTEN), Instant::now());
        sleep(nap).await;
        left -= nap;
        // The body is polled before the loss drops it, and its process may have stood still.
        if from.elapsed() < Duration::from_millis(nap + OFTEN) {
            entry.believes(&[]);
        }
    }
    entry.ends("is at the end of the body with");
    Ok(())
}

impl Host {
    pub(super) async fn call(&self, entry: Entry, turn: Turn, (client, key): (&Client, &str)) {
        let wait = Duration::from_millis(turn.wait.unwrap_or(0));
        // Nobody sees the owner; it is another one for each call.
        let owner = format!("body {}", entry.place());
        let times = (self.terms().lease, turn.hold);
        let call = function(client, key, wait, (&entry, &owner), times);
        match cut(turn.cut, call).await {
            Some(Ok(())) => entry.over("has returned from the body with"),
            Some(Err(error)) if entry.is_granted() => {
                entry.note(&format!("was dropped in the body ({})", told(&error)));
            }
            Some(Err(error)) if error.is_contended() => entry.refused(Outcome::Refused),
            Some(Err(error)) if error.is_timed_out() => entry.refused(Outcome::TimedOut),
            Some(Err(error)) => entry.refused(Outcome::Failed(told(&error))),
            None if entry.is_granted() => {}
            None => entry.refused(Outcome::Cancelled),
        }
    }
}
