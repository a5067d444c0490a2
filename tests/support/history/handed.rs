//! Tasks of one process hand a lock over to each other for a limited time, so that others get
//! their turn.
//!
//! For Redis all of that is one hold, so it has one owner. Redisson does not do that.

use std::collections::BTreeMap;

use super::{Acquisition, Grant, History, Mode, Ms, Verdict, Violation};

const RULE: &str = "handed";
/// What timers and the order of tasks may add.
const SLACK: Ms = 5;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    // Several locks as one are not looked at: each of them is handed over by itself.
    for key in history.seen_keys() {
        let mut chains: BTreeMap<&str, Vec<(&Acquisition, &Grant)>> = BTreeMap::new();
        for one in history.of_key(key) {
            // A conversion goes on under the same owner, in another mode.
            let Some(grant) = one.grant.as_ref().filter(|_| one.mode == Mode::Exclusive) else {
                continue;
            };
            if !history.is_foreign(one.process) {
                chains.entry(&grant.owner).or_default().push((one, grant));
            }
        }
        for mut chain in chains.into_values() {
            chain.sort_by_key(|(_, grant)| grant.at);
            let mut chain = chain.into_iter();
            let Some(first) = chain.next() else { continue };
            for next in chain {
                judge(history, key, first, next, verdict);
            }
        }
    }
}

fn judge(
    history: &History,
    key: &str,
    (of, first): (&Acquisition, &Grant),
    (then, next): (&Acquisition, &Grant),
    verdict: &mut Verdict,
) {
    let process = of.process;
    let limits = history.hand_over.iter();
    let limits = limits.filter(|(of, _)| *of == process);
    let limit = limits.map(|(_, limit)| *limit).max().unwrap_or(0);
    // Who asks for replicas has the lock, and then waits for them.
    let rest = then.ack.map_or(0, |_| history.terms.replicas);
    let last = first.at + history.terms.slow(limit + rest) + SLACK;
    let stood = history.stood_until(process, of.called, next.at);
    if next.at > last && !verdict.excuses("handed: stood still", stood.is_some()) {
        let what = format!(
            "{key}: {} was had at {} ms, handed over until {last} ms, and once more at {} ms",
            first.owner, first.at, next.at
        );
        verdict.push(Violation::new(RULE, next.at, what));
    }
}
