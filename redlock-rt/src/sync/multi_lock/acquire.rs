//! One call that wants several locks.
//!
//! The call holds the first locks while it waits for the next; otherwise callers that want many would
//! starve. Until the last lock is taken, all are renewed, and `max_hold` is not counted. Then the
//! requested terms take effect.
//!
//! Addresses do not show that two servers are the same (`localhost` and `127.0.0.1`, a proxy). So if a
//! part has the same name as one that was taken before, the call first asks its server for the holder of
//! that name. If the holder is the owner that was just created, it is the same server: the lock is taken
//! already (or, for another kind, refused). Without this check the call would wait for itself.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::join_all;

use super::super::group::{Parts, roll_back};
use super::super::options::LockOptions;
use super::{ACTION, Checked, Flaw};
use crate::clock;
use crate::engine::{AcquireParams, Terms, TogetherOutcome};
use crate::error::{Error, ErrorKind};
use crate::name::HoldId;
use crate::wire::Recipe;

/// One call that wants all parts.
pub(super) struct MultiLockCall<'a> {
    pub(super) parts: &'a [Checked],
    pub(super) terms: &'a [Terms],
    pub(super) options: &'a LockOptions,
    pub(super) started: Instant,
}

impl MultiLockCall<'_> {
    fn deadline(&self) -> Option<Instant> {
        let wait = self.options.wait;
        wait.map(|wait| clock::after(self.started, wait))
    }

    pub(super) fn is_over(&self) -> bool {
        self.deadline()
            .is_some_and(|deadline| clock::now() >= deadline)
    }

    fn tries_once(&self) -> bool {
        self.options.wait.is_some_and(|wait| wait.is_zero())
    }

    /// Acquires all parts, or releases those that it has.
    pub(super) async fn gather(&self) -> Result<Parts, Error> {
        if let Some(together) = self.together().await? {
            return Ok(together);
        }
        let mut taken = Parts::new();
        // With a wait of zero, the replies to all tries share one response time-out.
        let gathered = clock::before(self.patience(), self.one_by_one(&mut taken)).await;
        let late = || Err(Error::new(ErrorKind::Unavailable, ACTION).detail("no answer in time"));
        match gathered.unwrap_or_else(late) {
            Ok(()) => Ok(taken),
            Err(error) => {
                let until = self.patience().or_else(|| self.deadline());
                let until = until.unwrap_or_else(|| self.patience_from(clock::now()));
                roll_back(taken, until).await;
                Err(error)
            }
        }
    }

    fn patience(&self) -> Option<Instant> {
        self.tries_once().then(|| self.patience_from(self.started))
    }

    fn patience_from(&self, now: Instant) -> Instant {
        let engines = self.parts.iter().map(|part| &part.engine);
        engines
            .map(|engine| engine.patience(now))
            .max()
            .unwrap_or(now)
    }

    /// Tries to take all locks in one call; `None`: they must be taken one by one.
    async fn together(&self) -> Result<Option<Parts>, Error> {
        let [first, second, rest @ ..] = self.parts else {
            return Ok(None);
        };
        let one_client = |part: &Checked| Arc::ptr_eq(&part.engine, &first.engine);
        if self.options.owner.is_some() || !one_client(second) || !rest.iter().all(one_client) {
            return Ok(None);
        }
        let recipes: Vec<_> = self
            .parts
            .iter()
            .map(|part| Arc::clone(&part.recipe) as Arc<dyn Recipe>)
            .collect();
        let engine = &first.engine;
        // The common call acquires on the master alone, and is not repeated.
        let asks = self.options.params(engine, None);
        let alone = asks.ack.is_some() || asks.outlasts_denial;
        if alone || !engine.may_acquire_together(&recipes) {
            return Ok(None);
        }
        let until = self.patience().or_else(|| self.deadline());
        // Boxed for the compiler; see `Opaque`.
        let together = engine.acquire_together(&recipes, self.terms[0], until);
        match together.boxed().await? {
            TogetherOutcome::Acquired(guards) => Ok(Some(guards.into_iter().enumerate().collect())),
            TogetherOutcome::Held(index) if self.tries_once() => {
                let name = recipes[index].name().as_arc();
                Err(Error::new(ErrorKind::Contended, ACTION).named(name))
            }
            TogetherOutcome::Failed(error) if self.tries_once() || self.is_over() => Err(error),
            TogetherOutcome::Held(_) | TogetherOutcome::Failed(_) | TogetherOutcome::Apart => {
                Ok(None)
            }
        }
    }

    /// Waits for one lock after the other, in their order, and keeps those that it has.
    async fn one_by_one(&self, taken: &mut Parts) -> Result<(), Error> {
        let deadline = self.deadline();
        for (place, part) in self.parts.iter().enumerate() {
            if self.is_among(part, taken).await? {
                continue;
            }
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(clock::now()));
            if rest.is_some_and(|rest| rest.is_zero()) && !self.tries_once() {
                let error = Error::new(ErrorKind::TimedOut, ACTION);
                return Err(error
                    .named(part.recipe.name().as_arc())
                    .detail("the wait was over when its turn came"));
            }
            // Renewed during the wait for other locks: its terms begin when all are acquired.
            let own = self.terms[place];
            let meanwhile = Terms {
                renew: own.renew.or_else(|| Some(own.lease / 3)),
                max_hold: None,
                ..own
            };
            let engine = &part.engine;
            let params = AcquireParams {
                wait: rest,
                ..self.options.params(engine, part.backoff.as_deref())
            };
            let recipe = Arc::clone(&part.recipe) as Arc<dyn Recipe>;
            let guard = engine.lock(recipe, meanwhile, params).await;
            let guard = guard.map_err(|error| match (error.kind(), self.options.wait) {
                // This call knows the whole wait.
                (ErrorKind::TimedOut, Some(wait)) => error.detail(format!("waited {wait:?}")),
                _ => error,
            })?;
            taken.insert(place, guard);
        }
        self.begin(taken).await;
        Ok(())
    }

    /// Whether the lock was taken already on the same server under another address. In that case
    /// the server returns the owner that was just created. Without this check the call would wait
    /// for itself.
    async fn is_among(&self, part: &Checked, taken: &Parts) -> Result<bool, Error> {
        for (place, guard) in taken {
            let known = &self.parts[*place];
            if known.recipe.name() != part.recipe.name() {
                continue;
            }
            let holders = self.holders_seen_by(part, known).await?;
            if !holders.contains(guard.hold.hold_id()) {
                continue;
            }
            if known.recipe.profile().kind != part.recipe.profile().kind {
                return Err(Flaw::Kinds(part.recipe.name().clone()).into());
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The holder of the lock `known` on the server of `part`. Waits through outages as an
    /// acquisition does.
    async fn holders_seen_by(&self, part: &Checked, known: &Checked) -> Result<Vec<HoldId>, Error> {
        let seen = known.seen_by(&part.engine);
        let bound = self.deadline().filter(|_| !self.tries_once());
        loop {
            match clock::before(bound, seen.holders()).await {
                Some(Err(error)) if error.is_unavailable() && !self.tries_once() => {}
                Some(answer) => return answer,
                None => {
                    let late = part.engine.no_answer(part.recipe.name()).into_error(ACTION);
                    return Err(late.named(part.recipe.name().as_arc()));
                }
            }
        }
    }

    /// All parts are acquired: from now on the terms apply, and leases without renewal start again.
    async fn begin(&self, taken: &Parts) {
        let last = taken.keys().last();
        let begun = taken.iter().map(|(place, guard)| async move {
            let terms = self.terms[*place];
            guard.retune(terms);
            if terms.renew.is_none() && Some(place) != last {
                let full = guard.hold.lengthen(ACTION, terms.lease, self.deadline());
                if let Err(error) = full.await {
                    // The guard reports a loss.
                    tracing::debug!(%error, "a lease did not begin anew");
                }
            }
        });
        join_all(begun).await;
    }
}
