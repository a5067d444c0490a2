//! Taking a lock from its holder: by force, or by a ticket of the holder.

use std::sync::Arc;

use super::ACTION;
use super::acquire_loop::try_once;
use super::attempt::Attempt;
use crate::clock;
use crate::engine::ClientEngine;
use crate::engine::guard::HoldGuard;
use crate::engine::hold::{Claim, LostReason, Terms};
use crate::error::{Error, ErrorKind, Theft};
use crate::name::HoldId;
use crate::wire::{Recipe, Steal as StealCall};

const SEEN: &str = "it has another holder than the one that was seen";
const LEFT: &str = "its lease was over, or it was adopted before";

/// From which holder a lock is taken, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steal<'a> {
    /// The holder that was seen; `None`: the lock was free.
    pub(crate) from: Option<&'a HoldId>,
    /// `None`: the holder has left it to this client.
    pub(crate) why: Option<&'a str>,
}

impl Steal<'_> {
    /// Takes the lock past the local queue, unless another owner has it by then. An adopted lock must not be free.
    ///
    /// # Cancel safety
    ///
    /// An acquired lock is released in the background; the holder may have lost it.
    pub(super) async fn run(
        self,
        engine: &Arc<ClientEngine>,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
    ) -> Result<HoldGuard, Error> {
        engine.end_chain(&*recipe);
        let mut attempt = Attempt::new(engine, Arc::clone(&recipe), terms);
        attempt.request.claim = Claim::Steal(Arc::new(StealCall {
            from: self.from.cloned(),
            theft: self.why.map(|why| {
                let by = engine.thief(|| attempt.request.id());
                let why = why.to_owned();
                Arc::new(Theft { by, why })
            }),
        }));
        let until = engine.patience(clock::now());
        let outcome = try_once(engine, &recipe, attempt, None, until).await?;
        outcome.map_err(|_| {
            let (kind, why) = match self.why {
                Some(_) => (ErrorKind::Contended, SEEN),
                None => (ErrorKind::NotOwner, LEFT),
            };
            let error = Error::new(kind, ACTION).named(recipe.name().as_arc());
            error.detail(why)
        })
    }
}

impl Attempt {
    /// The lock was taken. A holder of this client learns the thief and the reason before the thief has the lock.
    pub(super) fn tell_victim(&self) {
        if let Claim::Steal(steal) = &self.request.claim
            && let (Some(from), Some(theft)) = (&steal.from, &steal.theft)
            && let Some(hold) = self.request.waiters.subject.one()
            && *from.as_str() == *hold.id()
        {
            hold.mark_lost(LostReason::Stolen(Arc::clone(theft)));
        }
    }
}

impl ClientEngine {
    /// The name of a client that takes a lock by force: its identity, if it has one.
    pub(crate) fn thief(&self, id: impl FnOnce() -> String) -> String {
        let identity = self.config.identity.as_ref();
        identity.map_or_else(id, |identity| identity.name.clone())
    }
}
