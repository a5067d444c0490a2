//! Several locks of one client in one call: all or none.
//!
//! It is a try past the local queues, for locks that nobody of this client holds or waits for. Who
//! is refused waits for one after the other, in the one acquire loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ACTION;
use super::attempt::abandon;
use crate::clock;
use crate::connection::{Caller, Delivery, Fault};
use crate::engine::Engine;
use crate::engine::guard::HoldGuard;
use crate::engine::hold::{Request, Terms, key_of};
use crate::engine::release::{Open, OrphanedAttempt};
use crate::error::Error;
use crate::wire::{Recipe, Together, acquire_all, is_taken_together};

/// What became of a try.
#[derive(Debug)]
pub(crate) enum TogetherOutcome {
    Acquired(Vec<HoldGuard>),
    /// Somebody else has the lock at this index; none was taken.
    Held(usize),
    /// Redis did not answer in time, or could not be reached; none is kept.
    Failed(Error),
}

impl Engine {
    /// Whether [`acquire_together`](Self::acquire_together) may be asked for these.
    pub(crate) fn may_acquire_together(&self, recipes: &[Arc<dyn Recipe>]) -> bool {
        recipes.iter().all(|recipe| {
            is_taken_together(&**recipe)
                && self.locks.is_idle(&**recipe)
                && !self.is_around(&**recipe, None)
        })
    }

    /// Tries once to take all of these locks, which differ, at most until `until`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: each lock is given back in the background, behind the call on the same
    /// connection.
    ///
    /// # Errors
    ///
    /// What trying again would not change.
    pub(crate) async fn acquire_together(
        self: &Arc<Self>,
        recipes: &[Arc<dyn Recipe>],
        terms: Terms,
        until: Option<Instant>,
    ) -> Result<TogetherOutcome, Error> {
        if let Some(first) = recipes.first() {
            self.open(ACTION, first.name())?;
        }
        let mut attempts = Attempts::new(self, recipes, terms);
        match attempts.send(until).await {
            Ok(Together::Acquired) => Ok(TogetherOutcome::Acquired(attempts.succeed()?)),
            Ok(Together::Held(index)) => Ok(TogetherOutcome::Held(index)),
            Err(fault) if fault.is_passing_for(Caller::Waiter) => {
                Ok(TogetherOutcome::Failed(fault.into_error(ACTION)))
            }
            Err(fault) => Err(fault.into_error(ACTION)),
        }
    }
}

/// Owner numbers on their way to holds. Dropped before they are, each makes sure that it will not
/// become one.
struct Attempts {
    requests: Vec<Request>,
    lease: Duration,
    delivery: Delivery,
    done: bool,
    /// While the call is under way or its outcome open. Dropped last.
    _open: Open,
}

impl Attempts {
    fn new(engine: &Arc<Engine>, recipes: &[Arc<dyn Recipe>], terms: Terms) -> Self {
        let request = |recipe: &Arc<dyn Recipe>| {
            let waiters = engine.locks.waiters(key_of(&**recipe, None));
            Request::new(engine, recipe, &waiters, terms)
        };
        Self {
            requests: recipes.iter().map(request).collect(),
            lease: terms.lease,
            delivery: Delivery::default(),
            done: false,
            _open: engine.releases.open(false),
        }
    }

    async fn send(&mut self, until: Option<Instant>) -> Result<Together, Fault> {
        let (requests, lease) = (&self.requests, self.lease);
        let Some(first) = requests.first() else {
            return Ok(Together::Acquired);
        };
        let holds = requests
            .iter()
            .map(|request| (&*request.recipe, &request.owner));
        let call = || acquire_all(holds, lease);
        let attempt = self.delivery.attempt(&first.engine.main, call, until);
        let late = || Err(first.engine.no_answer());
        let reply = attempt.await.unwrap_or_else(late)?;
        let reply = Together::try_from(reply)?;
        if let Together::Held(_) = reply {
            self.delivery.close();
        }
        Ok(reply)
    }

    fn succeed(&mut self) -> Result<Vec<HoldGuard>, Error> {
        self.done = true;
        let now = clock::now();
        let sent = self.delivery.sent.unwrap_or(now);
        let requests = self.requests.iter();
        let guards: Vec<_> = requests
            .map(|request| HoldGuard::acquired(request, None, sent, now))
            .collect();
        // Looked at once the holds are among those that a shut-down ends, as for a single attempt.
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
        if self.done || !self.delivery.is_open() {
            return;
        }
        // The call goes on, and nobody waits for its answer. What is sent from here on comes behind
        // it: on the same connection, or on the next one, which kills the client of this one first.
        for request in self.requests.drain(..) {
            abandon(OrphanedAttempt {
                request,
                traces: false,
                delivery: self.delivery.shadow(),
            });
        }
    }
}
