//! The place of a waiter that is woken for its own turn, not as the head of a queue of this process.

use std::task::{Poll, Waker};
use std::time::Instant;

use super::health::Health;
use super::queue::Wake;
use crate::shim::{Mutex, lock};

/// A place outside of any [`WaitQueue`](super::queue::WaitQueue). A message that the waiter may be next
/// gives it a permit. It begins with one, for its first try.
///
/// Its mutex is held briefly, with no other mutex taken inside.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The owner number of its waiter.
    pub(crate) number: u64,
    state: Mutex<SeatState>,
}

#[derive(Debug)]
struct SeatState {
    waker: Option<Waker>,
    permit: bool,
    /// The waiter was told then, and was not polled since.
    told: Option<Instant>,
    closed: bool,
    /// When the waiter tries without having been told.
    retry_at: Option<Instant>,
    /// Whether Redis answers the waiter.
    health: Health,
}

impl Seat {
    pub(crate) fn new(number: u64) -> Self {
        let state = SeatState {
            waker: None,
            permit: true,
            told: None,
            closed: false,
            retry_at: None,
            health: Health::Answering,
        };
        Self {
            number,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn poll<T, O>(&self, waker: &Waker) -> Poll<Wake<T, O>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Poll::Ready(Wake::Closed);
        }
        if std::mem::take(&mut state.permit) {
            state.told = None;
            return Poll::Ready(Wake::Try);
        }
        state.runs(waker);
        Poll::Pending
    }

    /// The waiter is polled while it tries.
    pub(crate) fn runs(&self, waker: &Waker) {
        lock(&self.state).runs(waker);
    }

    /// Whether the waiter was told before that moment, and was not polled since.
    pub(crate) fn hangs(&self, before: Instant) -> bool {
        let told = lock(&self.state).told;
        told.is_some_and(|told| told <= before)
    }

    /// Whether the waiter has a permit, which it takes to ask Redis at this moment.
    pub(crate) fn tries_at_once(&self, asks: Instant) -> bool {
        let mut state = lock(&self.state);
        let tries = state.permit && !state.closed;
        if tries {
            state.permit = false;
            state.health.follow(Health::Asking(asks));
        }
        tries
    }

    /// Makes the waiter try.
    pub(crate) fn notify(&self, now: Instant) {
        self.wake(|state| {
            state.permit = true;
            state.told.get_or_insert(now);
        });
    }

    /// The client shuts down.
    pub(crate) fn close(&self) {
        self.wake(|state| state.closed = true);
    }

    /// Wakes the waiter, with the mutex not held.
    fn wake(&self, change: impl FnOnce(&mut SeatState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The try is over without success. Another follows at `retry_at`, or when the waiter is told.
    pub(crate) fn tried(&self, retry_at: Option<Instant>, health: Health) {
        let mut state = lock(&self.state);
        state.retry_at = retry_at;
        state.health.follow(health);
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        lock(&self.state).retry_at
    }

    /// The moment to try again has come.
    pub(crate) fn retry(&self) {
        let mut state = lock(&self.state);
        state.retry_at = None;
        state.permit = true;
    }

    /// The waiter took a permit, and has no time left for a try.
    pub(crate) fn put_back(&self) {
        lock(&self.state).permit = true;
    }

    pub(crate) fn set_health(&self, health: Health) {
        lock(&self.state).health.follow(health);
    }

    pub(crate) fn health(&self) -> Health {
        lock(&self.state).health
    }
}

impl SeatState {
    fn runs(&mut self, waker: &Waker) {
        self.told = None;
        let known = self.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::count_waker::waker;
    use super::*;

    const TRY: Poll<Wake<()>> = Poll::Ready(Wake::Try);
    const PENDING: Poll<Wake<()>> = Poll::Pending;

    #[test]
    fn a_waiter_tries_once_when_it_comes_and_whenever_it_is_told() {
        let ((count, waker), seat) = (waker(), Seat::new(1));
        assert_eq!(seat.poll(&waker), TRY);
        assert_eq!(seat.poll(&waker), PENDING);
        // Told twice before it looks.
        seat.notify(Instant::now());
        seat.notify(Instant::now());
        assert_eq!(count.get(), 1);
        assert_eq!(seat.poll(&waker), TRY);
        // Redis may have answered the try before.
        seat.notify(Instant::now());
        seat.tried(None, Health::Answering);
        assert_eq!(seat.poll(&waker), TRY);
        assert_eq!(seat.poll(&waker), PENDING);
        seat.put_back();
        assert_eq!(seat.poll(&waker), TRY);
    }

    #[test]
    fn a_first_try_needs_no_waker() {
        let ((_, waker), seat, now) = (waker(), Seat::new(1), Instant::now());
        assert!(seat.tries_at_once(now));
        assert_eq!(seat.health(), Health::Asking(now));
        assert!(!seat.tries_at_once(now));
        assert_eq!(seat.poll(&waker), PENDING);
        seat.notify(Instant::now());
        seat.close();
        assert!(!seat.tries_at_once(now));
    }

    #[test]
    fn a_waiter_that_was_not_answered_tries_at_its_moment() {
        let ((_, waker), seat, now) = (waker(), Seat::new(1), Instant::now());
        assert_eq!(seat.poll(&waker), TRY);
        seat.tried(Some(now), Health::Failing);
        assert_eq!(seat.retry_at(), Some(now));
        seat.retry();
        assert_eq!(seat.retry_at(), None);
        assert_eq!(seat.poll(&waker), TRY);
        seat.set_health(Health::Asking(now));
        assert_eq!(seat.health(), Health::Failing, "it is not answered yet");
    }

    #[test]
    fn a_waiter_hangs_that_was_told_and_is_not_polled() {
        let ((_, waker), seat, now) = (waker(), Seat::new(1), Instant::now());
        let later = now + std::time::Duration::from_secs(1);
        assert!(!seat.hangs(later), "nobody has told it anything");
        for polled in [false, true] {
            seat.notify(now);
            seat.notify(later);
            assert!(seat.hangs(now));
            match polled {
                true => assert_eq!(seat.poll(&waker), TRY),
                false => seat.runs(&waker),
            }
            assert!(!seat.hangs(later));
        }
    }

    #[test]
    fn a_waiter_of_a_client_that_shuts_down_is_woken_and_has_nothing_to_try() {
        let ((count, waker), seat) = (waker(), Seat::new(1));
        assert_eq!(seat.poll(&waker), TRY);
        assert_eq!(seat.poll(&waker), PENDING);
        seat.close();
        seat.notify(Instant::now());
        assert_eq!(count.get(), 1);
        let closed: Poll<Wake<()>> = Poll::Ready(Wake::Closed);
        assert_eq!(seat.poll(&waker), closed);
    }
}
