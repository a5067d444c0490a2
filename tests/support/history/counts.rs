//! Redis counts the guards of a hold: no fewer than are held, and no more than were asked for.

use super::{Acquisition, Grant, History, Ms, Verdict, Violation};

const RULE: &str = "count";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.seen_keys() {
        let all = history.of_key(key);
        for (sight, until) in history.states(key) {
            for (owner, count) in &sight.holders {
                // Tasks of one client that hand a lock over to each other have one owner number.
                let of = |one: &&&Acquisition| {
                    one.grant
                        .as_ref()
                        .is_some_and(|grant| grant.owner == *owner)
                };
                let chain: Vec<_> = all.iter().filter(of).collect();
                let Some(one) = chain.first() else {
                    continue;
                };
                // Redisson counts once more when it repeats a call.
                if history.is_foreign(one.process) {
                    continue;
                }
                let grants = || chain.iter().filter_map(|one| one.grant.as_ref());
                // An acquisition that runs once more, late, counts from one again.
                let late = history.terms.keeps_lost_connections
                    && !history.is_calm(one.process, sight.at, until);
                // A count that its master wrote last was lost with it.
                let lost = history.moved(key).any(|moved| {
                    let then = moved.at <= until && sight.at <= moved.until + history.recovery();
                    moved.lost.is_some() && then
                });
                let least = grants().map(|grant| least(grant, sight.at, until));
                let least = least.max().unwrap_or_default();
                let called = |grant: &Grant| {
                    let again = grant.again.iter();
                    1 + again.filter(|again| again.called <= until).count()
                };
                let most = grants().map(called).max().unwrap_or_default();
                let count = *count as usize;
                let mut excused = || {
                    verdict.excuses("count: late", late)
                        || verdict.excuses("count: failed over", lost)
                };
                if count > most || count < least && !excused() {
                    let what = format!(
                        "{key}: Redis counts {count} for {owner} until {until} ms, and it had \
                         {least} to {most} guards"
                    );
                    verdict.push(Violation::new(RULE, sight.at, what));
                }
            }
        }
    }
}

/// How many guards were held at some moment of that time.
fn least(grant: &Grant, from: Ms, until: Ms) -> usize {
    let last = grant
        .ended
        .map_or(grant.believed, |(at, _)| at.min(grant.believed));
    // Of guards that were had at the beginning, or came since.
    let moments = grant.again.iter().filter_map(|again| again.at);
    let moments = moments
        .chain([from])
        .filter(|at| from <= *at && *at < until && *at < last);
    let held = |moment: Ms| {
        let again = grant.again.iter().filter(|again| {
            again.at.is_some_and(|at| at <= moment) && again.ended.is_none_or(|at| moment < at)
        });
        1 + again.count()
    };
    moments.map(held).max().unwrap_or(0)
}
