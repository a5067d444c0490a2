//! Retries: how soon, how often, and by one task for all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::connection::fault::Fault;
use crate::pause::Growth;
use crate::shim::lock_std;

/// How a client retries connecting, and calls that a server refused temporarily (`LOADING`, `BUSY`, …).
///
/// All tries stay within the wait of their caller, or within the response time-out of a call that waits
/// for no other client. While a server refuses everything, or cannot be reached, one caller of the
/// client at a time asks it, at these intervals. The others wait for the outcome. In a cluster this
/// concerns only the calls to that server.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_rt::RetryPolicy;
///
/// let policy = RetryPolicy::new()
///     .attempts(5)
///     .interval(Duration::from_millis(50))
///     .max_interval(Duration::from_secs(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    attempts: Option<u32>,
    interval: Duration,
    pub(super) max_interval: Duration,
    jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: None,
            interval: Duration::from_millis(20),
            max_interval: Duration::from_millis(500),
            jitter: 0.5,
        }
    }
}

impl RetryPolicy {
    /// Returns the default policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how often a call is tried, including the first time, before its caller gets the error
    /// although its wait is not over. Releases are not limited by this. Defaults to `None`: as often as
    /// the wait allows.
    #[must_use]
    pub fn attempts(mut self, attempts: impl Into<Option<u32>>) -> Self {
        self.attempts = attempts.into();
        self
    }

    /// Sets the first interval; each is twice as long as the one before it. Defaults to 20 ms.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the longest interval. Defaults to 500 ms.
    #[must_use]
    pub fn max_interval(mut self, interval: Duration) -> Self {
        self.max_interval = interval;
        self
    }

    /// Sets the random part of each interval, from 0 to 1, so that clients that lost one server together
    /// do not reconnect together. Defaults to 0.5: at least half of each interval.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// Why this policy is invalid.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        if self.attempts == Some(0) {
            Some("retry: a call is tried at least once")
        } else if self.interval < Duration::from_millis(1) {
            Some("retry: the interval is shorter than a millisecond")
        } else if self.max_interval < self.interval {
            Some("retry: max_interval is shorter than interval")
        } else if !(0.0..=1.0).contains(&self.jitter) {
            Some("retry: jitter is from 0 to 1")
        } else {
            None
        }
    }

    /// Whether a call with this many tries is not tried again.
    fn is_over(&self, tries: u32) -> bool {
        self.attempts.is_some_and(|attempts| tries >= attempts)
    }

    /// Counts a try that failed. Returns the interval before the next one, unless it was the last.
    pub(crate) fn next(&self, tries: &mut u32) -> Option<Duration> {
        *tries = tries.saturating_add(1);
        (!self.is_over(*tries)).then(|| self.pause(*tries - 1))
    }

    /// As [`next`](Self::next), with the time of the next try. `None` also if that is not before
    /// `until`.
    pub(crate) fn again(&self, tries: &mut u32, until: Instant) -> Option<Instant> {
        let again = clock::after(clock::now(), self.next(tries)?);
        (again < until).then_some(again)
    }

    /// The interval after this many others.
    pub(super) fn pause(&self, before: u32) -> Duration {
        let growth = Growth {
            shortest: self.interval,
            longest: self.max_interval,
            factor: 2.0,
            least: 1.0 - self.jitter,
        };
        growth.pause(before)
    }
}

/// Holds calls back while the server refuses all of them, except one at a time.
#[derive(Default)]
pub(super) struct Gate {
    /// Read before each call, and therefore outside of the mutex.
    refusing: AtomicBool,
    state: Mutex<GateState>,
    opened: Notify,
}

#[derive(Default)]
struct GateState {
    pauses: u32,
    /// When to ask again; `None`: the gate is open.
    next: Option<Instant>,
    fault: Option<Fault>,
}

impl Gate {
    pub(super) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    /// Waits until a call may be sent.
    pub(super) async fn pass(&self, policy: &RetryPolicy) {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            // Registered before the state is read, so that no opening is missed.
            opened.as_mut().enable();
            let Some(next) = self.not_before(policy) else {
                return;
            };
            tokio::select! {
                biased;
                () = opened => {}
                () = clock::sleep_until(next) => {}
            }
        }
    }

    /// When to look again; `None`: the caller may send its call. The first caller after each interval
    /// may, without waiting for an earlier one, which may not be polled.
    fn not_before(&self, policy: &RetryPolicy) -> Option<Instant> {
        let mut state = lock_std(&self.state);
        let next = state.next?;
        if next > clock::now() {
            return Some(next);
        }
        state.plan(policy);
        None
    }

    /// The last answer of the server.
    pub(super) fn fault(&self) -> Option<Fault> {
        lock_std(&self.state).fault.clone()
    }

    /// A call was refused with a reason that concerns all calls.
    pub(super) fn refused(&self, policy: &RetryPolicy, fault: &Fault) {
        let mut state = lock_std(&self.state);
        state.fault = Some(fault.clone());
        if !self.refusing.swap(true, Ordering::AcqRel) {
            state.pauses = 0;
            state.plan(policy);
        }
    }

    /// The server answers again, or it is another one.
    pub(super) fn open(&self) {
        if self.is_refusing() {
            let mut state = lock_std(&self.state);
            *state = GateState::default();
            self.refusing.store(false, Ordering::Release);
            drop(state);
            self.opened.notify_waiters();
        }
    }
}

impl GateState {
    fn plan(&mut self, policy: &RetryPolicy) {
        self.next = Some(clock::after(clock::now(), policy.pause(self.pauses)));
        self.pauses = self.pauses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn intervals_double_and_are_left_to_chance_in_part() {
        let ms = Duration::from_millis;
        let exact = RetryPolicy::new()
            .interval(ms(10))
            .max_interval(ms(70))
            .jitter(0.0);
        let pauses = [0, 1, 2, 3, 4, 99].map(|before| exact.pause(before));
        assert_eq!(pauses, [10, 20, 40, 70, 70, 70].map(ms));
        for before in 0..50 {
            let pause = exact.jitter(0.25).pause(before);
            let whole = exact.pause(before);
            assert!(
                whole * 3 / 4 <= pause && pause <= whole,
                "{pause:?} of {whole:?}"
            );
        }
    }

    #[test]
    fn a_policy_that_makes_no_sense_is_refused() {
        let ms = Duration::from_millis;
        let policy = RetryPolicy::new;
        for wrong in [
            policy().attempts(0),
            policy().interval(Duration::ZERO),
            policy().max_interval(ms(1)),
            policy().jitter(-0.1),
            policy().jitter(f64::NAN),
        ] {
            assert!(wrong.flaw().is_some(), "{wrong:?}");
        }
        assert_eq!(policy().attempts(1).flaw(), None);
        assert!(policy().attempts(2).is_over(2) && !policy().attempts(2).is_over(1));
        assert!(!policy().is_over(u32::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_asks_at_a_time_until_one_is_answered() {
        let policy = RetryPolicy::new()
            .interval(Duration::from_millis(100))
            .jitter(0.0);
        let (gate, passed) = (Gate::default(), AtomicU32::new(0));
        gate.pass(&policy).await;
        gate.refused(&policy, &Fault::timed_out("refused"));
        let callers = (0..50).map(|_| async {
            gate.pass(&policy).await;
            passed.fetch_add(1, Ordering::Relaxed);
        });
        let watch = async {
            // The tries are after 100, 300 and 700 ms.
            for (pause, expected) in [(50, 0), (100, 1), (100, 1), (100, 2), (300, 2), (100, 3)] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                assert_eq!(passed.load(Ordering::Relaxed), expected);
            }
            gate.open();
        };
        tokio::join!(futures::future::join_all(callers), watch);
        assert_eq!(passed.load(Ordering::Relaxed), 50);
    }

    /// It had the only turn, and kept it.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_was_not_polled_held_all_others_back() {
        let (gate, policy) = (Gate::default(), RetryPolicy::new());
        gate.refused(&policy, &Fault::timed_out("refused"));
        let mut kept = tokio_test::task::spawn(gate.pass(&policy));
        tokio_test::assert_pending!(kept.poll());
        let passed = clock::timeout(Duration::from_secs(10), gate.pass(&policy)).await;
        assert!(passed.is_ok());
    }
}
