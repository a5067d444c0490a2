//! A guard that is renewed tells soon that Redis no longer has its hold.

use super::{Acquisition, Grant, History, Mode, Ms, Sight, Verdict, Violation};

const RULE: &str = "told";
/// A renewal comes after a third of the lease, and holds that are due soon after go with others.
const RENEWED: Ms = 3;
/// Ways of a message: the renewal may be on its way, or first have to load its script.
const WAYS: Ms = 8;
/// What whole milliseconds and the order of tasks add.
const SLACK: Ms = 10;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.seen_keys() {
        for one in history.of_key(key) {
            let locked = matches!(one.mode, Mode::Exclusive | Mode::Shared);
            let Some(grant) = one.grant.as_ref().filter(|grant| locked && grant.renewed) else {
                continue;
            };
            let (Some(gone), Some(lease)) = (gone(history, one, grant), grant.longest()) else {
                continue;
            };
            let terms = &history.terms;
            let due = gone + terms.slow(lease / RENEWED) + WAYS * terms.latency + SLACK;
            let well = history.is_well(one.process, one.called, grant.believed);
            let late = grant.believed > due && !history.is_foreign(one.process);
            if late && !verdict.excuses("told: struck", !well) {
                let what = format!(
                    "{key}: {} (process {}) was not in Redis from {gone} ms, and believed until {} ms",
                    grant.owner, one.process, grant.believed
                );
                verdict.push(Violation::new(RULE, grant.believed, what));
            }
        }
    }
}

/// From when the hold is gone from Redis, before its end.
fn gone(history: &History, one: &Acquisition, grant: &Grant) -> Option<Ms> {
    let ended = grant.ended.map_or(Ms::MAX, |(at, _)| at);
    let states = history.states(&one.key);
    let has = |sight: &Sight| sight.holders.iter().any(|(owner, _)| *owner == grant.owner);
    let mut later = states.iter().filter(|(_, until)| *until > grant.at);
    let gone = later.find(|(sight, _)| !has(sight))?.0.at;
    let seen = states.iter().any(|(sight, _)| has(sight));
    (seen && gone < ended).then(|| gone.max(grant.at))
}
