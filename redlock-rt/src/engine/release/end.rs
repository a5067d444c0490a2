//! The call that ends a hold. That of a fair lock may give the lock to a waiter of this client.
//!
//! The release names up to four waiters, those that have been queued for longest, with the lease of each.
//! Redis decides who is next, so neither a limit of time nor equal terms are needed: a waiter of another
//! client is woken when it is next.
//!
//! * The waiter has the lock under the number with which it is queued. If it has left, its own release,
//!   which is on its way for its place in the queue, ends the hold. If it asks meanwhile, Redis finds it to
//!   be the holder.
//! * A repeat names the same waiters, since a try whose reply was lost may have given the lock to one of
//!   them; the deadline then counts from the first try. If the outcome stays unknown, the waiters that were
//!   named ask by themselves.
//! * If nobody reads the reply (an `unlock` that is not polled any more, and not dropped), the next
//!   heartbeat names the waiter. What was given and not yet taken when this client frees the lock by force
//!   is forgotten, and that waiter asks.
//! * A guard with a `min_hold` gives the lock to nobody.

use std::time::Instant;

use crate::connection::Delivery;
use crate::engine::hold::Hold;
use crate::engine::news::News;
use crate::name::HoldId;
use crate::wire::Call;

/// A release that names waiters of this client. A repeat is the same call, since an earlier try may have
/// given the lock to one of them.
pub(super) struct Grant {
    call: Call,
    waiters: Vec<u64>,
}

/// The call that ends a hold. `grant`: the one that was sent before, if it names waiters.
pub(super) fn end_of(hold: &Hold, grant: &mut Option<Box<Grant>>, is_first: bool) -> Call {
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

impl Grant {
    /// The release that gives the lock to the next waiter in the queue, if that is one of this client.
    fn of(hold: &Hold) -> Option<Box<Self>> {
        let engine = &hold.engine;
        hold.recipe.queue()?;
        if engine.config.hand_over.is_zero() || engine.is_closing() {
            return None;
        }
        let next = engine.fair.next_in_line(hold.recipe.name());
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

    /// The release is over. Tells the waiter that has the lock; if none is known to have it, and an earlier
    /// try may have given it to one, the waiters ask.
    pub(super) fn over(&self, hold: &Hold, news: &News, delivery: &Delivery, answered: bool) {
        let (engine, name) = (&hold.engine, hold.recipe.name());
        if let Some((waiter, sent)) = granted(news)
            && answered
        {
            // The lease may be that of the first try.
            let sent = delivery.open_since().map_or(sent, |first| first.min(sent));
            if let Some(number) = engine.id.number_of(waiter) {
                engine.fair.grant(name, number, sent);
            }
        } else if !answered || delivery.open_since().is_some() {
            engine.fair.ask(name, &self.waiters);
        }
    }
}

/// The waiter that has the lock now, and when the call was sent that says so.
fn granted(news: &News) -> Option<(&HoldId, Instant)> {
    match news {
        News::Announced(announcement, sent) if announcement.is_granted => {
            Some((announcement.waiter.as_ref()?, *sent))
        }
        _ => None,
    }
}
