//! A master and its replicas, without sentinels: the one whose role is `master`.
//!
//! All are asked for each connection, so a promotion by hand is followed. While there are two
//! masters, none is used: a lock that is held on one would be free on the other.

use std::collections::HashSet;
use std::time::Duration;

use super::gather::{all_failed, gather};
use super::greeting::Reached;
use super::info::Unfit;
use crate::connection::address::Address;
use crate::connection::fault::Fault;

/// Asks all, and keeps the connection to the master. `reached`: whether there was one before.
pub(super) async fn find_master<F>(
    addresses: &[Address],
    reached: bool,
    within: Duration,
    greet: impl Fn(Address) -> F,
) -> Result<Reached, Fault>
where
    F: Future<Output = Result<Reached, Fault>>,
{
    let asked = addresses
        .iter()
        .map(|address| (address.place(), judge(greet(address.clone()))));
    // Waits for the others too, as far as they answer: there may be two masters.
    let found = gather(asked, within, |masters: &[Reached]| !masters.is_empty());
    let (mut answers, faults) = found.await;
    // One server may be listed by several addresses.
    let mut seen = HashSet::new();
    answers.retain(|master| {
        let run_id = master.info.run_id.as_ref();
        run_id.is_none_or(|run_id| seen.insert(run_id.clone()))
    });
    match (answers.pop(), answers.is_empty()) {
        (Some(master), true) => Ok(master),
        (Some(last), false) => {
            answers.push(last);
            let mut places: Vec<String> = answers
                .iter()
                .filter_map(|reached| Some(reached.at.as_ref()?.place()))
                .collect();
            places.sort();
            Err(Fault::passing(format!(
                "{} are masters; make one of them a replica of the other",
                places.join(" and ")
            )))
        }
        (None, _) => Err(all_failed(
            "none of the servers is a master",
            &faults,
            reached,
        )),
    }
}

/// Only a master is an answer.
async fn judge(greeted: impl Future<Output = Result<Reached, Fault>>) -> Result<Reached, Fault> {
    let reached = greeted.await?;
    match reached.info.unfit(false) {
        Some(Unfit::Always(why)) => Err(Fault::misconfigured(std::io::Error::other(why))),
        Some(Unfit::Replica(why)) => Err(Fault::passing(why)),
        None if reached.info.is_master().is_none() => {
            let why = "its role is unknown: the user may neither ask for INFO nor for ROLE";
            Err(Fault::misconfigured(std::io::Error::other(why)))
        }
        None => Ok(reached),
    }
}
