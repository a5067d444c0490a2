//! Tasks of this process that wait for one thing, in the order in which they came.
//!
//! Pure state, shared by `line` and `gate`. The first of them, the *head*, acts for all when there is a
//! *permit*: something happened that makes that worth while. Every operation is O(log n), but for those
//! that wake everybody.
//!
//! # Invariants
//!
//! 1. Only the head takes a permit.
//! 2. Tickets grow, so the order of the tickets is that of the queue.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};
use std::time::Instant;

/// A place in the queue. The later it was given, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// Why a waiter is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It is the head now, without a permit yet. Told once.
    Head,
    /// It is the head and has a permit, which is hereby taken.
    Permit,
    /// Nobody is to wait any more.
    Closed,
}

/// Whether Redis answers the head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Answering,
    /// A call is under way since then.
    Asking(Instant),
    /// The last call did not reach Redis.
    Failing,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    /// Whether it knows that it is the head.
    told: bool,
}

/// The queue; see the module.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<Ticket, Waiter>,
    next: u64,
    pub(super) permit: bool,
    closed: bool,
    /// When the head looks again although nothing was announced.
    retry_at: Option<Instant>,
    /// How the head fares, for those behind it whose time runs out.
    health: Health,
}

impl Waiters {
    /// Joins the queue. An empty one begins anew, without a permit.
    pub(super) fn enter(&mut self) -> Ticket {
        let ticket = self.next_ticket();
        self.next += 1;
        if self.is_empty() {
            self.permit = false;
            self.retry_at = None;
            self.health = Health::Answering;
        }
        self.waiting.insert(ticket, Waiter::default());
        ticket
    }

    /// The ticket of who comes next.
    pub(super) fn next_ticket(&self) -> Ticket {
        Ticket(self.next)
    }

    fn head(&self) -> Option<Ticket> {
        self.waiting.first_key_value().map(|(ticket, _)| *ticket)
    }

    pub(super) fn is_head(&self, ticket: Ticket) -> bool {
        self.head() == Some(ticket)
    }

    /// Asks for a call; the waker is woken when there is one. `ready`: a permit may be taken.
    pub(super) fn poll(&mut self, ticket: Ticket, ready: bool, waker: &Waker) -> Poll<Call> {
        if self.closed {
            return Poll::Ready(Call::Closed);
        }
        let head = self.is_head(ticket);
        if head && ready && self.permit {
            self.permit = false;
            return Poll::Ready(Call::Permit);
        }
        if let Some(waiter) = self.waiting.get_mut(&ticket) {
            if head && !waiter.told {
                waiter.told = true;
                return Poll::Ready(Call::Head);
            }
            let known = waiter.waker.as_ref();
            if !known.is_some_and(|known| known.will_wake(waker)) {
                waiter.waker = Some(waker.clone());
            }
        }
        Poll::Pending
    }

    /// Whom to wake, once the lock around this state is free, for what concerns the head.
    #[must_use]
    pub(super) fn head_waker(&mut self) -> Option<Waker> {
        self.waiting.first_entry()?.get_mut().waker.take()
    }

    /// Something happened that makes it worth while to act. The waker is to be woken once the lock
    /// around this state is free.
    #[must_use]
    pub(super) fn notify(&mut self) -> Option<Waker> {
        if self.is_empty() {
            return None;
        }
        self.permit = true;
        self.head_waker()
    }

    /// Leaves the queue; answers whether the head did.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        let head = self.is_head(ticket);
        self.waiting.remove(&ticket);
        head
    }

    /// All that came before `later` leave; answers who they are, and their wakers.
    pub(super) fn leave_before(&mut self, later: Ticket) -> Vec<(Ticket, Option<Waker>)> {
        let rest = self.waiting.split_off(&later);
        let gone = std::mem::replace(&mut self.waiting, rest);
        let gone = gone.into_iter();
        gone.map(|(ticket, waiter)| (ticket, waiter.waker))
            .collect()
    }

    /// Nobody is to wait here any more.
    #[must_use]
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        let waiters = self.waiting.values_mut();
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }

    pub(super) fn set_retry(&mut self, at: Option<Instant>) {
        self.retry_at = at;
    }

    /// When `ticket` is to look again by itself; only the head does.
    pub(super) fn retry_at(&self, ticket: Ticket) -> Option<Instant> {
        self.retry_at.filter(|_| self.is_head(ticket))
    }

    pub(super) fn set_health(&mut self, health: Health) {
        // After a call that failed, another is no better before it is answered.
        if !matches!((self.health, health), (Health::Failing, Health::Asking(_))) {
            self.health = health;
        }
    }

    /// The head left in the middle of a call, whose outcome will not be told here.
    pub(super) fn forget_call(&mut self) {
        if matches!(self.health, Health::Asking(_)) {
            self.health = Health::Answering;
        }
    }

    pub(super) fn health(&self) -> Health {
        self.health
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
