//! A leader that has resigned lets one win who campaigns.

use super::serving::SETUP;
use super::{Acquisition, History, Ms, Verdict, Violation};

const RULE: &str = "leader";
const SLACK: Ms = 10;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for (resigned, next) in &history.resigned {
        let (one, next) = (
            &history.acquisitions[*resigned],
            &history.acquisitions[*next],
        );
        let ended = one.grant.as_ref().and_then(|grant| grant.ended);
        let (Some((ended, _)), Some(grant)) = (ended, &next.grant) else {
            continue;
        };
        let terms = &history.terms;
        let (at, aside) = (grant.at, terms.poll);
        if at + terms.drift(aside) >= ended + aside {
            continue;
        }
        let over = |other: &Acquisition| match (&other.grant, &other.returned) {
            (Some(grant), _) => grant.at,
            (None, returned) => returned.as_ref().map_or(history.end, |(at, _)| *at),
        };
        // Has been heard of, and goes on to wait.
        let waits = |other: &Acquisition| {
            let heard = other.called + SETUP * terms.latency + SLACK < ended;
            heard && over(other) > at && other.process != one.process
        };
        let calm = |other: &Acquisition| {
            let stood = history.stood_until(other.process, other.called, at);
            stood.is_none() && history.is_calm(other.process, other.called, at)
        };
        let mut others = history.of_key(&one.key);
        others.retain(|other| {
            over(other) > ended && other.called < at && !std::ptr::eq(*other, next)
        });
        let waiter = others.iter().find(|other| waits(other));
        // Who came to nothing meanwhile may have won.
        let won = others.iter().any(|other| over(other) <= at);
        let Some(waiter) = waiter.filter(|_| !won) else {
            continue;
        };
        let struck = !calm(one) || !calm(waiter);
        if !verdict.excuses("leader: struck", struck) {
            let what = format!(
                "{}: process {} resigned at {ended} ms and won at {at} ms, while process {} waited",
                one.key, one.process, waiter.process
            );
            verdict.push(Violation::new(RULE, at, what));
        }
    }
}
