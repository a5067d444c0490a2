//! Fencing tokens grow in the order of the holds.

use std::collections::HashMap;

use super::{Grant, History, Ms, Verdict, Violation, Wiped};

const RULE: &str = "tokens";

/// Whether Redis forgot the last token between two holds, and its clock may be behind that token.
///
/// `asked`: when the earlier one was asked for, since Redis gave it out before the reply came.
fn is_forgotten(history: &History, key: &str, asked: Ms, later: &Grant) -> bool {
    let between = |wiped: &Wiped| asked <= wiped.until && wiped.at <= later.at;
    // Redisson then counts from one.
    let may_fall = history.terms.sets_clock_back || is_foreign(history, later);
    may_fall && history.wiped(key).any(between)
}

fn is_foreign(history: &History, grant: &Grant) -> bool {
    let process = history.process_of(&grant.owner);
    process.is_some_and(|process| history.is_foreign(process))
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.keys() {
        let mut holds: Vec<(u64, u64, &Grant)> = history
            .of_key(key)
            .into_iter()
            .filter_map(|of| {
                let grant = of.grant.as_ref()?;
                Some((grant.token?, of.called, grant))
            })
            .collect();
        // One that was handed over has a token of the call with which its chain began. After a loss that the
        // chain has not noticed yet, others may have greater ones.
        let mut began: HashMap<&str, Ms> = HashMap::new();
        for (_, called, grant) in &holds {
            let first = began.entry(&grant.owner).or_insert(*called);
            *first = (*first).min(*called);
        }
        for (_, called, grant) in &mut holds {
            *called = began[&*grant.owner];
        }
        holds.sort_by_key(|(token, called, _)| (*token, *called));
        for pair in holds.windows(2) {
            let [(first, asked, one), (second, _, other)] = pair else {
                continue;
            };
            // Two servers that answered at one address at the same time may give out the same.
            let moment = one.at.min(other.at);
            let two = history.wiped(key).any(|wiped| {
                wiped.at < wiped.until && wiped.at <= other.at.max(one.at) && moment <= wiped.until
            });
            let recounted = is_foreign(history, one)
                && is_foreign(history, other)
                && history.wiped(key).next().is_some();
            // The clock was set back by as much as has passed since.
            let forgotten = is_forgotten(history, key, *asked, other);
            let excused = two || recounted || forgotten;
            if first == second && !verdict.excuses("tokens: forgotten", excused) {
                let what = format!(
                    "{key}: {} and {} have token {first}",
                    one.owner, other.owner
                );
                verdict.push(Violation::new(RULE, other.at, what));
            }
        }
        // Who called after another had its token has a greater one. In order of tokens, nobody may
        // have called after the end of a call that comes behind.
        let mut latest: Option<(u64, u64, &Grant)> = None;
        for &(token, called, grant) in &holds {
            if let Some((before, asked, other)) = latest
                && asked > grant.at
                && before < token
                && !verdict.excuses(
                    "tokens: forgotten",
                    is_forgotten(history, key, called, other),
                )
            {
                let what = format!(
                    "{key}: {} asked at {asked} ms and has token {before}, {} had {token} at {} ms",
                    other.owner, grant.owner, grant.at
                );
                verdict.push(Violation::new(RULE, other.at, what));
            }
            if latest.is_none_or(|(_, asked, _)| called > asked) {
                latest = Some((token, called, grant));
            }
        }
    }
}
