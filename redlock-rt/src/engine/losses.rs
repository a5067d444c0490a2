//! What the log says of locks that were lost; see `docs/observability.md`.

use std::time::Instant;

use super::lease::LostReason;
use crate::limit::SPACING;
use crate::shim::{Mutex, lock};

const TARGET: &str = "redlock_rt::lock";
/// As many names of locks stand in one line.
const MOST_NAMES: usize = 10;

/// The losses of a client. The first is told at once; those of the second after it are one line.
#[derive(Debug)]
pub(super) struct Losses {
    tally: Mutex<Tally>,
}

/// Pure.
#[derive(Debug, Default)]
struct Tally {
    next: Option<Instant>,
    count: u64,
    names: Vec<Box<str>>,
}

/// Losses that were not told one by one.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    count: u64,
    names: Vec<Box<str>>,
}

impl Tally {
    /// Answers whether it is to be told by itself.
    fn add(&mut self, name: &str, now: Instant) -> bool {
        if self.next.is_none_or(|next| next <= now) && self.count == 0 {
            self.next = now.checked_add(SPACING);
            return true;
        }
        self.count += 1;
        if self.names.len() < MOST_NAMES {
            self.names.push(name.into());
        }
        false
    }

    /// What is to be told of them together, where it is time.
    fn due(&mut self, now: Instant) -> Option<Summary> {
        if self.count == 0 || self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = now.checked_add(SPACING);
        Some(self.take())
    }

    fn take(&mut self) -> Summary {
        Summary {
            count: std::mem::take(&mut self.count),
            names: std::mem::take(&mut self.names),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.next.filter(|_| self.count > 0)
    }
}

impl Losses {
    pub(super) fn new() -> Self {
        Self {
            tally: Mutex::new(Tally::default()),
        }
    }

    /// Answers whether the task of the watchdog is to be woken, to tell of it later.
    #[must_use]
    pub(super) fn add(&self, name: &str, reason: LostReason, now: Instant) -> bool {
        let told = lock(&self.tally).add(name, now);
        if told {
            tracing::warn!(target: TARGET, lock = name, %reason, "lock lost");
        }
        !told
    }

    /// When [`tell`](Self::tell) has something to tell.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        lock(&self.tally).wake_at()
    }

    pub(super) fn tell(&self, now: Instant) {
        let summary = lock(&self.tally).due(now);
        summary.iter().for_each(Summary::write);
    }

    /// Tells what is left, at the end of the client.
    pub(super) fn end(&self) {
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

    #[test]
    fn the_first_is_told_by_itself_and_the_others_together() {
        let start = Instant::now();
        let mut tally = Tally::default();
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
        let mut tally = Tally::default();
        assert!(tally.add("a", start) && !tally.add("b", start));
        assert!(!tally.add("c", start + 2 * SPACING));
        assert_eq!(tally.due(start + 2 * SPACING).unwrap().count, 2);
    }
}
