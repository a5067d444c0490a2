//! A rate limit for one log line.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::shim::lock_std;

/// The interval between two lines of a kind; lines in between are counted.
pub(crate) const SPACING: Duration = Duration::from_secs(1);

/// Pure state, one for each kind of line.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    pub(crate) next: Option<Instant>,
    pub(crate) left_out: u64,
}

impl Limit {
    pub(crate) const fn new() -> Self {
        Self {
            next: None,
            left_out: 0,
        }
    }

    /// Returns how many lines were left out before this one, if it may be written.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        if !self.is_open(now) {
            self.left_out += 1;
            return None;
        }
        self.next = now.checked_add(SPACING);
        Some(std::mem::take(&mut self.left_out))
    }

    /// Whether the next line may be written.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }
}

/// A [`Limit`] that threads share. It uses the clock of the process, so it also works where a
/// runtime has paused its own.
#[derive(Debug)]
pub(crate) struct SharedLimit(Mutex<Limit>);

impl SharedLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Limit::new()))
    }

    /// How many lines were left out before this one; `None` if this one is left out.
    pub(crate) fn pass(&self) -> Option<u64> {
        let mut limit = lock_std(&self.0);
        limit.pass(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_number_of_the_others() {
        let start = Instant::now();
        let mut limit = Limit::default();
        assert_eq!(limit.pass(start), Some(0));
        for _ in 0..7 {
            assert_eq!(limit.pass(start + SPACING / 2), None);
        }
        assert_eq!(limit.pass(start + SPACING), Some(7));
        assert_eq!(limit.pass(start + SPACING), None);
        assert_eq!(limit.pass(start + 9 * SPACING), Some(1));
    }
}
