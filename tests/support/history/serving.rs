//! A lock that is free is had by somebody who waits for it.
//!
//! Where nothing is struck by a fault, within a few round trips of its release, and not when
//! somebody looks by itself; after the last fault within the longest lease and the waiter time-out.

use super::{Acquisition, End, History, Mode, Ms, Violation};

const RULE: &str = "serving";
/// How many ways of a message at most: a release, its announcement, a try and its answer, each of
/// them perhaps on a connection that is to be made first, to a server that does not know the script.
const WAYS: u64 = 24;
const SLACK: u64 = 20;

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    for key in history.keys() {
        let all = history.of_key(key);
        if all
            .iter()
            .any(|one| matches!(one.mode, Mode::Permits { .. }) || !one.announced)
        {
            continue;
        }
        for (from, until) in free(history, &all) {
            let waits = |one: &&&Acquisition| {
                let end = one.returned.as_ref().map_or(history.end, |(at, _)| *at);
                one.bound != Some(0) && one.called <= from && end >= until
            };
            let Some(waiter) = all.iter().find(waits) else {
                continue;
            };
            let prompt = history.terms.latency * WAYS + SLACK;
            let longest = longest_wait(history, &all);
            let waited = until - from;
            let calm = history.is_all_calm(from.saturating_sub(longest), until);
            let faultless = history.is_all_calm(from, until);
            if calm && waited > prompt || faultless && waited > longest {
                let what = format!(
                    "{key}: free from {from} to {until} ms, while process {} waited since {} ms",
                    waiter.process, waiter.called
                );
                broken.push(Violation::new(RULE, until, what));
            }
        }
    }
}

/// How long what a fault left may keep anybody waiting.
fn longest_wait(history: &History, all: &[&Acquisition]) -> Ms {
    let terms = &history.terms;
    let leases = all.iter().filter_map(|one| one.grant.as_ref()?.lease);
    let lease = leases.max().unwrap_or(0).max(terms.waiter_timeout);
    2 * (lease + terms.waiter_timeout + terms.response + terms.connect)
}

/// The times in which nobody has it, by what is known from outside.
fn free(history: &History, all: &[&Acquisition]) -> Vec<(Ms, Ms)> {
    let mut taken: Vec<(Ms, Ms)> = all
        .iter()
        .filter_map(|one| {
            let grant = one.grant.as_ref()?;
            // What nobody released is there until its lease is over.
            let end = match grant.ended {
                Some((at, End::Released)) => at,
                Some((at, End::Left)) => at + grant.lease.unwrap_or(history.end),
                None => grant.believed + grant.lease.unwrap_or(history.end),
            };
            Some((grant.at, end))
        })
        .collect();
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut since: Option<Ms> = None;
    for (from, until) in taken {
        if let Some(since) = since.filter(|since| from > *since) {
            free.push((since, from));
        }
        since = Some(since.map_or(until, |since| since.max(until)));
    }
    if let Some(since) = since.filter(|since| history.end > *since) {
        free.push((since, history.end));
    }
    free
}
