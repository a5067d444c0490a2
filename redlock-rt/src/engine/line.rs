//! The local queue of one name: however many tasks of a process wait, one of them talks to Redis.
//!
//! Pure state. The head of the queue may try when there is a *permit*: the queue was empty and
//! nothing is known of a holder, a release was announced, the subscription was confirmed (what was
//! announced before is not known), or time came to look again.
//!
//! # Invariants
//!
//! 1. Only the head takes a permit.
//! 2. A permit that a head took and did not use up (it left before the outcome was known) passes
//!    to the next head; so does one that it never took. Who gives up on much leaves a permit to the
//!    next, who may want less. Where many may hold the lock at a time, a
//!    head that was served leaves a permit for the next if there is more to be had, and one that
//!    was given meanwhile.
//!    Where one holds the lock at a time, a permit that was given meanwhile goes with the head that was
//!    served: what was announced is the release by which it got the lock, or an earlier one. Only a
//!    forced release between the script and its reply is announced later; the next then looks when the
//!    guard learns that it is lost, or at its moment to look again. Kept, the permit would cost a vain
//!    try where two releases follow each other closely.
//! 3. Whoever becomes head is woken, since it has the timers and the subscription to look after.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::task::{Poll, Waker};
use std::time::Instant;

use super::waiters::{Call, Health, Ticket, Waiters};

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Head of the queue now, without a permit yet. Told once.
    Head,
    /// Head, with a permit, which is hereby taken.
    Try,
    /// The client shuts down.
    Closed,
}

/// How a waiter leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It holds the lock. Unless it is `shared`, the next has nothing to try before a release is
    /// announced. Where it is, the next has where there is `more` of it, or was announced to be.
    Served { shared: bool, more: bool },
    /// It gave up. `trying`: with a try under way, whose outcome nobody else will look at, or after
    /// one whose outcome need not be that of the next.
    GaveUp { trying: bool },
}

/// The queue; see the module.
#[derive(Debug, Default)]
pub(crate) struct LineState {
    waiters: Waiters,
    /// What the last head to be refused was told, for those behind it whose time runs out.
    refusal: Refusal,
}

/// Why a try had no success.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[default]
    Held,
    /// There is nothing to have yet: a semaphore whose permits were never set.
    Unset,
}

impl LineState {
    /// Joins the queue.
    pub(crate) fn enter(&mut self) -> Ticket {
        if self.waiters.is_empty() {
            self.refusal = Refusal::Held;
        }
        self.waiters.enter()
    }

    /// Asks for news; the waker is woken when there are some.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Turn> {
        self.waiters
            .poll(ticket, true, waker)
            .map(|call| match call {
                Call::Head => Turn::Head,
                Call::Permit => Turn::Try,
                Call::Closed => Turn::Closed,
            })
    }

    /// Something happened that makes a try worth while. The waker is to be woken once the lock
    /// around this state is free.
    #[must_use]
    pub(crate) fn notify(&mut self) -> Option<Waker> {
        self.waiters.notify()
    }

    /// Leaves the queue. Upholds invariants 2 and 3.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: Ticket, exit: Exit) -> Option<Waker> {
        if !self.waiters.leave(ticket) {
            return None;
        }
        let permit = &mut self.waiters.permit;
        match exit {
            // Of a lock that one has at a time, whatever was announced is over now.
            Exit::Served { shared, more } => *permit = shared && (*permit || more),
            Exit::GaveUp { trying } => *permit |= trying,
        }
        self.waiters.forget_call();
        self.waiters.head_waker()
    }

    /// Nobody is to wait here any more.
    #[must_use]
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.waiters.close()
    }

    pub(crate) fn set_retry(&mut self, at: Option<Instant>) {
        self.waiters.set_retry(at);
    }

    /// When `ticket` is to look again by itself; only the head does.
    pub(crate) fn retry_at(&self, ticket: Ticket) -> Option<Instant> {
        self.waiters.retry_at(ticket)
    }

    pub(crate) fn set_health(&mut self, health: Health) {
        self.waiters.set_health(health);
    }

    pub(crate) fn health(&self) -> Health {
        self.waiters.health()
    }

    pub(crate) fn set_refusal(&mut self, refusal: Refusal) {
        self.refusal = refusal;
    }

    pub(crate) fn refusal(&self) -> Refusal {
        self.refusal
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::count_waker::waker;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_permit_is_the_firsts_and_the_second_waits_for_an_announcement() {
        let (_, waker) = waker();
        let mut line = LineState::default();
        let first = line.enter();
        let second = line.enter();
        assert!(line.notify().is_none(), "nobody sleeps yet");
        assert_eq!(line.poll(first, &waker), Poll::Ready(Turn::Try));
        assert_eq!(line.poll(second, &waker), Poll::Pending);
        assert!(
            line.leave(
                first,
                Exit::Served {
                    shared: false,
                    more: false
                }
            )
            .is_some()
        );
        assert_eq!(line.poll(second, &waker), Poll::Ready(Turn::Head));
        assert_eq!(line.poll(second, &waker), Poll::Pending);
        assert!(line.notify().is_some());
        assert_eq!(line.poll(second, &waker), Poll::Ready(Turn::Try));
    }

    #[test]
    fn where_many_may_hold_it_each_has_the_next_try() {
        let (_, waker) = waker();
        let mut line = LineState::default();
        let tickets = [line.enter(), line.enter(), line.enter()];
        assert!(line.notify().is_none(), "nobody sleeps yet");
        for ticket in &tickets[1..] {
            assert_eq!(line.poll(*ticket, &waker), Poll::Pending);
        }
        for (at, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(line.poll(ticket, &waker), Poll::Ready(Turn::Try));
            let next = line.leave(
                ticket,
                Exit::Served {
                    shared: true,
                    more: true,
                },
            );
            assert_eq!(next.is_some(), at < 2);
        }
        // Who comes later knows nothing of it.
        let late = line.enter();
        assert_eq!(line.poll(late, &waker), Poll::Ready(Turn::Head));
        assert_eq!(line.poll(late, &waker), Poll::Pending);
    }

    #[test]
    fn who_leaves_in_the_middle_of_a_try_passes_it_on() {
        let (_, waker) = waker();
        let mut line = LineState::default();
        let first = line.enter();
        let second = line.enter();
        assert!(line.notify().is_none(), "nobody sleeps yet");
        assert_eq!(line.poll(first, &waker), Poll::Ready(Turn::Try));
        assert_eq!(line.poll(second, &waker), Poll::Pending);
        assert!(line.leave(first, Exit::GaveUp { trying: true }).is_some());
        assert_eq!(line.poll(second, &waker), Poll::Ready(Turn::Try));
    }

    #[test]
    fn a_notification_that_the_head_never_took_is_the_next_heads() {
        let (_, waker) = waker();
        let mut line = LineState::default();
        let first = line.enter();
        let second = line.enter();
        assert_eq!(line.poll(first, &waker), Poll::Ready(Turn::Head));
        assert_eq!(line.poll(first, &waker), Poll::Pending);
        assert!(line.notify().is_some());
        let _ = line.leave(first, Exit::GaveUp { trying: false });
        assert_eq!(line.poll(second, &waker), Poll::Ready(Turn::Try));
    }

    #[test]
    fn a_try_after_one_that_failed_is_no_answer() {
        let mut line = LineState::default();
        let _head = line.enter();
        line.set_health(Health::Failing);
        line.set_health(Health::Asking(Instant::now()));
        assert_eq!(line.health(), Health::Failing);
        line.set_health(Health::Answering);
        assert_eq!(line.health(), Health::Answering);
    }

    #[test]
    fn a_queue_that_begins_anew_knows_of_no_refusal() {
        let mut line = LineState::default();
        let head = line.enter();
        line.set_refusal(Refusal::Unset);
        let behind = line.enter();
        let _ = line.leave(head, Exit::GaveUp { trying: false });
        assert_eq!(line.refusal(), Refusal::Unset);
        let _ = line.leave(behind, Exit::GaveUp { trying: false });
        let _ = line.enter();
        assert_eq!(line.refusal(), Refusal::Held);
    }

    #[test]
    fn closing_tells_everybody() {
        let (count, waker) = waker();
        let mut line = LineState::default();
        let tickets = [line.enter(), line.enter(), line.enter()];
        for ticket in tickets {
            let _ = line.poll(ticket, &waker);
            let _ = line.poll(ticket, &waker);
        }
        line.close().into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 3);
        assert_eq!(line.poll(tickets[2], &waker), Poll::Ready(Turn::Closed));
    }

    proptest! {
        /// However waiters come and go: a notification given while somebody waits is seen by a
        /// head, unless a head was served after it that shares the lock with nobody.
        #[test]
        fn no_notification_is_lost(steps in proptest::collection::vec((0..7u8, 0..6usize), 1..80)) {
            let mut line = LineState::default();
            let mut tickets: Vec<(Ticket, bool)> = vec![];
            let mut owed = false;
            for (step, at) in steps {
                match step {
                    0 => tickets.push((line.enter(), false)),
                    1 => {
                        let _ = line.notify();
                        owed |= !tickets.is_empty();
                    }
                    2 if at < tickets.len() => {
                        let (ticket, trying) = tickets.remove(at);
                        let _ = line.leave(ticket, Exit::GaveUp { trying });
                        owed |= trying;
                    }
                    3 if !tickets.is_empty() => {
                        let head = tickets[0].0;
                        let mut turn = line.poll(head, Waker::noop());
                        if turn == Poll::Ready(Turn::Head) {
                            turn = line.poll(head, Waker::noop());
                        }
                        prop_assert_eq!(turn == Poll::Ready(Turn::Try), owed);
                        tickets[0].1 |= owed;
                        owed = false;
                    }
                    4..=6 if tickets.first().is_some_and(|(_, trying)| *trying) => {
                        let (ticket, _) = tickets.remove(0);
                        let (shared, more) = (step != 4, step == 5);
                        let _ = line.leave(ticket, Exit::Served { shared, more });
                        // What was announced while it tried is not used up where there is more than
                        // one to be had.
                        owed = shared && (owed || more);
                    }
                    _ => {}
                }
                owed &= !tickets.is_empty();
            }
        }
    }
}
