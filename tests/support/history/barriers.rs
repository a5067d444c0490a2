//! Nobody passes a generation of a barrier before all its parties have arrived, and nobody waits on after a
//! party has died.

use super::{History, LatchAct, LatchCall, Ms, Verdict, Violation};

const RULE: &str = "barrier";
/// Messages to connect, to arrive and to subscribe.
const WAYS: Ms = 24;
const SLACK: Ms = 10;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let is_arrival = |act| matches!(act, LatchAct::Arrive { .. });
    for (key, calls) in history.latch_calls(is_arrival) {
        let mut found = Verdict::default();
        for call in &calls {
            passed(history, &calls, call, &mut found);
            died(history, &calls, call, &mut found);
        }
        let moved = history.moved(key).map(|moved| moved.from);
        let forgotten = history.wiped(key).map(|wiped| wiped.at).chain(moved).min();
        for broken in found.broken {
            let before = forgotten.is_some_and(|at| at <= broken.at);
            if !verdict.excuses("barrier: forgotten", before) {
                verdict.push(broken);
            }
        }
    }
}

/// As many as it needs had come, and those that did not pass had not long been gone.
fn passed(history: &History, calls: &[&LatchCall], call: &LatchCall, verdict: &mut Verdict) {
    let (Some((at, generation)), LatchAct::Arrive { parties, lease }) = (call.returned, call.act)
    else {
        return;
    };
    let of_it = |call: &LatchCall| {
        call.returned
            .is_some_and(|(_, number)| number == generation)
    };
    let kept = history.terms.slow(lease) + history.recovery();
    let may_be = |call: &LatchCall| {
        let there = call.over.is_none_or(|over| over + kept >= at);
        // Who hears too late that it was counted comes again, and passes a later one.
        let later = call.returned.is_none_or(|(_, number)| number > generation);
        call.called < at && (of_it(call) || (later && there))
    };
    let most = calls.iter().filter(|call| may_be(call)).count() as u64;
    // What was forgotten since begins anew.
    let by_then = |call: &&&LatchCall| of_it(call) && call.returned.is_some_and(|(by, _)| by <= at);
    let passed = calls.iter().filter(by_then).count() as u64;
    if most < parties || passed > parties {
        let what = format!(
            "{}: {generation} was passed by {passed} of {parties}, of whom {most} had come",
            call.key
        );
        verdict.push(Violation::new(RULE, at, what));
    }
}

/// A party has died while it waited, and nothing else went wrong: whoever waited with it is told.
fn died(history: &History, calls: &[&LatchCall], dead: &LatchCall, verdict: &mut Verdict) {
    let LatchAct::Arrive { lease, .. } = dead.act else {
        return;
    };
    let crash = |(process, at): &&(u32, Ms)| *process == dead.process && dead.over == Some(*at);
    let Some((_, at)) = history.crashed.iter().find(crash) else {
        return;
    };
    let terms = &history.terms;
    let told = at + terms.slow(lease) + terms.poll + WAYS * terms.latency + SLACK;
    let other = history.strikes.iter().any(|strike| {
        let own = strike.process == Some(dead.process) && strike.from >= *at;
        !own && strike.from <= told && dead.called <= strike.until + history.recovery()
    });
    if other || dead.called + WAYS * terms.latency > *at {
        return;
    }
    for call in calls {
        let since = call.called.max(dead.called);
        let went_on = |other: &&LatchCall| {
            let passed = other.returned.is_some_and(|(at, _)| at >= since);
            passed && other.called <= told
        };
        let with_it = call.called + WAYS * terms.latency < *at;
        let waits = call.over.unwrap_or(history.end) > told;
        if with_it && waits && !calls.iter().any(went_on) {
            let what = format!("{}: still waited for one that died at {at} ms", call.key);
            verdict.push(Violation::new(RULE, told, what));
        }
    }
}
