//! A release that acquires the lock for a waiter of this client in the same call.
//!
//! ```text
//! the guard ends ──▶ Pass, in place of the release ──▶ Offer of a hold in transit
//!                      │
//!                      └── refused, too late, nobody waits any more ──▶ the ordinary release
//! ```
//!
//! A pass belongs to the [`Cleanup`] of the hold that ends, and so goes wherever that goes: to the caller
//! of `unlock`, or to the release queue, with the call in progress.
//!
//! # Invariants
//!
//! 1. The waiter's owner number is new. As soon as Redis may have given it the lock, it has a hold, in
//!    transit or taken, or the pass is repeated until that is known, or the number is released.
//! 2. A pass announces nothing, so the chain is not longer by it: its first hold was acquired at the
//!    beginning, and no pass is sent after its end.
//! 3. While a pass is under way its queue knows ([`WaitQueue::begin_pass`]), and whatever becomes of it
//!    ends with an offer or with an attempt of the head.
//! 4. The release of the number is registered before that of the first hold is over, so that a
//!    shut-down finds one of the two.
//!
//! [`WaitQueue::begin_pass`]: crate::engine::wait::Waiters::begin_pass

use std::sync::Arc;
use std::time::Instant;

use super::Offer;
use crate::clock;
use crate::connection::{Delivery, Fault};
use crate::engine::hold::{Chain, Hold, Legacy, Request, Terms, Waiting};
use crate::engine::news::News;
use crate::engine::release::{OrphanedAttempt, PendingCleanup, abandon};
use crate::wire::{AcquireReply, Ask, Call, HoldReply, Malformed, Reply};

/// See the module.
pub(in crate::engine) struct Pass {
    request: Request,
    call: Call,
    legacy: Legacy,
    /// Whose head is to have the lock.
    waiters: Arc<Waiting>,
    until: Instant,
    outcome: Option<Outcome>,
    /// The queue knows that it is over.
    over: bool,
}

/// What Redis said of the waiter.
struct Outcome {
    reply: AcquireReply,
    sent: Instant,
    /// An earlier try may still arrive.
    repeated: bool,
}

impl Pass {
    /// For a pass that the queue of these waiters has let begin; `None`: there is none for this kind.
    pub(super) fn new(hold: &Hold, legacy: &Legacy, waiters: &Arc<Waiting>) -> Option<Self> {
        let terms = Terms {
            lease: legacy.lease,
            renew: legacy.renew,
            max_hold: None,
        };
        let (recipe, own) = (Arc::clone(&hold.recipe), Arc::clone(hold.waiters()));
        let request = Request::new(&hold.engine, recipe, own, terms);
        let call = hold.recipe.pass(
            &hold.id(),
            &Ask {
                owner: &request.id(),
                lease: terms.lease,
                waits: false,
                rest: None,
                under: None,
            },
        )?;
        Some(Self {
            request,
            call,
            legacy: *legacy,
            waiters: Arc::clone(waiters),
            until: hold.engine.chain_end(legacy),
            outcome: None,
            over: false,
        })
    }

    /// Whether it may be sent now. Upholds invariant 2.
    pub(in crate::engine) fn is_wanted(&self, now: Instant) -> bool {
        now < self.until && !self.waiters.is_empty() && !self.request.engine.is_closing()
    }

    pub(in crate::engine) fn call(&self) -> Call {
        self.call.clone()
    }

    /// Reads the reply; returns what became of the first hold.
    pub(in crate::engine) fn read(
        &mut self,
        reply: Reply,
        delivery: &Delivery,
    ) -> Result<HoldReply, Malformed> {
        let passed = self.request.recipe.passed(reply)?;
        self.outcome = Some(Outcome {
            reply: passed.next,
            sent: delivery.sent.unwrap_or_else(clock::now),
            repeated: delivery.open_since().is_some(),
        });
        Ok(passed.ended)
    }

    /// There was no answer, so it will be repeated.
    pub(in crate::engine) fn is_late(&self) {
        self.waiters.pass_is_late();
    }

    /// Redis refused it, so the ordinary release follows. What an earlier try may have acquired is
    /// released too.
    pub(in crate::engine) fn give_up(self: Box<Self>, fault: &Fault, delivery: &Delivery) {
        if delivery.open_since().is_some() || !fault.is_refused() {
            abandon(OrphanedAttempt {
                request: self.request.clone(),
                traces: false,
                delivery: delivery.shadow(),
            });
        }
    }

    /// Redis has answered: `before` is over. Upholds invariants 1, 3 and 4.
    pub(in crate::engine) fn finish(mut self: Box<Self>, before: &Arc<Hold>) {
        let Some(outcome) = self.outcome.take() else {
            return before.settled(&News::Unknown);
        };
        let AcquireReply::Acquired(acquired) = outcome.reply else {
            self.end();
            return before.settled(&News::Unknown);
        };
        let open = PendingCleanup::open(before);
        self.request.repeated = outcome.repeated;
        let chain = Chain {
            sent: outcome.sent.into(),
            ..self.legacy.chain
        };
        let legacy = Legacy {
            chain,
            ..self.legacy
        };
        let (hold, follows) = Hold::in_transit(before, &self.request, acquired.token, &legacy);
        before.continued();
        let offer = Box::new(Offer::new(&hold, legacy, open));
        if !follows || !self.is_wanted(clock::now_in_drop()) {
            self.end();
            return drop(offer);
        }
        self.over = true;
        match self.waiters.pass_on(offer) {
            Ok(unwatched) => hold.engine.offered(&self.waiters, unwatched, self.until),
            // Begins the release of the number.
            Err(offer) => drop(offer),
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.waiters.end_pass();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.end();
    }
}
