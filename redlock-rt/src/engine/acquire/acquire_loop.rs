//! The one acquire loop, for locks of every kind.
//!
//! ```text
//! join the local queue ─▶ head? ─▶ try (script) ─▶ acquired
//!                            ▲         │ held
//!                            │         ▼
//!                            └── announced, confirmed, lease over, poll ◀── subscribed
//! ```
//!
//! The wait limits all of this: queueing, connecting, subscribing, trying.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::backoff::RetryPlan;
use super::local_wait::LocalWait;
use super::owner::{Owner, OwnerWait};
use super::{ACTION, AcquireParams, timed_out};
use crate::clock;
use crate::connection::{Caller, Fault};
use crate::engine::ClientEngine;
use crate::engine::guard::HoldGuard;
use crate::engine::hand_over::{Offer, Taken};
use crate::engine::hold::{Claim, Hold, LostReason, Terms};
use crate::engine::hub::Rivals;
use crate::engine::wait::{Called, Health, NOT_POLLED, Refusal, Waits, Wake};
use crate::error::{Error, ErrorKind};
use crate::meter::Spanned;
use crate::wire::{AcquireReply, Acquired, FairPlace, Recipe};

const TIMED_OUT_UNSET: &str = "timed out; the permits were never set";
/// The log target for waits for permits that were never set.
const SEMAPHORE: &str = "redlock_rt::semaphore";
/// After this many leases in a row that were over before their guards could be returned, the error says that
/// the lease is too short.
const MOST_EXPIRED_ON_ARRIVAL: u32 = 3;

/// A waiting caller.
pub(super) struct AcquireLoop<'a> {
    owner: Option<&'a Owner>,
    started: Instant,
    deadline: Option<Instant>,
    outlasts_denial: bool,
    pace: RetryPlan,
    /// Why Redis did not answer the last try.
    fault: Option<Fault>,
    /// The number of tries since Redis answered.
    unanswered: u32,
    /// The number of leases in a row that were over before their guards could be returned.
    expired_on_arrival: u32,
    /// Whether the log line about permits that were never set was written.
    warned: bool,
    /// The caller has neither waited nor tried since `started`.
    fresh: bool,
    /// The caller needs more than one try.
    waits: bool,
    /// Boxed, since few callers have an owner.
    _asking: Option<Box<OwnerWait>>,
    place: LocalWait,
    attempt: Attempt,
}

impl<'a> AcquireLoop<'a> {
    /// A caller that waits at most for `wait`.
    pub(super) fn new(
        engine: &Arc<ClientEngine>,
        recipe: Arc<dyn Recipe>,
        terms: Terms,
        params: AcquireParams<'a>,
        wait: Option<Duration>,
    ) -> Self {
        let started = clock::stamp();
        let attempt = Attempt::new(engine, recipe, terms);
        Self {
            owner: params.owner,
            started,
            deadline: wait.map(|wait| clock::after(started, wait)),
            outlasts_denial: params.outlasts_denial,
            pace: RetryPlan::new(params.backoff.copied(), started),
            fault: None,
            unanswered: 0,
            expired_on_arrival: 0,
            warned: false,
            fresh: true,
            waits: false,
            _asking: asking(params.owner, &attempt),
            place: LocalWait::enter(&attempt, started, wait),
            attempt,
        }
    }
}

fn asking(owner: Option<&Owner>, attempt: &Attempt) -> Option<Box<OwnerWait>> {
    owner.map(|owner| Box::new(owner.ask(&attempt.request)))
}

impl AcquireLoop<'_> {
    /// Acquires the lock, and waits for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping this at any point leaves nothing behind: it gives up the place in the queue, and
    /// hands a try in progress to the release queue, which frees the lock if the try succeeded.
    pub(super) async fn run(&mut self) -> Result<HoldGuard, Error> {
        loop {
            // The runtime of the client's tasks may have ended while this caller waited.
            self.engine().ensure_tasks();
            // Nearly every caller may try at once, and needs no timer.
            self.fresh = self.fresh && self.place.tries_at_once(self.started);
            if !self.fresh {
                if !std::mem::replace(&mut self.waits, true) {
                    self.attempt.request.terms.meter.waits();
                    Spanned::waits();
                }
                let until = self.deadline.into_iter().chain(self.pace.gives_up_at());
                match self.place.called(until.min()).await {
                    Called::Wake(Wake::Try) => {}
                    called => match self.called(called)? {
                        Some(guard) => return Ok(guard),
                        None => continue,
                    },
                }
            }
            if self.place.is_withdrawn() {
                self.enter_again();
                continue;
            }
            if let Some(sent) = self.place.take_grant(self.attempt.asked()) {
                self.attempt.granted(sent);
                match self.acquired(Acquired::default())? {
                    Some(guard) => return Ok(guard),
                    None => continue,
                }
            }
            let asked = self.tries();
            let answer = {
                let asks = pin!(self.attempt.ask(true, self.deadline, asked));
                self.place.running(asks).await
            };
            let outcome = self.attempt.read_answer(true, answer);
            if let Some(guard) = self.tried(outcome)? {
                return Ok(guard);
            }
        }
    }

    fn engine(&self) -> &Arc<ClientEngine> {
        &self.attempt.request.engine
    }

    fn recipe(&self) -> &Arc<dyn Recipe> {
        &self.attempt.request.recipe
    }

    /// The waiter was woken for another reason than a try.
    fn called(
        &mut self,
        called: Called<Infallible, Box<Offer>>,
    ) -> Result<Option<HoldGuard>, Error> {
        match called {
            Called::TimedOut => self.timed_out()?,
            Called::Wake(Wake::Head) => self.place.listen(self.engine(), self.recipe()),
            Called::Wake(Wake::Closed) => {
                let name = self.recipe().name();
                return Err(self.engine().shut_down_error(ACTION, name));
            }
            Called::Wake(Wake::Offered(offer)) => return self.take(offer),
            Called::Wake(Wake::Done(never)) => match never {},
            Called::Wake(Wake::Try) => {}
        }
        Ok(None)
    }

    /// The wait or the retries have run out. Retries that Redis did not answer do not count.
    fn timed_out(&mut self) -> Result<(), Error> {
        let (now, (health, _)) = (clock::now(), self.place.fares());
        if self.pace.gives_up_at().is_some_and(|at| at <= now) {
            let silence = self
                .engine()
                .silence(self.recipe().name(), health, self.started);
            if silence.is_none() {
                return Err(self.out_of_retries());
            }
            if self.deadline.is_none_or(|deadline| now < deadline) {
                self.pace.unanswered(now);
                return Ok(());
            }
        }
        Err(self.out_of_time())
    }

    /// Takes over the hold of another task of this client; `None`: the caller continues to wait.
    fn take(&mut self, offer: Box<Offer>) -> Result<Option<HoldGuard>, Error> {
        let now = clock::now();
        let taken = match self.owner {
            None => offer.take(&self.attempt.request, now),
            // A request of an explicit owner needs its own number.
            Some(_) => Taken::Declined(offer),
        };
        match taken {
            Taken::Guard(guard) => {
                let retry_at = self.engine().next_poll(now);
                self.place.served(false, false, retry_at);
                Ok(Some(guard))
            }
            Taken::Declined(offer) => {
                // Before the release is sent, so that its announcement is not missed.
                let retry_at = self.engine().next_poll(now);
                self.place.tried(Some(retry_at), Health::Answering);
                drop(offer);
                Ok(None)
            }
            Taken::Closed => Err(self.engine().shut_down_error(ACTION, self.recipe().name())),
        }
    }

    /// Asks Redis as the head of the local queue, at the moment that is returned.
    fn tries(&mut self) -> Instant {
        let asked = match std::mem::take(&mut self.fresh) {
            // The look at the queue has read the time.
            true => self.started,
            false => {
                let asked = clock::stamp();
                self.place.set_health(Health::Asking(asked));
                asked
            }
        };
        self.pace.tries(asked);
        asked
    }

    /// Processes the answer of Redis; `None`: the time ran out before. Returns `None` if the caller continues
    /// to wait.
    fn tried(
        &mut self,
        outcome: Option<Result<AcquireReply, Fault>>,
    ) -> Result<Option<HoldGuard>, Error> {
        let Some(outcome) = outcome else {
            if self.attempt.found_taken() {
                self.place.set_refusal(Refusal::Held);
                self.place.set_health(Health::Answering);
                self.answered();
            }
            let error = self.out_of_time();
            if error.is_unavailable() {
                // For the waiters behind this one, whose waits may end at the same time.
                self.place.set_health(Health::Failing);
            }
            return Err(error);
        };
        match outcome {
            Ok(AcquireReply::Acquired(acquired)) => return self.acquired(acquired),
            Ok(AcquireReply::Held(ttl)) => self.refused(ttl, None)?,
            Ok(AcquireReply::Queued(place)) if place.is_next => {
                self.refused(place.lease, Some(place))?;
            }
            Ok(AcquireReply::Unset) => self.unset()?,
            Ok(AcquireReply::Over) => {
                self.place.set_health(Health::Answering);
                return Err(self.named(Error::new(ErrorKind::Contended, ACTION)));
            }
            Ok(AcquireReply::Queued(place)) => {
                self.answered();
                self.place.refused(&self.attempt, Some(place), None);
            }
            // Redis returns this only to a caller that asks under a hold, which does not happen here.
            Ok(AcquireReply::Orphaned) => {
                return Err(self.named(Error::new(ErrorKind::Lost, ACTION)));
            }
            Err(fault) => {
                let outlasts = self.outlasts_denial && fault.is_denied();
                let passing = outlasts || fault.is_passing_for(Caller::Waiter);
                let retry = self.engine().config.timeouts.retry;
                let pause = passing.then(|| retry.next(&mut self.unanswered));
                match pause.flatten() {
                    Some(pause) => self.unanswered(fault, pause),
                    None => return Err(self.named(fault.into_error(ACTION))),
                }
            }
        }
        Ok(None)
    }

    fn acquired(&mut self, acquired: Acquired) -> Result<Option<HoldGuard>, Error> {
        let now = clock::now();
        if !self.place.takes() {
            self.enter_again();
            return Ok(None);
        }
        if let Some(guard) = self.attempt.succeed(acquired.tokens, now)? {
            let shared = !self.recipe().profile().exclusive;
            let more = shared && acquired.leaves_more();
            let retry_at = self.engine().next_look(now, acquired.next_expiry);
            self.place.served(shared, more, retry_at);
            return Ok(Some(guard));
        }
        self.expired_on_arrival += 1;
        if self.expired_on_arrival == MOST_EXPIRED_ON_ARRIVAL {
            return Err(expired_on_arrival(self.recipe()));
        }
        self.enter_again();
        Ok(None)
    }

    /// Continues to wait as another owner.
    fn enter_again(&mut self) {
        let recipe = Arc::clone(self.recipe());
        self.attempt = Attempt::new(self.engine(), recipe, self.attempt.request.terms);
        self._asking = asking(self.owner, &self.attempt);
        self.place.enter_again(&self.attempt);
    }

    /// Another holder has the lock, at most for this long.
    fn refused(&mut self, ttl: Option<Duration>, place: Option<FairPlace>) -> Result<(), Error> {
        self.place.set_refusal(Refusal::Held);
        if let Some(channel) = self.recipe().channel() {
            self.engine().hub.rivals(channel, Rivals::refused);
        }
        self.wait_on(ttl, place)
    }

    /// The permits are not set yet.
    fn unset(&mut self) -> Result<(), Error> {
        if self.deadline.is_none() && !std::mem::replace(&mut self.warned, true) {
            let name = self.recipe().name().as_str();
            tracing::warn!(target: SEMAPHORE, name, "waiting for permits that were never set");
        }
        self.place.set_refusal(Refusal::Unset);
        self.wait_on(None, None)
    }

    fn wait_on(&mut self, ttl: Option<Duration>, place: Option<FairPlace>) -> Result<(), Error> {
        self.answered();
        let now = clock::now();
        let latest = self.engine().next_look(now, ttl);
        let Some(retry_at) = self.pace.refused(now, latest) else {
            return Err(self.out_of_retries());
        };
        self.place.refused(&self.attempt, place, Some(retry_at));
        Ok(())
    }

    fn answered(&mut self) {
        self.fault = None;
        self.unanswered = 0;
        if self.expired_on_arrival > 0 {
            let lease = self.attempt.request.terms.lease;
            let asked = self.attempt.asked();
            if asked.is_some_and(|asked| clock::now() < clock::after(asked, lease)) {
                self.expired_on_arrival = 0;
            }
        }
    }

    fn unanswered(&mut self, fault: Fault, pause: Duration) {
        let name = self.recipe().name().as_str();
        let current = self.engine().nodes.current();
        current.journal.will_repeat(name, &fault);
        self.fault = Some(fault);
        let now = clock::now();
        self.pace.unanswered(now);
        let retry_at = clock::after(now, pause);
        self.place.tried(Some(retry_at), Health::Failing);
    }

    fn out_of_retries(&self) -> Error {
        let error = timed_out(self.engine(), &**self.recipe());
        error.detail("all retries of the back-off were refused")
    }

    fn out_of_time(&mut self) -> Error {
        let fares = self.place.fares();
        let wait = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(self.started));
        let fault = self.fault.take();
        let (engine, recipe) = (self.engine(), self.recipe());
        out_of_time(engine, recipe, fares, self.started, wait, fault)
    }

    fn named(&self, error: Error) -> Error {
        error.named(self.recipe().name().as_arc())
    }
}

fn expired_on_arrival(recipe: &Arc<dyn Recipe>) -> Error {
    Error::new(ErrorKind::Lost, ACTION)
        .named(recipe.name().as_arc())
        .detail("the lease is over before the reply comes")
}

/// Tries once, past the local queue, at most until `until`. Under a hold in another mode it tries until Redis
/// answers.
///
/// # Cancel safety
///
/// If a try in progress acquires the lock, it is released in the background.
pub(super) async fn try_acquire(
    engine: &Arc<ClientEngine>,
    recipe: &Arc<dyn Recipe>,
    terms: Terms,
    under: Option<&Arc<Hold>>,
    until: Instant,
) -> Result<Result<HoldGuard, Refusal>, Error> {
    // For a kind with a mark, only Redis knows the holder.
    let may_know = under.is_none() && recipe.mark().is_none();
    if may_know && engine.locks.is_held_here(&**recipe) {
        return Ok(Err(Refusal::Held));
    }
    let attempt = match under {
        Some(hold) => Attempt::under(hold, Arc::clone(recipe), terms),
        None => Attempt::new(engine, Arc::clone(recipe), terms),
    };
    try_once(engine, recipe, attempt, under, until).await
}

/// The same for an attempt that is allowed to try. A steal names its victim, so it also tries until Redis
/// answers.
pub(super) async fn try_once(
    engine: &Arc<ClientEngine>,
    recipe: &Arc<dyn Recipe>,
    mut attempt: Attempt,
    under: Option<&Arc<Hold>>,
    until: Instant,
) -> Result<Result<HoldGuard, Refusal>, Error> {
    let (retry, mut tries) = (&engine.config.timeouts.retry, 0);
    let outcome = loop {
        let answer = attempt.ask(false, Some(until), clock::stamp()).await;
        let outcome = attempt.read_answer(false, answer);
        let Some(Err(fault)) = &outcome else {
            break outcome;
        };
        // Only this caller can resolve the state of its other mode, so it asks again, as for a re-entry.
        let repeats = match under {
            Some(hold) => hold.is_valid(),
            None => matches!(attempt.request.claim, Claim::Steal(_)),
        };
        let repeats = repeats && fault.is_passing_for(Caller::Waiter);
        let again = repeats.then(|| retry.again(&mut tries, until));
        match again.flatten() {
            Some(again) => clock::sleep_until(again).await,
            None => break outcome,
        }
    };
    match outcome.unwrap_or_else(|| Err(engine.no_answer(recipe.name()))) {
        Ok(AcquireReply::Acquired(acquired)) => {
            attempt.tell_victim();
            let guard = attempt.succeed(acquired.tokens, clock::now())?;
            guard.map(Ok).ok_or_else(|| expired_on_arrival(recipe))
        }
        Ok(AcquireReply::Held(_) | AcquireReply::Queued(_) | AcquireReply::Over) => {
            Ok(Err(Refusal::Held))
        }
        Ok(AcquireReply::Unset) => Ok(Err(Refusal::Unset)),
        Ok(AcquireReply::Orphaned) => {
            if let Some(hold) = under {
                hold.mark_lost(LostReason::Deleted);
            }
            Ok(Err(Refusal::Held))
        }
        Err(fault) => Err(fault.into_error(ACTION).named(recipe.name().as_arc())),
    }
}

/// Why the time of a waiter ran out: Redis did not answer, another holder had the lock, or there was nothing to
/// acquire. `fares`: the state of the waiter that asks on behalf of this one.
pub(super) fn out_of_time(
    engine: &ClientEngine,
    recipe: &Arc<dyn Recipe>,
    (health, refusal): (Health, Refusal),
    started: Instant,
    wait: Option<Duration>,
    fault: Option<Fault>,
) -> Error {
    let error = match fault.or_else(|| engine.silence(recipe.name(), health, started)) {
        Some(fault) => fault.into_error(ACTION),
        None => {
            let wait = wait.unwrap_or_default();
            let error = timed_out(engine, &**recipe).detail(format!("waited {wait:?}"));
            match refusal {
                _ if health == Health::Unpolled => error.saying(NOT_POLLED),
                Refusal::Held => error,
                Refusal::Unset => error.saying(TIMED_OUT_UNSET),
            }
        }
    };
    error.named(recipe.name().as_arc())
}
