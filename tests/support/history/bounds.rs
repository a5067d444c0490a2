//! Every bounded wait, and every call that waits for nobody, ends within its bound.

use super::{History, Ms, Violation};

const RULE: &str = "bound";
/// What timers and the order of tasks may add.
const SLACK: Ms = 5;

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    let ours = history.acquisitions.iter();
    for one in ours.filter(|one| !history.is_foreign(one.process)) {
        let returned = one.returned.as_ref().map(|(at, _)| *at);
        if let (Some(bound), Some(at)) = (one.bound, returned) {
            // A wait of zero asks once.
            let bound = if bound == 0 {
                history.terms.response
            } else {
                bound
            };
            late(
                history,
                &one.key,
                one.process,
                (one.called, bound, at),
                broken,
            );
        }
    }
    for call in &history.calls {
        if let Some(at) = call.returned {
            late(
                history,
                &call.what,
                call.process,
                (call.called, call.bound, at),
                broken,
            );
        }
    }
}

fn late(
    history: &History,
    what: &str,
    process: u32,
    (called, bound, at): (Ms, Ms, Ms),
    broken: &mut Vec<Violation>,
) {
    let due = called + history.terms.slow(bound);
    // Who stood still when it was due returns when it goes on.
    let due = history
        .stood_until(process, called, due)
        .map_or(due, |until| until.max(due));
    if at > due + SLACK {
        let what = format!(
            "{what}: process {process} called at {called} ms, was to wait for {bound} ms, and \
             returned at {at} ms"
        );
        broken.push(Violation::new(RULE, at, what));
    }
}
