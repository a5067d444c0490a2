//! Where a waiter waits inside this process.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use crate::clock;
use crate::engine::ClientEngine;
use crate::engine::fair::FairTicket;
use crate::engine::hand_over::Offer;
use crate::engine::hold::{Holders, Request};
use crate::engine::wait::{Health, Refusal, WaiterGuard, Waits, Wake};
use crate::wire::{FairPlace, Recipe};

/// A place in the queue of the name, or a seat if every waiter has a place in Redis.
pub(super) enum LocalWait {
    Queue(WaiterGuard<Holders>),
    Seat(FairTicket),
}

/// The methods of both kinds of places.
macro_rules! either {
    ($wait:expr, $place:ident => $does:expr) => {
        match $wait {
            LocalWait::Queue($place) => $does,
            LocalWait::Seat(FairTicket { seat: $place, .. }) => $does,
        }
    };
}

impl LocalWait {
    /// A waiter that waits for a moment lets others try first for half of that time.
    pub(super) fn enter(attempt: &Attempt, now: Instant, wait: Option<Duration>) -> Self {
        let request = &attempt.request;
        let Request { engine, recipe, .. } = request;
        let lease = request.terms.lease;
        if let Some(ticket) = engine.fair.enter(recipe, request.number, lease) {
            return Self::Seat(ticket);
        }
        let poll = || engine.next_poll(now);
        let latest = wait.map(|wait| clock::after(now, wait / 2));
        let waiters = &request.waiters;
        let mut guard = waiters.enter(&engine.hub, recipe.channel(), poll, latest);
        if recipe.permits() > 1 {
            guard.passes_on();
        }
        Self::Queue(guard)
    }

    /// Tries again at once, as another owner.
    pub(super) fn enter_again(&mut self, attempt: &Attempt) {
        let now = clock::now();
        match self {
            Self::Queue(guard) => guard.tried(Some(now), Health::Answering),
            Self::Seat(_) => *self = Self::enter(attempt, now, None),
        }
    }

    /// Whether the waiter may try at once, which needs no waker. For a waiter that would ask Redis at
    /// this moment.
    pub(super) fn tries_at_once(&self, asks: Instant) -> bool {
        either!(self, place => place.tries_at_once(asks))
    }

    /// The waiter was refused, and tries again at `retry_at` or when something is announced. For a
    /// waiter with a seat a beat looks at that moment, and wakes the waiter if the lock is free.
    pub(super) fn refused(
        &mut self,
        attempt: &Attempt,
        place: Option<FairPlace>,
        retry_at: Option<Instant>,
    ) {
        let Request { engine, recipe, .. } = &attempt.request;
        match self {
            Self::Queue(guard) => {
                guard.tried(retry_at, Health::Answering);
                self.listen(engine, recipe);
            }
            Self::Seat(ticket) => {
                ticket.seat.tried(None, Health::Answering);
                if let Some(place) = place {
                    ticket.queued(place, retry_at);
                }
            }
        }
    }

    /// The waiter tries again at `retry_at`, or when something is announced.
    pub(super) fn tried(&self, retry_at: Option<Instant>, health: Health) {
        either!(self, place => place.tried(retry_at, health));
    }

    /// When the release was sent that gave the lock to this waiter, if one did since `asked`.
    pub(super) fn take_grant(&self, asked: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Queue(_) => None,
            Self::Seat(ticket) => ticket.take_grant(asked),
        }
    }

    /// Whether the waiter did not run when it was next, and has no place in Redis any more.
    pub(super) fn is_withdrawn(&self) -> bool {
        matches!(self, Self::Seat(ticket) if ticket.is_withdrawn())
    }

    /// Redis has given the lock to the waiter. Returns whether it was not withdrawn before.
    pub(super) fn takes(&self) -> bool {
        match self {
            Self::Queue(_) => true,
            Self::Seat(ticket) => ticket.leave(),
        }
    }

    /// The waiter leaves with the lock.
    pub(super) fn served(&mut self, shared: bool, more: bool, retry_at: Instant) {
        match self {
            Self::Queue(guard) => guard.served(shared, more, retry_at),
            // Redis knows which waiter is next.
            Self::Seat(_) => {}
        }
    }

    /// The state of the waiter that asks on behalf of this one: whether Redis answers, and the answer.
    pub(super) fn fares(&self) -> (Health, Refusal) {
        match self {
            Self::Queue(guard) => guard.waiters.fares(),
            // Only permits can be unset, and they have no seats.
            Self::Seat(ticket) => (ticket.health(), Refusal::Held),
        }
    }

    pub(super) fn set_refusal(&self, refusal: Refusal) {
        if let Self::Queue(guard) = self {
            guard.waiters.set_refusal(refusal);
        }
    }

    pub(super) fn set_health(&self, health: Health) {
        match self {
            Self::Queue(guard) => guard.waiters.set_health(health),
            Self::Seat(ticket) => ticket.seat.set_health(health),
        }
    }

    /// Subscribes to the announcements of releases. A waiter with a seat subscribes once it is queued.
    pub(super) fn listen(&self, engine: &ClientEngine, recipe: &Arc<dyn Recipe>) {
        if let (Self::Queue(guard), Some(channel)) = (self, recipe.channel()) {
            guard.waiters.listen(&engine.hub, channel);
        }
    }
}

impl Waits for LocalWait {
    /// A try for a lock serves only the waiter that makes it.
    type Outcome = Infallible;

    type Offer = Box<Offer>;

    fn poll(&self, waker: &Waker) -> Poll<Wake<Infallible, Box<Offer>>> {
        either!(self, place => place.poll(waker))
    }

    fn runs(&self, waker: &Waker) {
        either!(self, place => place.runs(waker));
    }

    fn retry_at(&self, deadline: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Queue(guard) => guard.retry_at(deadline),
            Self::Seat(ticket) => ticket.seat.retry_at(),
        }
    }

    fn retry(&self) {
        either!(self, place => place.retry());
    }

    fn put_back(&self) {
        either!(self, place => place.put_back());
    }
}
