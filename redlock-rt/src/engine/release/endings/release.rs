//! The release of a hold. The release of a fair lock may give the lock to a waiter of this client.
//!
//! The release names up to four waiters, those that have been queued for longest, with the lease of each.
//! Redis decides which is next, so neither a time limit nor equal terms are needed: a waiter of another
//! client is woken when it is next.
//!
//! * The waiter has the lock under the number with which it is queued. If it has left, its own release,
//!   which was sent for its place in the queue, ends the hold. If it asks meanwhile, Redis finds that it is
//!   the holder.
//! * A repeat names the same waiters, since a try whose reply was lost may have given the lock to one of
//!   them. The deadline then counts from the first try. If the outcome stays unknown, the named waiters ask
//!   on their own.
//! * If no task reads the reply (an `unlock` that is neither polled nor dropped), the next heartbeat names
//!   the waiter. If this client frees the lock by force, grants that are not yet taken are forgotten, and
//!   those waiters ask.
//! * A guard with a `min_hold` gives the lock to no waiter.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::{Ending, Lapse, Sending, Stepped};
use crate::connection::Delivery;
use crate::engine::announcement::News;
use crate::engine::hold::Hold;
use crate::wire::{Call, HoldReply, Mark};

/// The end of a hold.
pub(in crate::engine::release) struct Release {
    pub(super) hold: Arc<Hold>,
    /// Nothing is given back: the permits stay taken, and no longer belong to the hold.
    pub(in crate::engine::release) forgets: bool,
    /// The call names waiters, one of which may get the lock.
    grant: Option<Box<Grant>>,
}

impl Release {
    pub(in crate::engine::release) fn of(hold: &Arc<Hold>) -> Self {
        Self {
            hold: Arc::clone(hold),
            forgets: false,
            grant: None,
        }
    }

    pub(super) fn begin(&mut self, delivery: &mut Delivery, waker: &Waker) -> bool {
        let Self { hold, grant, .. } = self;
        let is_first = delivery.open_since.is_none();
        delivery.begin(hold.to(), || call_of(hold, grant, is_first), waker)
    }

    pub(super) async fn step(&mut self, by: &mut Sending, until: Option<Instant>) -> Stepped {
        let now = by.now.take();
        let Self { hold, grant, .. } = self;
        if self.forgets {
            let Some(call) = hold.recipe.forget(&hold.id(), hold.repeated) else {
                return Some(Ok(HoldReply::Done));
            };
            let answer = by.delivery.attempt(hold.to(), || call, until).await?;
            return Some(by.read(answer));
        }
        let is_first = by.delivery.open_since.is_none();
        let call = || call_of(hold, grant, is_first);
        let answer = by.delivery.attempt_at(hold.to(), call, until, now).await?;
        let reply = by.read(answer);
        Some(reply.map(|reply| self.judged(reply, &by.delivery)))
    }

    /// Behaves as if it was sent.
    #[cfg(test)]
    pub(in crate::engine::release) fn was_sent(&mut self) {
        let _ = call_of(&self.hold, &mut self.grant, true);
    }
}

/// The call that ends a hold. A repeat is the same call, since an earlier try may have given the lock to a
/// waiter.
fn call_of(hold: &Hold, grant: &mut Option<Box<Grant>>, is_first: bool) -> Call {
    if let Some(call) = hold.min_hold_call() {
        return call;
    }
    if is_first {
        *grant = Grant::of(hold);
    }
    match (&grant, hold.repeated) {
        (Some(grant), _) => grant.call.clone(),
        (None, true) => hold.recipe.withdraw(&hold.id()),
        (None, false) => hold.recipe.release(&hold.id()),
    }
}

impl Ending for Release {
    fn is_due(&self) -> bool {
        !self.forgets && !self.hold.is_settled()
    }

    fn give_up(&self, _: &Sending, lapse: Lapse) -> Option<Instant> {
        lapse.of_all(self.hold.to())
    }

    /// Only Redis knows whether it has marked anything.
    fn ends_with_lease(&self) -> bool {
        !self.forgets && !self.hold.recipe.mark().is_some_and(Mark::is_set)
    }

    fn lapsed(&self) {
        self.hold.settled(&News::Unknown);
    }

    /// If an earlier try lost its reply while the lease was still running, that try released the hold.
    fn judged(&self, reply: HoldReply, delivery: &Delivery) -> HoldReply {
        match delivery.open_since {
            Some(_) if !self.ends_with_lease() => reply,
            Some(sent) if reply != HoldReply::Kept && sent < self.hold.deadline() => {
                HoldReply::Done
            }
            _ => reply,
        }
    }

    fn over(&self, news: &News, delivery: &Delivery, answered: bool) {
        if let Some(grant) = &self.grant {
            grant.over(&self.hold, news, delivery, answered);
        }
        match self.forgets {
            true => self.hold.settled(&News::Unknown),
            false => self.hold.settled(news),
        }
    }
}

/// A release that names waiters of this client.
struct Grant {
    call: Call,
    waiters: Vec<u64>,
}

impl Grant {
    /// The release that gives the lock to the next waiter in the queue, if that is a waiter of this client.
    fn of(hold: &Hold) -> Option<Box<Self>> {
        let engine = &hold.engine;
        hold.recipe.queue()?;
        if engine.config.hand_over.is_zero() || engine.is_closing() {
            return None;
        }
        let next = engine.fair.get(hold.recipe.name().as_str())?.next_in_line();
        if next.is_empty() {
            return None;
        }
        let named = next
            .iter()
            .map(|(number, lease)| (engine.id.hold_id(*number), *lease));
        let call = hold.recipe.grant(&hold.id(), &named.collect::<Vec<_>>())?;
        let waiters = next.into_iter().map(|(number, _)| number).collect();
        Some(Box::new(Self { call, waiters }))
    }

    /// The release is over. Tells the waiter that has the lock. If no such waiter is known, and an earlier
    /// try may have given the lock to one, the waiters ask.
    fn over(&self, hold: &Hold, news: &News, delivery: &Delivery, answered: bool) {
        let engine = &hold.engine;
        let Some(waiters) = engine.fair.get(hold.recipe.name().as_str()) else {
            return;
        };
        if let News::Announced(announcement, sent) = news
            && announcement.is_granted
            && let Some(waiter) = &announcement.waiter
            && answered
        {
            // The lease may be that of the first try.
            let sent = delivery.open_since.map_or(*sent, |first| first.min(*sent));
            if let Some(number) = engine.id.number_of(waiter) {
                waiters.grant(number, sent);
            }
        } else if !answered || delivery.open_since.is_some() {
            for number in &self.waiters {
                // Waiters that have left need not ask.
                let _ = waiters.is_next(*number, None);
            }
        }
    }
}
