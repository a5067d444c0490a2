//! When a polling waiter tries again.
//!
//! All kinds share the local queue: its head polls for all tasks of the process, and a release by the same
//! client hands the lock to the next task without a pause. Retries that become due behind other tasks of
//! the process, or behind a hold of the same client, are counted but not sent, because the head has just
//! been refused.

use std::fmt;
use std::time::{Duration, Instant};

use crate::clock::after;

/// The pauses between the tries of a [`SpinLock`](crate::SpinLock).
///
/// A pause is between 1 ms and one day long. The default is exponential from 1 ms to 128 ms with jitter, as
/// in Redisson's spin lock, with no limit of tries except the wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_rt::Backoff;
///
/// let ms = Duration::from_millis;
/// let _ = Backoff::constant(ms(50)).max_retries(20);
/// let _ = Backoff::exponential(ms(2), ms(200)).jitter(0.2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    doubles: bool,
    jitter: f64,
    max_retries: Option<u32>,
}

impl Backoff {
    /// Returns a back-off that pauses for `interval` after every try, without jitter.
    #[must_use]
    pub const fn constant(interval: Duration) -> Self {
        Self {
            first: interval,
            longest: interval,
            doubles: false,
            jitter: 0.0,
            max_retries: None,
        }
    }

    /// Returns a back-off that pauses for `first`, then twice as long after every try, up to
    /// `longest`, with full jitter ([`jitter`](Self::jitter) of 1).
    #[must_use]
    pub const fn exponential(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            doubles: true,
            jitter: 1.0,
            max_retries: None,
        }
    }

    /// Sets the jitter: a pause is lengthened at random by at most this part of itself, so that
    /// waiters that began together spread out. The value is limited to 0 to 1.
    #[must_use]
    pub const fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = if jitter > 1.0 {
            1.0
        } else if jitter > 0.0 {
            jitter
        } else {
            0.0
        };
        self
    }

    /// Sets the number of tries after the first one. By default only the wait limits them.
    #[must_use]
    pub const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Why the back-off is invalid.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        const SHORTEST: Duration = Duration::from_millis(1);
        // Sums of pauses must fit a `Duration` too.
        const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
        if self.first < SHORTEST {
            Some("the back-off is shorter than a millisecond")
        } else if self.longest < self.first {
            Some("the longest back-off is shorter than the first")
        } else if self.longest > LONGEST {
            Some("the back-off is longer than a day")
        } else {
            None
        }
    }

    /// The pause before retry `number` (from 0), without jitter; `None`: there is no such retry.
    fn pause(&self, number: u32) -> Option<Duration> {
        if self.left(number) == 0 {
            return None;
        }
        let doubled = match self.doubles {
            true => self.first.saturating_mul(1 << number.min(20)),
            false => self.first,
        };
        Some(doubled.min(self.longest))
    }

    /// The number of retries left after this many.
    fn left(&self, retries: u32) -> u32 {
        let most = self.max_retries;
        most.map_or(u32::MAX, |most| most.saturating_sub(retries))
    }

    /// The sum of all pauses, without jitter; `None`: there is no last one.
    fn whole(&self) -> Option<Duration> {
        let most = self.max_retries?;
        let pauses = (0..most.min(MOST_SUMMED)).filter_map(|number| self.pause(number));
        let summed: Duration = pauses.sum();
        let more = most.saturating_sub(MOST_SUMMED);
        let rest = self.longest.saturating_mul(more);
        Some(summed.saturating_add(rest))
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.first)?;
        if self.doubles {
            write!(f, "..{:?}", self.longest)?;
        }
        write!(f, ",jitter={}", self.jitter)?;
        match self.max_retries {
            Some(most) => write!(f, ",max_retries={most}"),
            None => Ok(()),
        }
    }
}

/// After this many pauses, each is as long as the longest, or constant.
const MOST_SUMMED: u32 = 64;

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128))
    }
}

/// When one waiter tries again. `None`: it is woken, and looks on its own only at long intervals. Boxed, since
/// every waiting future stores it.
#[derive(Debug)]
pub(super) struct RetryPlan(Option<Box<SpinRetries>>);

/// The retries of one waiter. Retries that become due behind other waiters of the process are
/// counted but not sent, because the head of the queue has just been refused.
#[derive(Debug)]
struct SpinRetries {
    backoff: Backoff,
    retries: u32,
    due: Instant,
    /// Redis did not answer the last try, so no retry becomes due.
    unanswered: bool,
    /// When a waiter that never tried has used up its retries.
    gives_up_at: Option<Instant>,
}

impl RetryPlan {
    pub(super) fn new(backoff: Option<Backoff>, now: Instant) -> Self {
        let spin = |backoff: Backoff| SpinRetries {
            backoff,
            retries: 0,
            due: now,
            unanswered: false,
            gives_up_at: backoff.whole().map(|whole| after(now, whole)),
        };
        Self(backoff.map(spin).map(Box::new))
    }

    /// The end of the wait for a waiter that has not tried, because it is behind other waiters of
    /// the process, or behind a hold of its own client.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.0.as_ref()?.gives_up_at
    }

    /// The waiter tries as the head: earlier due retries are counted, except the one that it makes
    /// now.
    pub(super) fn tries(&mut self, now: Instant) {
        if let Some(spin) = &mut self.0 {
            spin.gives_up_at = None;
            if spin.unanswered {
                spin.due = now;
            }
            while let Some(pause) = spin.backoff.pause(spin.retries) {
                let behind = now.saturating_duration_since(spin.due);
                let missed = behind.as_nanos() / pause.as_nanos().max(1);
                let missed = u32::try_from(missed).unwrap_or(u32::MAX);
                if missed == 0 {
                    break;
                }
                // Pauses of the longest length are counted at once: after a day there are millions of them.
                let counted = match pause == spin.backoff.longest {
                    true => missed.min(spin.backoff.left(spin.retries)),
                    false => 1,
                };
                spin.due = after(spin.due, pause.saturating_mul(counted));
                spin.retries = spin.retries.saturating_add(counted);
            }
        }
    }

    /// Redis does not answer: retries that become due meanwhile are not counted. A waiter that has not
    /// tried starts again.
    pub(super) fn unanswered(&mut self, now: Instant) {
        if let Some(spin) = &mut self.0 {
            spin.due = now;
            match &mut spin.gives_up_at {
                Some(at) => {
                    let whole = spin.backoff.whole().unwrap_or_default();
                    *at = after(now, whole.max(spin.backoff.first));
                }
                None => spin.unanswered = true,
            }
        }
    }

    /// A try was refused. Returns when the next is due, at the latest at `latest`; `None`: it was the last.
    pub(super) fn refused(&mut self, now: Instant, latest: Instant) -> Option<Instant> {
        let Some(spin) = &mut self.0 else {
            return Some(latest);
        };
        spin.unanswered = false;
        let pause = spin.backoff.pause(spin.retries)?;
        spin.retries = spin.retries.saturating_add(1);
        let pause = pause.mul_f64(1.0 + spin.backoff.jitter * fastrand::f64());
        spin.due = after(now, pause);
        Some(spin.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::exponential(MS, 100 * MS);
        let pauses: Vec<_> = (0..9).filter_map(|number| backoff.pause(number)).collect();
        assert_eq!(
            pauses,
            [1, 2, 4, 8, 16, 32, 64, 100, 100].map(Duration::from_millis)
        );
        assert_eq!(backoff.pause(u32::MAX - 1), Some(100 * MS));
    }

    #[test]
    fn a_waiter_that_was_not_polled_for_days_counted_millions_of_retries_one_by_one() {
        let days = Duration::from_secs(3 * 24 * 60 * 60);
        for (backoff, expected) in [
            (Backoff::constant(MS), 259_200_000),
            (Backoff::constant(MS).max_retries(1000), 1000),
            // 1, 2 and 4 ms before those of 8 ms.
            (Backoff::exponential(MS, 8 * MS), 3 + (259_200_000 - 7) / 8),
        ] {
            let now = Instant::now();
            let mut pace = RetryPlan::new(Some(backoff), now);
            pace.tries(now + days);
            let spin = pace.0.unwrap();
            assert_eq!(spin.retries, expected);
            assert!(spin.due <= now + days);
        }
    }

    #[test]
    fn retries_are_bounded() {
        let now = Instant::now();
        let mut pace = RetryPlan::new(Some(Backoff::constant(10 * MS).max_retries(2)), now);
        assert_eq!(pace.gives_up_at(), Some(now + 20 * MS));
        pace.tries(now);
        assert_eq!(pace.refused(now, now), Some(now + 10 * MS));
        let now = now + 10 * MS;
        assert_eq!(pace.refused(now, now), Some(now + 10 * MS));
        assert_eq!(pace.refused(now, now), None);
    }

    #[test]
    fn retries_that_fell_due_behind_others_are_counted() {
        let start = Instant::now();
        let mut pace = RetryPlan::new(Some(Backoff::constant(10 * MS).max_retries(3)), start);
        let now = start + 25 * MS;
        pace.tries(now);
        assert_eq!(pace.gives_up_at(), None);
        // Two of the three are gone.
        assert!(pace.refused(now, now).is_some());
        assert_eq!(pace.refused(now, now), None);
    }

    #[test]
    fn nothing_is_counted_while_redis_does_not_answer() {
        let start = Instant::now();
        let backoff = Some(Backoff::constant(10 * MS).max_retries(2));
        let mut pace = RetryPlan::new(backoff, start);
        // Behind others.
        let now = start + 20 * MS;
        pace.unanswered(now);
        assert_eq!(pace.gives_up_at(), Some(now + 20 * MS));
        // As the head, again and again.
        for tries in 0..5 {
            pace.tries(now + tries * 100 * MS);
            pace.unanswered(now + tries * 100 * MS + 50 * MS);
        }
        let now = now + 500 * MS;
        pace.tries(now);
        assert_eq!(pace.refused(now, now), Some(now + 10 * MS));
        let now = now + 10 * MS;
        pace.tries(now);
        assert!(pace.refused(now, now).is_some());
        assert_eq!(pace.refused(now, now), None);
    }

    #[test]
    fn jitter_only_lengthens() {
        let now = Instant::now();
        let mut pace = RetryPlan::new(Some(Backoff::constant(10 * MS).jitter(0.5)), now);
        for _ in 0..100 {
            let due = pace.refused(now, now).unwrap();
            assert!(due >= now + 10 * MS && due <= now + 15 * MS);
        }
    }
}
