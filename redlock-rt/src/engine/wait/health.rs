//! Whether Redis answers a waiter's tries.

use std::time::{Duration, Instant};

/// Whether Redis answers the head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Answering,
    /// A call is under way since then.
    Asking(Instant),
    /// The last call did not reach Redis.
    Failing,
    /// The head has something to do, was woken, and is not polled.
    Unpolled,
}

impl Health {
    /// After a call that failed, another is no better before it is answered.
    pub(super) fn follow(&mut self, health: Self) {
        if !matches!((*self, health), (Self::Failing, Self::Asking(_))) {
            *self = health;
        }
    }

    /// Whether Redis does not answer the head, as far as a waiter can know that has waited since
    /// `started`; an answer takes `longest` at most.
    pub(crate) fn is_silent(self, started: Instant, longest: Duration, now: Instant) -> bool {
        match self {
            Self::Answering | Self::Unpolled => false,
            Self::Failing => true,
            // The head, or the waiter itself, has asked, and for half of the time that either of
            // them had there is no answer. A try that the end of the wait cut short says nothing.
            Self::Asking(since) => {
                let longest = now.saturating_duration_since(started).min(longest);
                now.saturating_duration_since(since) >= longest / 2
            }
        }
    }
}
