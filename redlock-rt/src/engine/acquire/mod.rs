//! How a caller gets a lock: by re-entry of a hold of its scopes or its owner, or by a new acquisition.

mod acquire_loop;
mod all_or_none;
mod attempt;
mod backoff;
mod local_wait;
#[cfg(test)]
mod loom;
mod owner;
mod reentry;
mod steal;

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use self::acquire_loop::{AcquireLoop, try_acquire};
pub(crate) use self::all_or_none::TogetherOutcome;
pub use self::backoff::Backoff;
pub use self::owner::Owner;
use self::owner::{keep, owned};
use self::reentry::{BodyTurn, EnclosingHold};
pub(crate) use self::reentry::{CurrentHold, ReentryScope};
pub(crate) use self::steal::Steal;
use super::ClientEngine;
use super::acks::Ack;
use super::guard::HoldGuard;
use super::hold::{GuardState, Hold, LostReason, Terms, key_of};
use super::wait::Refusal;
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::meter::{LockEvent, Spanned};
use crate::wire::{Recipe, Relation};

const ACTION: &str = "acquire lock";
const UNSET: &str = "the permits were never set";

/// How a caller asks for a lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AcquireParams<'a> {
    /// `None`: no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) owner: Option<&'a Owner>,
    /// Set for a kind whose waiters are not woken.
    pub(crate) backoff: Option<&'a Backoff>,
    /// A missing right does not end the wait.
    pub(crate) outlasts_denial: bool,
    /// Which servers must have the lock before the guard is returned, if any must.
    pub(crate) ack: Option<Ack>,
    /// The holder from which to take the lock by force, and the reason.
    pub(crate) steal: Option<Steal<'a>>,
    /// The guard is for one body. If an enclosing frame holds the same lock, concurrent bodies take turns. A
    /// frame cannot distinguish them from nested bodies, and each expects to be alone.
    pub(crate) for_body: bool,
}

/// How a caller gets the lock.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every caller waits, and needs no allocation for that"
)]
enum AcquireEntry<'a> {
    Waits(AcquireLoop<'a>),
    /// Boxed: unboxed, each of these would add its size to every waiting future.
    Else(BoxFuture<'a, Result<HoldGuard, Error>>),
}

impl AcquireEntry<'_> {
    async fn run(&mut self) -> Result<HoldGuard, Error> {
        match self {
            Self::Waits(acquires) => acquires.run().await,
            Self::Else(acquires) => acquires.await,
        }
    }
}

impl ClientEngine {
    /// Acquires the lock, then waits for replicas.
    async fn lock_on_replicas(
        self: &Arc<Self>,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'_>,
        ack: Ack,
    ) -> Result<HoldGuard, Error> {
        let node = self.nodes.known(self.nodes.slot_of(recipe.name()));
        let lane = node.as_ref().map(|node| node.acks(ack.lane()));
        if let Some(fault) = lane.and_then(|lane| lane.connection.cannot_wait(ack.disk())) {
            return Err(fault.into_error(ACTION).named(recipe.name().as_arc()));
        }
        let wait = params.wait.filter(|wait| !wait.is_zero());
        let deadline = wait.map(|wait| clock::after(clock::now(), wait));
        let guard = self.entry(recipe, terms, params).run().await?;
        self.acknowledged(ACTION, guard, ack, deadline).await
    }

    /// Re-enters a hold of the caller's frames or of its owner, or acquires the lock anew.
    ///
    /// The work begins with the call. It is no `async fn`, nor are those that it awaits: the future of such
    /// a function keeps its arguments to its end, in addition to the place to which they were moved.
    pub(crate) fn lock<'a>(
        self: &'a Arc<Self>,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'a>,
    ) -> impl Future<Output = Result<HoldGuard, Error>> + Send + 'a {
        let terms = terms.of_kind(recipe.profile().kind);
        let acquiring = terms.meter.acquiring();
        let meter = terms.meter;
        let span = Spanned::acquire(meter, recipe.profile().kind, recipe.name());
        let mut entry = self.entry(recipe, terms, params);
        if span.is_some() {
            let mut inside = entry;
            entry = AcquireEntry::Else(Box::pin(async move {
                let guard = span.around(inside.run()).await?;
                let recipe = &guard.hold.recipe;
                let held = Spanned::held(meter, recipe.profile().kind, recipe.name());
                drop(guard.hold.lease().traced(held));
                Ok(guard)
            }));
        }
        async move {
            // Not `run`: that future would add its size to every waiting one.
            let outcome = match &mut entry {
                AcquireEntry::Waits(acquires) => acquires.run().await,
                AcquireEntry::Else(acquires) => acquires.await,
            };
            acquiring.ended(&outcome);
            outcome
        }
    }

    fn entry<'a>(
        self: &'a Arc<Self>,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'a>,
    ) -> AcquireEntry<'a> {
        let (wait, owner) = (params.wait, params.owner);
        let acquires: BoxFuture<'a, Result<HoldGuard, Error>> =
            if let Err(error) = self.ensure_open(ACTION, recipe.name()) {
                Box::pin(ready(Err(error)))
            } else if let Some(turn) = self.body_turn(&*recipe, &params) {
                Box::pin(self.lock_in_turn(turn, recipe, terms, params))
            } else if let Some(ack) = params.ack {
                let params = AcquireParams {
                    ack: None,
                    ..params
                };
                Box::pin(self.lock_on_replicas(recipe, terms, params, ack))
            } else if let Some(steal) = params.steal {
                Box::pin(steal.run(self, recipe, terms))
            } else if wait.is_some_and(|wait| wait.is_zero()) {
                Box::pin(async move { self.lock_now(&recipe, terms, owner).await })
            } else if let Some(owner) = owner {
                Box::pin(async move { self.lock_as(owner, &recipe, terms, params).await })
            } else if let Some(around) = reentry::enclosing(&self.id, &*recipe) {
                Box::pin(async move {
                    let deadline = wait.map(|wait| clock::after(clock::now(), wait));
                    self.lock_inside(around, &recipe, terms, deadline).await
                })
            } else {
                return AcquireEntry::Waits(AcquireLoop::new(self, recipe, terms, params, wait));
            };
        AcquireEntry::Else(acquires)
    }

    /// Acquires the lock for an owner. Calls of one owner for one name run one after the
    /// other.
    async fn lock_as(
        self: &Arc<Self>,
        owner: &Owner,
        recipe: &Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'_>,
    ) -> Result<HoldGuard, Error> {
        let (started, wait) = (clock::now(), params.wait);
        let deadline = wait.map(|wait| clock::after(started, wait));
        let slot = owner.slot(&self.id, &**recipe);
        let Some(mut turn) = clock::before(deadline, slot.lock()).await else {
            // Another call of this owner is acquiring the lock, and has the same result as the head of
            // the queue.
            let fares = self.locks.waiters(key_of(&**recipe)).fares();
            return Err(acquire_loop::out_of_time(
                self, recipe, fares, started, wait, None,
            ));
        };
        if let Some(around) = owned(&turn, &**recipe) {
            match self.lock_inside(around, recipe, terms, deadline).await {
                // The last guard of the hold ended meanwhile, or the hold was lost: acquire anew.
                Err(error) if error.is_lost() => {}
                outcome => return Ok(keep(&mut turn, &slot, outcome?)),
            }
        }
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(clock::now()));
        let mut acquisition = AcquireLoop::new(self, Arc::clone(recipe), terms, params, rest);
        let guard = acquisition.run().await?;
        Ok(keep(&mut turn, &slot, guard))
    }

    /// Whether the caller, or its owner, has the lock in some mode, so that the caller does not
    /// wait for itself.
    pub(crate) fn is_around(&self, recipe: &dyn Recipe, owner: Option<&Owner>) -> bool {
        match owner {
            None => reentry::enclosing(&self.id, recipe).is_some(),
            Some(owner) => match owner.slot(&self.id, recipe).try_lock() {
                Ok(holds) => owned(&holds, recipe).is_some(),
                Err(_) => false,
            },
        }
    }

    /// Takes the lock for a caller that already holds it, in this mode or in another.
    async fn lock_inside(
        self: &Arc<Self>,
        around: EnclosingHold,
        recipe: &Arc<dyn Recipe>,
        terms: Terms,
        deadline: Option<Instant>,
    ) -> Result<HoldGuard, Error> {
        match around.relation {
            Relation::Joins => {
                let joined = self.join(recipe, terms, &around.hold, deadline).await?;
                joined.ok_or_else(|| around.hold.lost_error(ACTION, LostReason::Deleted))
            }
            Relation::Deadlocks => {
                Err(Error::new(ErrorKind::UpgradeWouldDeadlock, ACTION)
                    .named(recipe.name().as_arc()))
            }
            Relation::Same | Relation::None => around.hold.reenter(terms, deadline).await,
        }
    }

    /// Takes a lock in another mode under `hold`, whose holder may have both modes. `None`: not at present.
    pub(crate) async fn join(
        self: &Arc<Self>,
        recipe: &Arc<dyn Recipe>,
        terms: Terms,
        hold: &Arc<Hold>,
        deadline: Option<Instant>,
    ) -> Result<Option<HoldGuard>, Error> {
        let until = deadline.unwrap_or_else(|| self.patience(clock::now()));
        let outcome = try_acquire(self, recipe, terms, Some(hold), until).await?;
        Ok(outcome.ok())
    }

    /// The mutex by which the bodies under the caller's frame take turns.
    fn body_turn(&self, recipe: &dyn Recipe, params: &AcquireParams<'_>) -> Option<BodyTurn> {
        let alone = params.for_body && params.owner.is_none() && recipe.profile().exclusive;
        let around = alone.then(|| reentry::enclosing(&self.id, recipe))?;
        around?.turn
    }

    /// Acquires the lock for the guard of one body. The turn ends with the guard.
    async fn lock_in_turn(
        self: &Arc<Self>,
        turn: BodyTurn,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'_>,
    ) -> Result<HoldGuard, Error> {
        let started = clock::now();
        let tries_once = params.wait.is_some_and(|wait| wait.is_zero());
        let turn = match tries_once {
            true => turn.try_lock_owned().ok(),
            false => {
                let until = params.wait.map(|wait| clock::after(started, wait));
                clock::before(until, turn.lock_owned()).await
            }
        };
        let rest = |wait: Duration| wait.saturating_sub(clock::now() - started);
        let rest = params.wait.map(rest);
        // A rest of zero would mean no limit for the try.
        let in_time = tries_once || rest.is_none_or(|rest| !rest.is_zero());
        let Some(turn) = turn.filter(|_| in_time) else {
            let error = match tries_once {
                true => Error::new(ErrorKind::Contended, ACTION).named(recipe.name().as_arc()),
                false => timed_out(self, &*recipe),
            };
            return Err(error.detail("another body of the same caller is under it"));
        };
        let params = AcquireParams {
            wait: rest,
            for_body: false,
            ..params
        };
        // Not `lock`: this call is counted already.
        let mut guard = self.entry(recipe, terms, params).run().await?;
        guard.turn = Some(turn);
        Ok(guard)
    }

    /// Tries once for a caller with a wait of zero: the one try has the response time-out for its
    /// reply.
    async fn lock_now(
        self: &Arc<Self>,
        recipe: &Arc<dyn Recipe>,
        terms: Terms,
        owner: Option<&Owner>,
    ) -> Result<HoldGuard, Error> {
        let contended = |refusal| {
            let error = Error::new(ErrorKind::Contended, ACTION).named(recipe.name().as_arc());
            match refusal {
                Refusal::Held => error,
                Refusal::Unset => error.saying(UNSET),
            }
        };
        let until = self.patience(clock::now());
        let Some(owner) = owner else {
            return match reentry::enclosing(&self.id, &**recipe) {
                Some(around) => self.lock_inside(around, recipe, terms, Some(until)).await,
                None => {
                    let outcome = try_acquire(self, recipe, terms, None, until).await?;
                    outcome.map_err(contended)
                }
            };
        };
        let slot = owner.slot(&self.id, &**recipe);
        let mut turn = slot.try_lock().map_err(|_| contended(Refusal::Held))?;
        if let Some(around) = owned(&turn, &**recipe) {
            match self.lock_inside(around, recipe, terms, Some(until)).await {
                Err(error) if error.is_lost() => {}
                outcome => return Ok(keep(&mut turn, &slot, outcome?)),
            }
        }
        let outcome = try_acquire(self, recipe, terms, None, until).await?;
        Ok(keep(&mut turn, &slot, outcome.map_err(contended)?))
    }
}

/// The error for a caller whose wait is over.
fn timed_out(engine: &ClientEngine, recipe: &dyn Recipe) -> Error {
    engine.tells(recipe, LockEvent::TimedOut);
    Error::new(ErrorKind::TimedOut, ACTION).named(recipe.name().as_arc())
}

impl HoldGuard {
    /// Takes the lock in another mode in addition, on this guard's terms; `None`: it is not free.
    pub(crate) async fn also(
        &self,
        action: &'static str,
        recipe: &Arc<dyn Recipe>,
    ) -> Result<Option<Self>, Error> {
        let hold = &self.hold;
        let engine = &hold.engine;
        engine.ensure_open(action, recipe.name())?;
        let now = clock::now();
        if let GuardState::Lost(reason) = self.state_at(now) {
            return Err(hold.lost_error(action, reason));
        }
        let terms = self
            .terms(now)
            .ok_or_else(|| hold.lost_error(action, LostReason::ShutDown))?;
        let until = engine.patience(now);
        let named = |error: Error| error.trying(action);
        let Some(slot) = hold.slot() else {
            let joined = engine.join(recipe, terms, hold, Some(until)).await;
            return joined.map_err(named);
        };
        // The owner has the new hold too, and finds it at its next call. The owner waits for no call while
        // it holds the lock, so the slot is soon free.
        let turn = clock::timeout_at(clock::to_tokio(until), slot.lock()).await;
        let mut turn = turn.map_err(|_| {
            Error::new(ErrorKind::Unavailable, action).named(recipe.name().as_arc())
        })?;
        let joined = engine.join(recipe, terms, hold, Some(until)).await;
        let joined = joined.map_err(named)?;
        Ok(joined.map(|guard| keep(&mut turn, slot, guard)))
    }
}
