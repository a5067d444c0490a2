//! A guard says that it is lost only where Redis forgot the hold, its lease was over, its client was
//! shut down, or a fault kept its process from renewing it.

use super::{Grant, History, Mode, Ms, Violation};

const RULE: &str = "loss";
/// A lease of fewer round trips than these may end before its renewal is answered.
const SHORT: Ms = 8;
/// The margin of a lease: one in a hundred, and this.
const MARGIN: Ms = 3;

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    for one in &history.acquisitions {
        // Has a rule of its own.
        if matches!(one.mode, Mode::Majority(_)) {
            continue;
        }
        let Some(grant) = &one.grant else { continue };
        let (Some(lost), Some(lease)) = (grant.lost, grant.lease) else {
            continue;
        };
        let forgotten = history
            .wiped(&one.key)
            .any(|wiped| one.called <= wiped.until && wiped.at <= lost);
        // What Redis forgot is no excuse for other keys.
        let mut struck = history.struck(one.process, one.called, lost);
        let kept = struck.all(|strike| strike.only_wipes)
            && history.stood_until(one.process, one.called, lost).is_none();
        let ended = |(process, at): &(u32, Ms)| *process == one.process && *at <= lost;
        if history.shut_down.iter().any(ended) {
            continue;
        }
        if !forgotten && kept && is_early(history, grant, one.called, lost, lease) {
            let what = format!(
                "{}: {} (process {}) had it from {} ms, with a lease of {lease} ms, and lost it",
                one.key, grant.owner, one.process, grant.at
            );
            broken.push(Violation::new(RULE, lost, what));
        }
    }
}

/// Whether the lease cannot have been over.
pub(super) fn is_early(history: &History, grant: &Grant, called: Ms, lost: Ms, lease: Ms) -> bool {
    let short = lease < SHORT * 2 * history.terms.latency;
    if grant.renewed && !short {
        return true;
    }
    let least = lease - lease / 100 - history.terms.drift(lease);
    lost + MARGIN < called + least
}
