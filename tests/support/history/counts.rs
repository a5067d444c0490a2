//! Redis counts the guards of a hold: no fewer than are held, and no more than were asked for.

use super::{Acquisition, Grant, History, Ms, Violation};

const RULE: &str = "count";

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    for key in history.seen_keys() {
        let all = history.of_key(key);
        for (sight, until) in history.states(key) {
            for (owner, count) in &sight.holders {
                let of = |one: &&&Acquisition| {
                    one.grant
                        .as_ref()
                        .is_some_and(|grant| grant.owner == *owner)
                };
                let Some(one) = all.iter().find(of) else {
                    continue;
                };
                let Some(grant) = &one.grant else { continue };
                // An acquisition that runs once more, late, counts from one again.
                let late = history.terms.keeps_lost_connections
                    && !history.is_calm(one.process, sight.at, until);
                let least = if late {
                    0
                } else {
                    least(grant, sight.at, until)
                };
                let most = 1 + grant
                    .again
                    .iter()
                    .filter(|again| again.called <= until)
                    .count();
                let count = *count as usize;
                if count < least || count > most {
                    let what = format!(
                        "{key}: Redis counts {count} for {owner} until {until} ms, and it had \
                         {least} to {most} guards"
                    );
                    broken.push(Violation::new(RULE, sight.at, what));
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
