//! Every bounded wait, and every call that waits for nobody, ends within its bound.

use super::majorities::ROUND;
use super::{History, Mode, Ms, Verdict, Violation};

const RULE: &str = "bound";
/// What timers and the order of tasks may add.
const SLACK: Ms = 5;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let ours = history.acquisitions.iter();
    for one in ours.filter(|one| !history.is_foreign(one.process)) {
        let returned = one.returned.as_ref().map(|(at, _)| *at);
        if let (Some(bound), Some(at)) = (one.bound, returned) {
            let server = history.terms.server;
            // A wait of zero asks once. Of a lock on several servers it gives back what it had then.
            let (bound, rest) = match (bound, one.mode) {
                (0, Mode::Majority(_)) => (ROUND * server, server),
                // Then replicas are waited for, and what they have not got is given back.
                (0, _) if one.ack.is_some() => {
                    let after = history.terms.response + history.terms.replicas;
                    (history.terms.response + after, after)
                }
                (0, _) => (history.terms.response, 0),
                (bound, _) => (bound, 0),
            };
            let times = (one.called, bound, at);
            late(history, &one.key, one.process, times, rest, verdict);
        }
    }
    for call in &history.calls {
        if let Some(at) = call.returned {
            let times = (call.called, call.bound, at);
            late(history, &call.what, call.process, times, call.rest, verdict);
        }
    }
}

/// `rest`: how long a process that stood still may need when it goes on.
fn late(
    history: &History,
    what: &str,
    process: u32,
    (called, bound, at): (Ms, Ms, Ms),
    rest: Ms,
    verdict: &mut Verdict,
) {
    let due = called + history.terms.slow(bound);
    if at <= due + SLACK {
        return;
    }
    // Who stood still when it was due returns when it goes on.
    let goes_on = history.stood_until(process, called, due);
    let still = goes_on.is_some_and(|until| at <= until + history.terms.slow(rest) + SLACK);
    if !verdict.excuses("bound: stood still", still) {
        let what = format!(
            "{what}: process {process} called at {called} ms, was to wait for {bound} ms, and \
             returned at {at} ms"
        );
        verdict.push(Violation::new(RULE, at, what));
    }
}
