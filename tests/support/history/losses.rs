//! A guard says that it is lost only where Redis forgot the hold, its lease was over, its client was
//! shut down, or a fault kept its process from renewing it.
//!
//! Redisson judges the leases of permits by the wall clock of its host: a client that asks for permits
//! takes back those whose leases are over by that clock, whoever holds them. Where it is ahead of the
//! server's, permits of ours are lost early.

use super::{Acquisition, Grant, History, Mode, Ms, Verdict, Violation, moves};

const RULE: &str = "loss";
/// A lease of fewer round trips than these may end before its renewal is answered.
const SHORT: Ms = 8;
/// The margin of a lease: one in a hundred, and this.
const MARGIN: Ms = 3;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for one in &history.acquisitions {
        // Has a rule of its own.
        if matches!(one.mode, Mode::Majority(_)) {
            continue;
        }
        let Some(grant) = &one.grant else { continue };
        let (Some(lost), Some(lease)) = (grant.lost, grant.lease) else {
            continue;
        };
        let since = acquired(history, one, grant);
        let forgotten = history
            .wiped(&one.key)
            .any(|wiped| since <= wiped.until && wiped.at <= lost);
        // What Redis forgot is no excuse for other keys.
        let well = history.is_well(one.process, one.called, lost);
        if !is_early(history, grant, one.called, lost, lease) {
            continue;
        }
        let excused = verdict.excuses("loss: forgotten", forgotten)
            || verdict.excuses("loss: struck", !well)
            || verdict.excuses(
                "loss: taken back by another kind",
                is_taken_back(history, one, lost),
            )
            || verdict.excuses("loss: keys apart", moves::was_apart(history, one, lost));
        if !excused {
            let what = format!(
                "{}: {} (process {}) had it from {} ms, with a lease of {lease} ms, and lost it",
                one.key, grant.owner, one.process, grant.at
            );
            verdict.push(Violation::new(RULE, lost, what));
        }
    }
}

/// When the first of those asked for the lock who hand it over to each other without a call: Redis may
/// have forgotten it since then.
fn acquired(history: &History, one: &Acquisition, grant: &Grant) -> Ms {
    let all = history.of_key(&one.key).into_iter();
    let chain = all.filter(|other| {
        let owner = other.grant.as_ref().map(|grant| &grant.owner);
        other.process == one.process && owner == Some(&grant.owner)
    });
    let called = chain.map(|other| other.called);
    called.min().unwrap_or(one.called)
}

/// Whether these are permits with a lease, and a client whose clock was ahead asked for permits of that
/// name before they were lost.
fn is_taken_back(history: &History, one: &Acquisition, lost: Ms) -> bool {
    if !matches!(one.mode, Mode::Permits { .. }) {
        return false;
    }
    let all = history.acquisitions.iter();
    let mut others = all.filter(|other| other.key == one.key);
    others.any(|other| {
        let mut ahead = history.ahead.iter();
        ahead.any(|ahead| {
            let from = one.called.max(other.called).max(ahead.from);
            ahead.process == other.process
                && from <= lost
                && from <= asks_until(history, other)
                // What it sent before its clock was right again.
                && from <= ahead.until.saturating_add(history.terms.latency)
        })
    })
}

/// Until when a call of this acquisition may arrive at the server.
fn asks_until(history: &History, one: &Acquisition) -> Ms {
    // Redisson repeats a call whose reply is lost.
    let late = match history.was_struck(one.process) {
        true => history.recovery(),
        false => history.terms.latency,
    };
    let returned = one.returned.as_ref();
    returned.map_or(history.end, |(at, _)| at + late)
}

/// Whether the lease cannot have been over.
pub(super) fn is_early(history: &History, grant: &Grant, called: Ms, lost: Ms, lease: Ms) -> bool {
    let short = lease < SHORT * 2 * history.terms.latency;
    if grant.renewed && !short {
        return true;
    }
    let least = lease - lease / 100 - history.terms.drift(lease);
    lost + MARGIN < called + least
}
