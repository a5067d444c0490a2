//! A call that does not wait is refused, and one that waits is told that its time is over, only where somebody
//! had what it asked for, or waited for it.

use super::serving::SETUP;
use super::{Acquisition, History, Mode, Ms, Outcome, Sight, Verdict, Violation};

const RULE: &str = "refusal";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.seen_keys() {
        let all = history.of_key(key);
        for one in &all {
            let Some((returned, Outcome::Refused | Outcome::TimedOut)) = one.returned else {
                continue;
            };
            // In less time who is new is not heard, and its client may give way to others.
            let short = returned < one.called + SETUP * history.terms.latency;
            if short && one.bound != Some(0) {
                continue;
            }
            if history.is_foreign(one.process) || is_taken(history, one, returned) {
                continue;
            }
            // Of two servers at one address the old one is not seen.
            let two = history.wiped(&one.key).any(|wiped| {
                wiped.at < wiped.until && wiped.at <= returned && one.called <= wiped.until
            });
            // Its own client knows who of it waits, or has not been told of the end of its hold.
            let wants = |other: &&&Acquisition| {
                let until = ended(history, other) + 2 * history.terms.latency;
                other.process == one.process && other.called <= returned && until >= one.called
            };
            let struck = !history.is_calm(one.process, one.called, returned);
            let excused = verdict.excuses("refusal: two servers", two)
                || verdict.excuses("refusal: own client", all.iter().filter(wants).count() > 1)
                || verdict.excuses("refusal: struck", struck);
            if !excused {
                let what = format!(
                    "{key}: process {} asked at {} ms, and was told at {returned} ms that others have it",
                    one.process, one.called
                );
                verdict.push(Violation::new(RULE, returned, what));
            }
        }
    }
}

/// When the call was over, or the end of its hold began.
fn ended(history: &History, one: &Acquisition) -> Ms {
    match &one.grant {
        Some(grant) => grant.ended.map_or(history.end, |(at, _)| at),
        None => one.returned.as_ref().map_or(history.end, |(at, _)| *at),
    }
}

/// Whether Redis showed at some time of the call that it could not be had.
fn is_taken(history: &History, one: &Acquisition, returned: Ms) -> bool {
    let states = history.states(&one.key);
    let mut during = states
        .iter()
        .filter(|(sight, until)| sight.at <= returned && *until >= one.called);
    during.any(|(sight, _)| !is_free(sight, one.mode))
}

fn is_free(sight: &Sight, mode: Mode) -> bool {
    match mode {
        Mode::Shared => sight.holders.is_empty() || sight.shared,
        Mode::Permits { taken, .. } => sight.number.is_none_or(|free| free >= u64::from(taken)),
        Mode::Exclusive | Mode::Majority(_) => sight.holders.is_empty() && sight.queue.is_empty(),
    }
}
