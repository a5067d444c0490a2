//! Several locks of one client in one call: all or none.
//!
//! The try bypasses the local queues, so it is only for locks that this client neither holds nor
//! waits for. A refused caller waits for one lock after the other, in the common acquire loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ACTION;
use crate::clock;
use crate::connection::{Caller, Delivery, Fault};
use crate::engine::ClientEngine;
use crate::engine::guard::HoldGuard;
use crate::engine::hold::{Request, Terms};
use crate::engine::release::{OrphanedAttempt, Outstanding, abandon};
use crate::error::Error;
use crate::wire::{Recipe, acquire_all, first_held, is_taken_together};

/// The result of a try.
#[derive(Debug)]
pub(crate) enum TogetherOutcome {
    Acquired(Vec<HoldGuard>),
    /// Another owner has the lock at this index; no lock was taken.
    Held(usize),
    /// They must be asked for one by one; no lock was taken.
    Apart,
    /// Redis did not answer in time, or could not be reached; no lock is kept.
    Failed(Error),
}

impl ClientEngine {
    /// Whether [`acquire_together`](Self::acquire_together) is possible for these locks.
    pub(crate) fn may_acquire_together(&self, recipes: &[Arc<dyn Recipe>]) -> bool {
        let slot = |recipe: &Arc<dyn Recipe>| self.nodes.slot_of(recipe.name());
        let first = recipes.first().map(slot);
        recipes.iter().all(|recipe| {
            is_taken_together(&**recipe)
                // One call, so one server.
                && first == Some(slot(recipe))
                && self.locks.is_idle(&**recipe)
                && !self.is_around(&**recipe, None)
        })
    }

    /// Tries once to take all of these locks, which differ, at most until `until`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: each lock is released in the background, after the call on the same
    /// connection.
    ///
    /// # Errors
    ///
    /// Errors that another try would not change.
    pub(crate) async fn acquire_together(
        self: &Arc<Self>,
        recipes: &[Arc<dyn Recipe>],
        terms: Terms,
        until: Option<Instant>,
    ) -> Result<TogetherOutcome, Error> {
        if let Some(first) = recipes.first() {
            self.ensure_open(ACTION, first.name())?;
        }
        let mut attempts = Attempts::new(self, recipes, terms);
        match attempts.send(until).await {
            Ok(None) => Ok(TogetherOutcome::Acquired(attempts.succeed()?)),
            Ok(Some(index)) => Ok(TogetherOutcome::Held(index)),
            Err(fault) if fault.is_passing_for(Caller::Waiter) => {
                Ok(TogetherOutcome::Failed(fault.into_error(ACTION)))
            }
            Err(fault) if fault.is_of_several_slots() => Ok(TogetherOutcome::Apart),
            Err(fault) => Err(fault.into_error(ACTION)),
        }
    }
}

/// Owner numbers that do not have holds yet. If this is dropped before, the release queue makes
/// sure that they never get one.
struct Attempts {
    requests: Vec<Request>,
    lease: Duration,
    delivery: Delivery,
    done: bool,
    /// Set while the call is in progress or its outcome is unknown. Dropped last.
    _open: Outstanding,
}

impl Attempts {
    fn new(engine: &Arc<ClientEngine>, recipes: &[Arc<dyn Recipe>], terms: Terms) -> Self {
        let request = |recipe: &Arc<dyn Recipe>| Request::new(engine, Arc::clone(recipe), terms);
        Self {
            requests: recipes.iter().map(request).collect(),
            lease: terms.lease,
            delivery: Delivery::default(),
            done: false,
            _open: engine.releases.register(false),
        }
    }

    async fn send(&mut self, until: Option<Instant>) -> Result<Option<usize>, Fault> {
        let (requests, lease) = (&self.requests, self.lease);
        let Some(first) = requests.first() else {
            return Ok(None);
        };
        let ids: Vec<_> = requests.iter().map(Request::id).collect();
        let recipes = requests.iter().map(|request| &*request.recipe);
        let holds = recipes.zip(ids.iter().map(|id| &**id));
        let call = || acquire_all(holds, lease);
        let to = first.to();
        let attempt = self.delivery.attempt(to, call, until);
        let late = || Err(first.engine.no_answer(first.recipe.name()));
        let answer = attempt.await.unwrap_or_else(late);
        let read = |reply| first_held(reply, requests.len());
        let held = self.delivery.read(answer, read)?;
        if held.is_some() {
            self.delivery.close();
        }
        Ok(held)
    }

    fn succeed(&mut self) -> Result<Vec<HoldGuard>, Error> {
        self.done = true;
        let now = clock::now();
        let sent = self.delivery.sent.unwrap_or(now);
        let requests = self.requests.iter();
        let guards: Vec<_> = requests
            .map(|request| HoldGuard::acquired(request, None, sent, now).0)
            .collect();
        // Checked after the holds are registered with those that a shut-down ends, as for a single
        // attempt.
        match self.requests.first() {
            Some(Request { engine, recipe, .. }) if engine.is_closing() => {
                Err(engine.shut_down_error(ACTION, recipe.name()))
            }
            _ => Ok(guards),
        }
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.delivery.recall();
        if self.done || !self.delivery.is_open() {
            return;
        }
        // The call continues, and no caller waits for its reply. Later commands come after it: on
        // the same connection, or on the next one, which first kills the client of this one.
        for request in self.requests.drain(..) {
            abandon(OrphanedAttempt {
                request,
                traces: false,
                delivery: self.delivery.shadow(),
            });
        }
    }
}
