//! Moments in half of the memory.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A moment of this process, as nanoseconds since [`epoch`]. Earlier ones are that, and those more than
/// five centuries later are then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

/// When something happened last, if it did. A look at it takes no mutex.
#[derive(Debug, Default)]
pub(crate) struct LastMoment(AtomicU64);

/// Long before the first use, so that what a caller has read before is not earlier: a day, or as much of
/// it as the clock can count back.
fn epoch() -> Instant {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| {
        let now = Instant::now();
        let mut spans = std::iter::successors(Some(DAY), |span| Some(*span / 2)).take(32);
        spans.find_map(|span| now.checked_sub(span)).unwrap_or(now)
    })
}

pub(super) fn whole_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos(span: Duration) -> NonZeroU64 {
    NonZeroU64::new(whole_nanos(span)).unwrap_or(NonZeroU64::MIN)
}

impl LastMoment {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn get(&self) -> Option<Instant> {
        let nanos = NonZeroU64::new(self.0.load(Ordering::Acquire))?;
        Some(Moment(nanos).into())
    }

    pub(crate) fn set(&self, moment: Instant) {
        let Moment(nanos) = moment.into();
        self.0.store(nanos.get(), Ordering::Release);
    }

    /// Whether it happened at `moment` or later.
    pub(crate) fn is_since(&self, moment: Instant) -> bool {
        let Moment(nanos) = moment.into();
        self.0.load(Ordering::Acquire) >= nanos.get()
    }
}

impl From<Instant> for Moment {
    fn from(moment: Instant) -> Self {
        Self(nanos(moment.saturating_duration_since(epoch())))
    }
}

impl From<Moment> for Instant {
    fn from(Moment(nanos): Moment) -> Self {
        super::after(epoch(), Duration::from_nanos(nanos.get()))
    }
}

#[cfg(all(test, not(redlock_loom)))]
mod tests {
    use super::*;

    #[test]
    fn moments_come_back_as_they_were() {
        let now = Instant::now();
        for span in [1, 999_999_999, 1_000_000_001, 1 << 60].map(Duration::from_nanos) {
            let moment = super::super::after(now, span);
            assert_eq!(Instant::from(Moment::from(moment)), moment);
            assert!(Moment::from(now) < Moment::from(moment));
        }
        let before = now - Duration::from_secs(60);
        assert_eq!(Instant::from(Moment::from(before)), before);
    }

    #[test]
    fn what_never_happened_is_since_nothing() {
        let (last, now) = (LastMoment::default(), Instant::now());
        let (before, after) = (now - Duration::from_nanos(1), now + Duration::from_nanos(1));
        assert!(!last.is_since(before));
        last.set(now);
        assert_eq!(
            [before, now, after].map(|at| last.is_since(at)),
            [true, true, false]
        );
    }
}
