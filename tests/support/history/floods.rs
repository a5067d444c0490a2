//! A server that is slower than the demand serves as many as it can, and what waits there for one client is
//! bounded.
//!
//! Each wants a lock of its own, so nobody waits for anybody but the server.

use super::{Flood, History, Verdict, Violation};

/// So much of what the server could serve, or of what is wanted if that is less, is served, in hundredths.
const SHARE: u64 = 50;
/// So many commands are in flight on a connection at most: 1024 calls of callers, as many releases of two commands
/// each, and those with which it begins.
const COMMANDS: usize = 3 * 1024 + 32;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    if let Some(flood) = history.terms.flood {
        goodput(history, flood, verdict);
    }
    let commands = history.in_flight;
    if commands > COMMANDS {
        let what = format!("{commands} commands were in flight on one connection");
        verdict.push(Violation::new("in flight", history.end, what));
    }
}

fn goodput(history: &History, flood: Flood, verdict: &mut Verdict) {
    let during = flood.from..flood.until;
    let best = (flood.until - flood.from) / flood.turn;
    let calls = history.acquisitions.iter();
    let wanted = calls.filter(|one| during.contains(&one.called)).count() as u64;
    let grants = history
        .acquisitions
        .iter()
        .filter_map(|one| one.grant.as_ref());
    let served = grants.filter(|grant| during.contains(&grant.at)).count() as u64;
    if 100 * served < SHARE * best.min(wanted) {
        let what = format!("{served} of {wanted} were served, and {best} could be");
        verdict.push(Violation::new("goodput", flood.until, what));
    }
}
