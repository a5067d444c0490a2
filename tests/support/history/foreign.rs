//! Who waits in a fair queue behind a waiter of another kind waits no longer than that one counts.
//!
//! Such a waiter has no heartbeat: one that is dead is dropped at its deadline, which nobody but our
//! scripts brings nearer when those before it leave. Judged is a lock that is free, whose next waiter
//! is of another kind, while one of ours waits.
//!
//! And no script of another kind fails over what ours wrote.

use super::{Acquisition, History, Ms, Outcome, Sight, Verdict, Violation};

const RULE: &str = "foreign";
/// What a waiter of another kind gets at least when one of ours before it leaves.
const GRACE: Ms = 5000;
/// In the text of an error that a script brings about.
const SCRIPT: &str = "script";

/// A waiter of another kind that is next for a lock that is free.
struct Next<'a> {
    owner: &'a str,
    from: Ms,
    until: Ms,
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    fails(history, verdict);
    for key in history.seen_keys() {
        let all = history.of_key(key);
        for next in nexts(history, key) {
            let behind = all.iter().filter(|one| !history.is_foreign(one.process));
            let from = behind.filter_map(|one| waits(history, one, &next)).min();
            let Some(from) = from else { continue };
            let due = from + longest(history, &next);
            let differ = history.clocks_differ.is_some_and(|at| at <= next.until);
            let mut excused = || {
                verdict.excuses("foreign: clocks", differ)
                    || verdict.excuses("foreign: struck", was_struck(history, &next))
            };
            if next.until > due && !excused() {
                let what = format!(
                    "{key}: {} is next and does not take it from {} to {} ms, due at {due} ms",
                    next.owner, next.from, next.until
                );
                verdict.push(Violation::new(RULE, due, what));
            }
        }
    }
}

fn fails(history: &History, verdict: &mut Verdict) {
    let foreign = history.acquisitions.iter();
    for one in foreign.filter(|one| history.is_foreign(one.process)) {
        if let Some((at, Outcome::Failed(what))) = &one.returned
            && what.starts_with("Server(ResponseError)")
            && what.contains(SCRIPT)
        {
            let what = format!("{}: process {} was told {what}", one.key, one.process);
            verdict.push(Violation::new(RULE, *at, what));
        }
    }
}

/// The times in which a waiter of another kind was next for a lock that is free.
fn nexts<'a>(history: &'a History, key: &str) -> Vec<Next<'a>> {
    let mut nexts: Vec<Next<'a>> = Vec::new();
    for (sight, until) in history.states(key) {
        let next = next_of(history, sight);
        match (nexts.last_mut(), next) {
            (Some(last), Some(owner)) if last.owner == owner && last.until == sight.at => {
                last.until = until;
            }
            (_, Some(owner)) => nexts.push(Next {
                owner,
                from: sight.at,
                until,
            }),
            (_, None) => {}
        }
    }
    nexts
}

fn next_of<'a>(history: &History, sight: &'a Sight) -> Option<&'a str> {
    let owner = sight.queue.first().filter(|_| sight.holders.is_empty())?;
    let process = history.process_of(owner)?;
    history.is_foreign(process).then_some(owner)
}

/// From when on one of ours waits until that is over.
fn waits(history: &History, one: &Acquisition, next: &Next<'_>) -> Option<Ms> {
    let ended = one.returned.as_ref().map_or(history.end, |(at, _)| *at);
    let waits = one.bound != Some(0) && one.called < next.until && ended >= next.until;
    waits.then_some(one.called.max(next.from))
}

/// Whether a fault struck one of ours before: a waiter of ours that was dropped as dead is not deducted
/// from the deadlines behind it, as in Redisson.
fn was_struck(history: &History, next: &Next<'_>) -> bool {
    history.strikes.iter().any(|strike| {
        let process = strike.process;
        process.is_none_or(|process| !history.is_foreign(process)) && strike.from <= next.until
    })
}

/// For how long it may be next: its own wait, and the lease that it found; then a beat drops it.
fn longest(history: &History, next: &Next<'_>) -> Ms {
    let terms = &history.terms;
    let client = |one: &&super::Foreign| next.owner.starts_with(&one.client);
    let own = history
        .foreign
        .iter()
        .find(client)
        .map_or(0, |one| one.wait);
    let bounds = history.acquisitions.iter();
    let bounds = bounds.filter(|one| history.is_foreign(one.process));
    let wait = bounds
        .filter_map(|one| one.bound)
        .max()
        .unwrap_or(0)
        .max(own);
    terms.slow(wait + GRACE) + history.recovery()
}
