//! Every bounded wait ends within its bound.

use super::{History, Violation};

const RULE: &str = "bound";
/// What timers and the order of tasks may add.
const SLACK: u64 = 5;

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    for one in &history.acquisitions {
        let Some(bound) = one.bound else { continue };
        let by = one.called + bound + bound * history.terms.skew_percent / 100 + SLACK;
        let returned = one.returned.as_ref().map(|(at, _)| *at);
        // Of a process that ended nobody knows when it would have returned.
        let Some(at) = returned else { continue };
        if at > by && !history.stood_still(one.process, one.called, at) {
            let what = format!(
                "{}: process {} called at {} ms, was to wait for {bound} ms, and returned at {at} ms",
                one.key, one.process, one.called
            );
            broken.push(Violation::new(RULE, at, what));
        }
    }
}
