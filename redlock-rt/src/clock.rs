//! The clock that leases are judged by.
//!
//! It is Tokio's, so that a paused clock moves leases too, plus the time that the machine was
//! suspended since the process first asked: `CLOCK_MONOTONIC`, which Tokio reads, stands still in
//! suspend, and a lease in Redis does not.

use std::time::{Duration, Instant};

/// Returns the present moment.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std() + suspended()
}

/// As [`now`], for destructors. They also run at the end of a thread, where a clock of Tokio that
/// can be paused (feature `test-util`) panics once Tokio's own thread-locals are gone.
pub(crate) fn now_in_drop() -> Instant {
    match tokio::runtime::Handle::try_current() {
        Err(error) if error.is_thread_local_destroyed() => Instant::now() + suspended(),
        _ => now(),
    }
}

/// Sleeps until `moment` of this clock; returns at once where it is past.
pub(crate) async fn sleep_until(moment: Instant) {
    tokio::time::sleep_until(to_tokio(moment)).await;
}

/// The same moment on Tokio's clock, for its timers.
pub(crate) fn to_tokio(moment: Instant) -> tokio::time::Instant {
    // A suspend makes timers late, never early: whoever wakes looks at `now` again.
    moment.checked_sub(suspended()).unwrap_or(moment).into()
}

/// Adds without overflow: a moment too far away to be represented is a century away.
pub(crate) fn after(moment: Instant, span: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    moment.checked_add(span).unwrap_or_else(|| moment + CENTURY)
}

#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use std::sync::OnceLock;

    use rustix::time::{ClockId, clock_gettime};

    /// Reading the two clocks one after the other makes a gap of their distance; below this it
    /// is noise.
    const NOISE: Duration = Duration::from_millis(10);
    static AT_START: OnceLock<Duration> = OnceLock::new();

    let read = |clock| {
        let time = clock_gettime(clock);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    };
    let gap = read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic));
    let since_start = gap.saturating_sub(*AT_START.get_or_init(|| gap));
    if since_start < NOISE {
        Duration::ZERO
    } else {
        since_start
    }
}

#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_a_paused_clock() {
        let start = now();
        tokio::time::advance(Duration::from_secs(30)).await;
        let passed = now() - start;
        assert!(
            passed >= Duration::from_secs(30) && passed < Duration::from_secs(31),
            "{passed:?}"
        );
    }

    #[test]
    fn a_span_that_overflows_is_a_moment_far_away() {
        let start = Instant::now();
        assert!(after(start, Duration::MAX) > start + Duration::from_secs(1_000_000_000));
    }
}
