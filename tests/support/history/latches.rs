//! A latch opens when it was counted down as often as it says, each call counts once, and what is
//! open stays open.
//!
//! Each latch is given its count once.

use super::{History, LatchAct, LatchCall, Ms, Verdict, Violation};

const RULE: &str = "latch";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for (key, calls) in history.latch_calls(|_| true) {
        // Redisson counts once more when it repeats a call.
        let repeats = calls
            .iter()
            .any(|call| history.is_foreign(call.process) && history.was_struck(call.process));
        // What Redis forgot is counted by nobody.
        let lost = history.moved(key).filter_map(|moved| moved.lost).min();
        let forgotten = history.wiped(key).map(|wiped| wiped.at).min();
        let mut found = Verdict::default();
        latch(key, &calls, &mut found);
        for broken in found.broken {
            let before = |at: Option<Ms>| at.is_some_and(|at| at <= broken.at);
            let excused = verdict.excuses("latch: forgotten", before(forgotten))
                || verdict.excuses("latch: failed over", before(lost))
                || verdict.excuses("latch: repeated by another kind", repeats);
            if !excused {
                verdict.push(broken);
            }
        }
    }
}

fn latch(key: &str, calls: &[&LatchCall], verdict: &mut Verdict) {
    let set = calls.iter().find_map(|call| match call.act {
        LatchAct::Set(count) => call.returned.map(|(at, _)| (at, count)),
        _ => None,
    });
    let Some((set_at, count)) = set else { return };
    let downs: Vec<&&LatchCall> = calls
        .iter()
        .filter(|call| call.act == LatchAct::CountDown)
        .collect();
    // How often it may have been counted down by then, and how often it was at least.
    let at_most = |moment| {
        let begun = downs.iter().filter(|call| call.called < moment);
        begun.count() as u64
    };
    let at_least = |moment| {
        let done = downs.iter().filter(|call| {
            call.called > set_at && call.returned.is_some_and(|(at, _)| at < moment)
        });
        done.count() as u64
    };
    for call in calls {
        let Some((at, seen)) = call.returned else {
            continue;
        };
        let left = count.saturating_sub(at_most(at));
        let mut tell =
            |what: String| verdict.push(Violation::new(RULE, at, format!("{key}: {what}")));
        match call.act {
            LatchAct::Wait if call.called > set_at && left > 0 => {
                tell(format!("opened while {left} of {count} were left at least"));
            }
            LatchAct::CountDown | LatchAct::Look if call.called > set_at => {
                // Its own count is one of them.
                let own = u64::from(call.act == LatchAct::CountDown);
                let most = count.saturating_sub(at_least(call.called) + own);
                if seen < left || seen > most {
                    tell(format!(
                        "{seen} were left, and should have been {left} to {most}"
                    ));
                }
            }
            _ => {}
        }
    }
    // Each call that counted returned another number.
    let mut numbers: Vec<(u64, u64)> = downs
        .iter()
        .filter_map(|call| call.returned)
        .filter(|(_, left)| *left > 0)
        .map(|(at, left)| (left, at))
        .collect();
    numbers.sort_unstable();
    for pair in numbers.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let what = format!("{key}: two calls left {} of {count}", pair[0].0);
        verdict.push(Violation::new(RULE, pair[1].1, what));
    }
}
