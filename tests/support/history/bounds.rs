//! Every bounded wait, and every call that waits for nobody, ends within its bound.

use super::majorities::ROUND;
use super::{History, Mode, Ms, Violation};

const RULE: &str = "bound";
/// What timers and the order of tasks may add.
const SLACK: Ms = 5;

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
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
                    (2 * history.terms.response + history.terms.replicas, 0)
                }
                (0, _) => (history.terms.response, 0),
                (bound, _) => (bound, 0),
            };
            let times = (one.called, bound, at);
            late(history, &one.key, one.process, times, rest, broken);
        }
    }
    for call in &history.calls {
        if let Some(at) = call.returned {
            let times = (call.called, call.bound, at);
            late(history, &call.what, call.process, times, 0, broken);
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
    broken: &mut Vec<Violation>,
) {
    let due = called + history.terms.slow(bound);
    // Who stood still when it was due returns when it goes on.
    let due = history
        .stood_until(process, called, due)
        .map_or(due, |until| due.max(until + history.terms.slow(rest)));
    if at > due + SLACK {
        let what = format!(
            "{what}: process {process} called at {called} ms, was to wait for {bound} ms, and \
             returned at {at} ms"
        );
        broken.push(Violation::new(RULE, at, what));
    }
}
