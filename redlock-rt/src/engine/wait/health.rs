//! Whether Redis answers a waiter's tries.

use std::time::{Duration, Instant};

/// Whether Redis answers the head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Answering,
    /// A call is in progress since then.
    Asking(Instant),
    /// The last call did not reach Redis.
    Failing,
    /// The head was woken for a task, and is not polled.
    Unpolled,
}

impl Health {
    /// After a call that failed, another call in progress is no better before it is answered.
    pub(super) fn follow(&mut self, health: Self) {
        if !matches!((*self, health), (Self::Failing, Self::Asking(_))) {
            *self = health;
        }
    }

    /// Whether Redis does not answer the head, as far as a waiter can know that has waited since
    /// `started`. An answer takes at most `longest`.
    pub(crate) fn is_silent(self, started: Instant, longest: Duration, now: Instant) -> bool {
        match self {
            Self::Answering | Self::Unpolled => false,
            Self::Failing => true,
            // The head or the waiter has asked, and had no answer for half of the time of either. A
            // try that the end of the wait cut short says nothing.
            Self::Asking(since) => {
                let longest = now.saturating_duration_since(started).min(longest);
                now.saturating_duration_since(since) >= longest / 2
            }
        }
    }
}
