//! The queue in which a waiter waits inside this process.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use super::attempt::Attempt;
use crate::clock;
use crate::engine::Engine;
use crate::engine::fair::FairTicket;
use crate::engine::hand_over::Offer;
use crate::engine::hold::{Hold, Holders, Request, key_of};
use crate::engine::wait::{Called, Health, Refusal, WaiterGuard, Waits};
use crate::wire::{FairPlace, Recipe};

/// The queue of the name, or a queue of its own if every waiter has a place in Redis.
pub(super) struct LocalWait {
    guard: WaiterGuard<Holders<Hold>>,
    ticket: Option<FairTicket>,
}

impl LocalWait {
    /// `passes`: it may go on where another task of this client ends.
    pub(super) fn enter(attempt: &Attempt, passes: bool, now: Instant) -> Self {
        let Request {
            engine,
            recipe,
            waiters,
            number,
            terms,
            ..
        } = &attempt.request;
        let poll = engine.next_poll(now);
        let wish = attempt.request.wish().filter(|_| passes);
        let own = || engine.locks.waiters(key_of(&**recipe, Some(*number)));
        let Some((ticket, own)) = engine.fair.enter(recipe, *number, terms.lease, own) else {
            let mut guard = waiters.enter_for(&engine.hub, recipe.channel(), poll, wish);
            if recipe.permits() > 1 {
                guard.passes_on();
            }
            return Self {
                guard,
                ticket: None,
            };
        };
        Self {
            guard: own.enter_for(&engine.hub, None, poll, wish),
            ticket: Some(ticket),
        }
    }

    /// Tries again at once, as another owner.
    pub(super) fn enter_again(&mut self, attempt: &Attempt, passes: bool) {
        let now = clock::now();
        match self.ticket {
            None => self.guard.tried(Some(now), Health::Answering),
            Some(_) => *self = Self::enter(attempt, passes, now),
        }
    }

    /// Waits until the waiter is woken.
    pub(super) fn called(
        &mut self,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Called<Infallible, Box<Offer>>> + Send {
        self.guard.called(deadline)
    }

    /// The waiter was refused, and tries again at `retry_at` or when something is announced. For a
    /// waiter with a ticket a beat looks at that moment, and wakes the waiter if the lock is free.
    pub(super) fn refused(
        &mut self,
        attempt: &Attempt,
        place: Option<FairPlace>,
        retry_at: Option<Instant>,
    ) {
        let own = retry_at.filter(|_| self.ticket.is_none());
        self.guard.tried(own, Health::Answering);
        let Request { engine, recipe, .. } = &attempt.request;
        match (&self.ticket, place) {
            (Some(ticket), Some(place)) => ticket.queued(place, retry_at),
            _ => self.listen(engine, recipe),
        }
    }

    /// When the release was sent that gave the lock to this waiter, if one did since the waiter `asked`.
    pub(super) fn take_grant(&self, asked: Option<Instant>) -> Option<Instant> {
        self.ticket.as_ref()?.take_grant(asked)
    }

    /// The waiter did not take what was offered: it waits for the announcement of the release.
    pub(super) fn declined(&self, retry_at: Instant) {
        self.guard.tried(Some(retry_at), Health::Answering);
    }

    /// Redis did not answer the waiter.
    pub(super) fn unanswered(&self, retry_at: Instant) {
        self.guard.tried(Some(retry_at), Health::Failing);
    }

    /// The waiter leaves with the lock.
    pub(super) fn served(&mut self, shared: bool, more: bool, retry_at: Instant) {
        self.guard.served(shared, more, retry_at);
    }

    /// The state of the waiter that asks on behalf of this one: whether Redis answers, and what.
    pub(super) fn fares(&self) -> (Health, Refusal) {
        match (self.guard.waiters().fares(), &self.ticket) {
            ((Health::Answering, refusal), Some(ticket)) => (ticket.health(), refusal),
            (fares, _) => fares,
        }
    }

    pub(super) fn set_refusal(&self, refusal: Refusal) {
        self.guard.waiters().set_refusal(refusal);
    }

    pub(super) fn set_health(&self, health: Health) {
        self.guard.waiters().set_health(health);
    }

    /// Subscribes to the announcements of releases. A waiter with a ticket subscribes once it is
    /// queued.
    pub(super) fn listen(&self, engine: &Engine, recipe: &Arc<dyn Recipe>) {
        if let (None, Some(channel)) = (&self.ticket, recipe.channel()) {
            self.guard.waiters().listen(&engine.hub, channel);
        }
    }
}
