//! Fair locks are had in the order in which Redis queued those who wait.
//!
//! Who is not heard any more loses its place, so this is asked only of waiters whose process no
//! fault struck while they were queued.

use super::{History, Sight, Verdict, Violation};

const RULE: &str = "fifo";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.seen_keys() {
        let sights: Vec<&Sight> = history
            .states(key)
            .into_iter()
            .map(|(sight, _)| sight)
            .collect();
        for pair in sights.windows(2) {
            overtaken(history, key, &sights, pair[0], pair[1], verdict);
        }
    }
}

fn overtaken(
    history: &History,
    key: &str,
    sights: &[&Sight],
    before: &Sight,
    after: &Sight,
    verdict: &mut Verdict,
) {
    let holder = |sight: &Sight| sight.holders.first().map(|(owner, _)| owner.clone());
    let Some(holder) = holder(after).filter(|_| holder(after) != holder(before)) else {
        return;
    };
    // Who was not queued, and came past all that are, overtook them too.
    let place = before.queue.iter().position(|owner| *owner == holder);
    let ahead = &before.queue[..place.unwrap_or(before.queue.len())];
    for owner in ahead.iter().filter(|owner| after.queue.contains(owner)) {
        let Some(process) = history.process_of(owner) else {
            continue;
        };
        let queued = sights.iter().find(|sight| sight.queue.contains(owner));
        let since = queued.map_or(before.at, |sight| sight.at);
        let struck = !history.is_calm(process, since, after.at);
        let mut wiped = history.wiped(key);
        let forgotten = wiped.any(|wiped| wiped.until >= since && wiped.at <= after.at);
        if !verdict.excuses("fifo: struck", struck)
            && !verdict.excuses("fifo: forgotten", forgotten)
        {
            let what = format!("{key}: {holder} had it before {owner}, queued since {since} ms");
            verdict.push(Violation::new(RULE, after.at, what));
        }
    }
}
