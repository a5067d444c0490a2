//! Log lines about lost locks; see `docs/observability.md`.

use std::time::Instant;

use crate::engine::hold::LostReason;
use crate::limit::Limit;
use crate::shim::{Mutex, lock};

const TARGET: &str = "redlock_rt::lock";
/// The largest number of lock names in one line.
const MOST_NAMES: usize = 10;

/// The losses of a client. The first is logged at once; the losses of the following second share
/// one line.
#[derive(Debug, Default)]
pub(in crate::engine) struct Losses {
    tally: Mutex<UnloggedLosses>,
}

/// Pure state.
#[derive(Debug, Default)]
struct UnloggedLosses {
    limit: Limit,
    /// The names of the losses that are not logged yet.
    names: Vec<Box<str>>,
}

/// Losses that were not logged one by one.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    count: u64,
    names: Vec<Box<str>>,
}

impl UnloggedLosses {
    /// Returns whether to log the loss separately: no loss is logged before earlier ones.
    fn add(&mut self, name: &str, now: Instant) -> bool {
        if self.limit.left_out > 0 {
            self.limit.left_out += 1;
        } else if self.limit.pass(now).is_some() {
            return true;
        }
        if self.names.len() < MOST_NAMES {
            self.names.push(name.into());
        }
        false
    }

    /// The summary to log, if it is time.
    fn due(&mut self, now: Instant) -> Option<Summary> {
        if self.limit.left_out == 0 || !self.limit.is_open(now) {
            return None;
        }
        let count = self.limit.pass(now)?;
        Some(self.summary(count))
    }

    /// The rest, at the end.
    fn take(&mut self) -> Summary {
        let count = std::mem::take(&mut self.limit).left_out;
        self.summary(count)
    }

    fn summary(&mut self, count: u64) -> Summary {
        let names = std::mem::take(&mut self.names);
        Summary { count, names }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.limit.next.filter(|_| self.limit.left_out > 0)
    }
}

impl Losses {
    /// Returns whether to wake the watchdog's task, which logs the loss later.
    #[must_use]
    pub(super) fn add(&self, name: &str, reason: LostReason, now: Instant) -> bool {
        let told = lock(&self.tally).add(name, now);
        if told {
            tracing::warn!(target: TARGET, lock = name, %reason, "lock lost");
        }
        !told
    }

    /// When [`tell`](Self::tell) has something to log.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        lock(&self.tally).wake_at()
    }

    pub(super) fn tell(&self, now: Instant) {
        let summary = lock(&self.tally).due(now);
        summary.iter().for_each(Summary::write);
    }

    /// Logs the rest, at the end of the client.
    pub(in crate::engine) fn end(&self) {
        let summary = lock(&self.tally).take();
        if summary.count > 0 {
            summary.write();
        }
    }
}

impl Summary {
    fn write(&self) {
        let (count, locks) = (self.count, &self.names);
        tracing::warn!(target: TARGET, count, ?locks, "more locks lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::SPACING;

    #[test]
    fn the_first_is_told_by_itself_and_the_others_together() {
        let start = Instant::now();
        let mut tally = UnloggedLosses::default();
        assert!(tally.add("a", start));
        assert_eq!((tally.wake_at(), tally.due(start)), (None, None));
        for lock in 0..25 {
            assert!(!tally.add(&format!("n:{lock}"), start + SPACING / 2));
        }
        assert_eq!(tally.wake_at(), Some(start + SPACING));
        assert_eq!(tally.due(start + SPACING / 2), None);
        let summary = tally.due(start + SPACING).unwrap();
        assert_eq!((summary.count, summary.names.len()), (25, MOST_NAMES));
        assert_eq!(tally.due(start + 2 * SPACING), None);
        assert!(tally.add("b", start + 2 * SPACING));
    }

    #[test]
    fn nothing_overtakes_what_is_still_to_be_told() {
        let start = Instant::now();
        let mut tally = UnloggedLosses::default();
        assert!(tally.add("a", start) && !tally.add("b", start));
        assert!(!tally.add("c", start + 2 * SPACING));
        assert_eq!(tally.due(start + 2 * SPACING).unwrap().count, 2);
    }
}
