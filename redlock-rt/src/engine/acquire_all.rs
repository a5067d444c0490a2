//! Several locks of one client in one call: all or none.
//!
//! It is a try past the local queues, for locks that nobody of this client holds or waits for. Who
//! is refused waits for one after the other, in the one acquire loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Engine;
use super::acquire::ACTION;
use super::hold::{Bid, Hold, HoldGuard};
use super::lease::Terms;
use super::releases::Open;
use super::settle::{Ghost, Journey, Settlement};
use crate::clock;
use crate::connection::{Caller, Fault};
use crate::error::Error;
use crate::wire::{Recipe, Together, acquire_all, is_taken_together};

/// What became of a try.
#[derive(Debug)]
pub(crate) enum Attempt {
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
                && self.lines.is_idle(&**recipe)
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
    ) -> Result<Attempt, Error> {
        if let Some(first) = recipes.first() {
            self.open(ACTION, first.name())?;
        }
        let mut claim = Claims::new(self, recipes, terms);
        match claim.attempt(until).await {
            Ok(Together::Acquired) => Ok(Attempt::Acquired(claim.succeed()?)),
            Ok(Together::Held(index)) => Ok(Attempt::Held(index)),
            Err(fault) if fault.is_passing_for(Caller::Waiter) => {
                Ok(Attempt::Failed(fault.into_error(ACTION)))
            }
            Err(fault) => Err(fault.into_error(ACTION)),
        }
    }
}

/// Owner numbers on their way to holds. Dropped before they are, each makes sure that it will not
/// become one.
struct Claims {
    bids: Vec<Bid>,
    lease: Duration,
    journey: Journey,
    done: bool,
    /// While the call is under way or its outcome open. Dropped last.
    _open: Open,
}

impl Claims {
    fn new(engine: &Arc<Engine>, recipes: &[Arc<dyn Recipe>], terms: Terms) -> Self {
        let bid = |recipe: &Arc<dyn Recipe>| {
            let number = engine.next_number();
            Bid {
                engine: Arc::clone(engine),
                recipe: Arc::clone(recipe),
                owner: engine.id.owner(number),
                number,
                under: None,
                line: engine.lines.line(&**recipe),
                terms,
                repeated: false,
            }
        };
        Self {
            bids: recipes.iter().map(bid).collect(),
            lease: terms.lease,
            journey: Journey::default(),
            done: false,
            _open: engine.releases.open(false),
        }
    }

    async fn attempt(&mut self, until: Option<Instant>) -> Result<Together, Fault> {
        let (bids, lease) = (&self.bids, self.lease);
        let Some(first) = bids.first() else {
            return Ok(Together::Acquired);
        };
        let holds = bids.iter().map(|bid| (&*bid.recipe, &bid.owner));
        let call = || acquire_all(holds, lease);
        let attempt = self.journey.attempt(&first.engine.main, call, until);
        let late = || Err(first.engine.no_answer());
        let reply = attempt.await.unwrap_or_else(late)?;
        let reply = Together::try_from(reply)?;
        if let Together::Held(_) = reply {
            self.journey.close();
        }
        Ok(reply)
    }

    fn succeed(&mut self) -> Result<Vec<HoldGuard>, Error> {
        self.done = true;
        let now = clock::now();
        let sent = self.journey.sent.unwrap_or(now);
        let bids = self.bids.iter();
        let guards: Vec<_> = bids
            .map(|bid| Hold::acquired(bid, None, sent, now))
            .collect();
        // Looked at once the holds are among those that a shut-down ends, as for a single claim.
        match self.bids.first() {
            Some(Bid { engine, recipe, .. }) if engine.is_closing() => {
                Err(engine.shut_down_error(ACTION, recipe.name()))
            }
            _ => Ok(guards),
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if self.done || !self.journey.is_open() {
            return;
        }
        // The call goes on without anybody who waits for it. What is sent from here on comes behind
        // it: on the same connection, or on the next one, which kills the client of this one first.
        for bid in self.bids.drain(..) {
            let engine = Arc::clone(&bid.engine);
            let ghost = Ghost {
                bid,
                traces: false,
                journey: self.journey.shadow(),
            };
            engine.releases.push(Settlement::ghost(ghost));
            engine.ensure_tasks();
        }
    }
}
