//! The parameters of a request for a hold.

use std::sync::Arc;
use std::time::Instant;

use super::{LockQueue, Terms, key_of};
use crate::clock;
use crate::connection::To;
use crate::engine::ClientEngine;
use crate::wire::{Ask, Call, Recipe, Steal};

/// The kind of a request.
#[derive(Clone)]
pub(crate) enum Claim {
    /// A free lock.
    Free,
    /// Another mode of the same lock, as the hold of this owner allows it.
    Under(u64),
    /// A lock that another owner has.
    Steal(Arc<Steal>),
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) engine: Arc<ClientEngine>,
    pub(crate) recipe: Arc<dyn Recipe>,
    /// Identifies the hold in the client.
    pub(crate) number: u64,
    /// The number in the hold's id: the same, unless it takes over another hold in Redis.
    pub(crate) owner: u64,
    pub(crate) claim: Claim,
    /// Kept, so that no local waiter tries while the outcome is unknown.
    pub(crate) waiters: Arc<LockQueue>,
    pub(crate) terms: Terms,
    /// The request was sent more than once: an earlier call may still arrive.
    pub(crate) repeated: bool,
}

/// How many fencing tokens an acquisition takes for its process if others want the lock too. More than a chain of
/// hand-overs usually has holds, and few enough that Redis' clock is past all of them 1 ms later.
const TOKENS: u32 = 1000;

impl Request {
    pub(crate) fn new(engine: &Arc<ClientEngine>, recipe: Arc<dyn Recipe>, terms: Terms) -> Self {
        let waiters = engine.locks.waiters(key_of(&*recipe));
        let number = engine.next_number();
        let terms = terms.of_kind(recipe.profile().kind);
        Self {
            engine: Arc::clone(engine),
            recipe,
            number,
            owner: number,
            claim: Claim::Free,
            waiters,
            terms,
            repeated: false,
        }
    }

    pub(crate) fn is_under(&self) -> bool {
        matches!(self.claim, Claim::Under(_))
    }

    /// Where its call is sent.
    pub(crate) fn to(&self) -> To<'_> {
        self.engine.to(self.recipe.name())
    }

    /// The text of the hold's id.
    pub(crate) fn id(&self) -> String {
        self.engine.id.hold_text(self.owner)
    }

    /// `waits`: if the lock is refused, the caller continues to wait, at most until `until`.
    pub(crate) fn call(&self, waits: bool, until: Option<Instant>) -> Call {
        // Only a queue in Redis needs to know how long a waiter stays. No other call reads the clock.
        let until = until.filter(|_| self.recipe.queue().is_some());
        let profile = self.recipe.profile();
        let may_share =
            profile.fenced && profile.hands_over && !self.engine.config.hand_over.is_zero();
        let shares = may_share && self.waiters.will_share();
        let under = match self.claim {
            Claim::Under(owner) => Some(self.engine.id.hold_text(owner)),
            _ => None,
        };
        let steal = match &self.claim {
            Claim::Steal(steal) => Some(&**steal),
            _ => None,
        };
        self.recipe.acquire(&Ask {
            owner: &self.id(),
            lease: self.terms.lease,
            waits,
            rest: until.map(|until| until.saturating_duration_since(clock::now())),
            tokens: if shares { TOKENS } else { 1 },
            under: under.as_deref(),
            steal,
        })
    }
}
