//! An acquisition in progress: an owner number that does not have a hold yet.

use std::sync::Arc;
use std::time::Instant;

use super::ACTION;
use crate::connection::{Delivery, Fault};
use crate::engine::ClientEngine;
use crate::engine::guard::HoldGuard;
use crate::engine::hold::{Claim, Hold, Request, Terms};
use crate::engine::release::{OrphanedAttempt, Outstanding, abandon};
use crate::error::Error;
use crate::wire::{AcquireReply, Recipe, Reply, Tokens};

/// If an attempt is dropped before the owner number has a hold, the release queue makes sure that
/// it never gets one.
pub(super) struct Attempt {
    pub(super) request: Request,
    delivery: Delivery,
    /// The attempt was refused, but left something in Redis.
    traces: bool,
    done: bool,
    /// Set while a call is in progress or its outcome is unknown. Dropped last.
    open: Option<Outstanding>,
}

impl Attempt {
    pub(super) fn new(engine: &Arc<ClientEngine>, recipe: Arc<dyn Recipe>, terms: Terms) -> Self {
        Self {
            request: Request::new(engine, recipe, terms),
            delivery: Delivery::default(),
            traces: false,
            done: false,
            open: None,
        }
    }

    /// Asks for a hold in another mode of a lock that is held.
    pub(super) fn under(hold: &Arc<Hold>, recipe: Arc<dyn Recipe>, terms: Terms) -> Self {
        let mut attempt = Self::new(&hold.engine, recipe, terms);
        attempt.request.claim = Claim::Under(hold.owner);
        if let Some(owner) = hold.paired_owner() {
            attempt.request.owner = owner;
        }
        attempt
    }

    /// Asks for the lock once; `None`: the deadline came first. [`read_answer`](Self::read_answer) reads the answer.
    /// The call may be repeated, since the same owner asks for the same hold. `now`: a moment that is not after the
    /// present one.
    pub(super) fn ask(
        &mut self,
        waits: bool,
        deadline: Option<Instant>,
        now: Instant,
    ) -> impl Future<Output = Option<Result<Reply, Fault>>> + Send {
        let request = &self.request;
        let Request { engine, recipe, .. } = request;
        self.open
            .get_or_insert_with(|| engine.releases.register(recipe.profile().is_lasting()));
        let call = move || request.call(waits, deadline);
        let to = engine.to(recipe.name());
        self.delivery.attempt_at(to, call, deadline, Some(now))
    }

    /// Reads what [`ask`](Self::ask) returned.
    pub(super) fn read_answer(
        &mut self,
        waits: bool,
        answer: Option<Result<Reply, Fault>>,
    ) -> Option<Result<AcquireReply, Fault>> {
        let recipe = &self.request.recipe;
        let profile = recipe.profile();
        let read = |reply| recipe.acquired(reply);
        let reply = answer.map(|answer| self.delivery.read(answer, read));
        if let Some(Ok(reply)) = &reply
            && !matches!(reply, AcquireReply::Acquired(..))
        {
            let traces = waits && profile.leaves_traces;
            // Earlier calls with this number did not get the lock either. But if their connection could not be
            // killed, they may still arrive.
            let late = self.delivery.is_open() && profile.notes_withdrawals;
            self.request.repeated |= late;
            self.delivery.close();
            self.traces |= traces;
        }
        if !matches!(reply, Some(Ok(AcquireReply::Acquired(..)))) && !self.is_open() {
            self.open = None;
        }
        reply
    }

    /// When it last asked.
    pub(super) fn asked(&self) -> Option<Instant> {
        self.delivery.sent
    }

    /// A call that was sent at this time has acquired the lock for the number.
    pub(super) fn granted(&mut self, sent: Instant) {
        self.request.repeated |= self.delivery.is_open();
        self.delivery = Delivery::default();
        self.delivery.sent = Some(sent);
    }

    /// Whether Redis may have stored something for this number.
    fn is_open(&self) -> bool {
        self.traces || self.request.repeated || self.delivery.is_open()
    }

    /// Whether Redis has replied that the lock is taken, although the call is not over.
    pub(super) fn found_taken(&self) -> bool {
        self.delivery.found_taken()
    }

    /// The hold that Redis has given to the number. `None`: the lease was over before the guard could be returned,
    /// as if the lock had never been acquired.
    pub(super) fn succeed(
        &mut self,
        tokens: Option<Tokens>,
        now: Instant,
    ) -> Result<Option<HoldGuard>, Error> {
        self.done = true;
        let sent = self.delivery.sent.unwrap_or(now);
        self.request.repeated |= self.delivery.is_open();
        let (guard, is_valid) = HoldGuard::acquired(&self.request, tokens, sent, now);
        // Checked after the hold is registered with those that a shut-down ends: either the
        // shut-down finds the hold, or this check finds the client closing.
        let Request { engine, recipe, .. } = &self.request;
        if engine.is_closing() {
            return Err(engine.shut_down_error(ACTION, recipe.name()));
        }
        Ok(Some(guard).filter(|_| is_valid))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.delivery.recall();
        if self.done || !self.is_open() {
            return;
        }
        let orphan = OrphanedAttempt {
            request: self.request.clone(),
            traces: self.traces || self.request.repeated,
            delivery: std::mem::take(&mut self.delivery),
        };
        abandon(orphan);
    }
}
