//! The one acquire loop, for locks of every kind.
//!
//! ```text
//! join the local queue ─▶ head? ─▶ try (script) ─▶ acquired
//!                            ▲         │ held
//!                            │         ▼
//!                            └── announced, confirmed, lease over, poll ◀── subscribed
//! ```
//!
//! The wait is a hard bound on all of it: queueing, connecting, subscribing, trying.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backoff::Pace;
use super::hold::{Bid, Hold, HoldGuard};
use super::lease::{LostReason, Terms};
use super::line::{Refusal, Turn};
use super::lines::{Called, Line, Place};
use super::queue::Seat;
use super::releases::Open;
use super::settle::{Ghost, Journey, Settlement};
use super::waiters::Health;
use super::{Engine, Manner};
use crate::clock;
use crate::connection::{Caller, Fault};
use crate::error::{Error, ErrorKind};
use crate::wire::{AcquireReply, Recipe};

pub(super) const ACTION: &str = "acquire lock";
pub(super) const UNSET: &str = "the permits were never set";
const TIMED_OUT_UNSET: &str = "timed out; the permits were never set";
/// Where a waiter logs that there is nothing to wait for yet.
const SEMAPHORE: &str = "redlock_rt::semaphore";

/// A lease that was over before its guard could be handed out: as often, and the lease is called
/// too short.
const MOST_STILLBORN: u32 = 3;
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Waits for the lock, at most until `deadline`.
///
/// # Cancel safety
///
/// Dropped at any point, it leaves nothing behind: the place in the queue is given up, and a try
/// under way is left to the release queue, which frees the lock if the try succeeded.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    recipe: &Arc<dyn Recipe>,
    terms: Terms,
    manner: Manner<'_>,
    wait: Option<Duration>,
) -> Result<HoldGuard, Error> {
    let started = clock::stamp();
    let deadline = wait.map(|wait| clock::after(started, wait));
    let line = engine.lines.line(&**recipe);
    let mut pace = Pace::new(manner.backoff.copied(), started);
    let mut claim = Claim::new(engine, recipe, &line, terms, None);
    let mut stand = Stand::take(&claim, started);
    let mut _asking = manner.owner.map(|owner| owner.ask(&claim.bid));
    let mut fault: Option<Fault> = None;
    let mut pause = SHORTEST_PAUSE;
    let mut stillborn = 0;
    let mut warned = false;
    loop {
        // The runtime of the client's tasks may have ended while this one waited.
        engine.ensure_tasks();
        let until = deadline.into_iter().chain(pace.gives_up_at()).min();
        match stand.place.called(until).await {
            Called::TimedOut => {
                let (now, health) = (clock::now(), stand.health());
                if pace.gives_up_at().is_some_and(|at| at <= now) {
                    if !is_unanswered(engine, health, started) {
                        return Err(out_of_retries(recipe));
                    }
                    if deadline.is_none_or(|deadline| now < deadline) {
                        pace.unanswered(now);
                        continue;
                    }
                }
                let refusal = stand.place.line.refusal();
                return Err(out_of_time(
                    engine,
                    recipe,
                    (health, refusal),
                    started,
                    wait,
                    fault,
                ));
            }
            Called::Turn(Turn::Closed) => return Err(engine.shut_down_error(ACTION, recipe.name())),
            Called::Turn(Turn::Head) => {
                stand.listen(engine, recipe);
            }
            Called::Turn(Turn::Try) => {
                let asked = clock::stamp();
                pace.tries(asked);
                stand.place.line.set_health(Health::Asking(asked));
                let Some(outcome) = claim.attempt(true, deadline).await else {
                    let fares = (stand.health(), stand.place.line.refusal());
                    let error = out_of_time(engine, recipe, fares, started, wait, fault);
                    if error.is_unavailable() {
                        // For those behind, whose waits may end with this one.
                        stand.place.line.set_health(Health::Failing);
                    }
                    return Err(error);
                };
                match outcome {
                    Ok(AcquireReply::Acquired(token, next)) => {
                        let now = clock::now();
                        let guard = claim.succeed(token, now)?;
                        if guard.state_at(now).is_valid() {
                            let shared = !recipe.is_exclusive();
                            let more = recipe.leaves_more(token);
                            let retry_at = engine.next_look(now, next);
                            stand.place.served(shared, more, retry_at);
                            return Ok(guard);
                        }
                        // Too late by our own clock: as if it had never been ours.
                        drop(guard);
                        stillborn += 1;
                        if stillborn == MOST_STILLBORN {
                            return Err(stillborn_error(recipe));
                        }
                        claim = Claim::new(engine, recipe, &line, terms, None);
                        _asking = manner.owner.map(|owner| owner.ask(&claim.bid));
                        stand.stand_again(&claim);
                    }
                    Ok(refused @ (AcquireReply::Held(_) | AcquireReply::Unset)) => {
                        let (ttl, refusal) = match refused {
                            AcquireReply::Held(ttl) => (ttl, Refusal::Held),
                            _ => (None, Refusal::Unset),
                        };
                        if refusal == Refusal::Unset && deadline.is_none() && !warned {
                            warned = true;
                            let name = recipe.name().as_str();
                            tracing::warn!(target: SEMAPHORE, name, "waiting for permits that were never set");
                        }
                        stand.place.line.set_refusal(refusal);
                        fault = None;
                        pause = SHORTEST_PAUSE;
                        let now = clock::now();
                        let latest = engine.next_look(now, ttl);
                        let Some(retry_at) = pace.refused(now, latest) else {
                            return Err(out_of_retries(recipe));
                        };
                        stand.refused(engine, recipe, Some(retry_at));
                    }
                    Ok(AcquireReply::Behind) => {
                        fault = None;
                        pause = SHORTEST_PAUSE;
                        stand.refused(engine, recipe, None);
                    }
                    // Asked of who asks under a hold, which is not done here.
                    Ok(AcquireReply::Orphaned) => {
                        return Err(
                            Error::new(ErrorKind::Lost, ACTION).named(recipe.name().as_arc())
                        );
                    }
                    Err(passing) if passing.is_passing_for(Caller::Waiter) => {
                        engine.current.will_repeat(recipe.name().as_str(), &passing);
                        fault = Some(passing);
                        let now = clock::now();
                        pace.unanswered(now);
                        let again = clock::after(now, pause);
                        stand.place.tried(Some(again), Health::Failing);
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Err(fault) => {
                        return Err(fault.into_error(ACTION).named(recipe.name().as_arc()));
                    }
                }
            }
        }
    }
}

fn out_of_retries(recipe: &Arc<dyn Recipe>) -> Error {
    Error::new(ErrorKind::TimedOut, ACTION)
        .named(recipe.name().as_arc())
        .detail("all retries of the back-off were refused")
}

fn stillborn_error(recipe: &Arc<dyn Recipe>) -> Error {
    Error::new(ErrorKind::Lost, ACTION)
        .named(recipe.name().as_arc())
        .detail("the lease is over before the reply comes")
}

/// Tries once, past the local queue, at most until `until`. Under a hold in another mode it tries
/// until it is answered.
///
/// # Cancel safety
///
/// As [`acquire`].
pub(crate) async fn try_acquire(
    engine: &Arc<Engine>,
    recipe: &Arc<dyn Recipe>,
    terms: Terms,
    under: Option<&Arc<Hold>>,
    until: Instant,
) -> Result<Result<HoldGuard, Refusal>, Error> {
    if under.is_none() && engine.lines.is_held_here(&**recipe) {
        return Ok(Err(Refusal::Held));
    }
    let line = engine.lines.line(&**recipe);
    let mut claim = Claim::new(engine, recipe, &line, terms, under);
    let mut pause = SHORTEST_PAUSE;
    let outcome = loop {
        match claim.attempt(false, Some(until)).await {
            // Nobody else decides about who holds it in another mode: it asks again, as for a
            // re-entry.
            Some(Err(passing))
                if passing.is_passing_for(Caller::Waiter)
                    && under.is_some_and(|hold| hold.is_valid())
                    && clock::after(clock::now(), pause) < until =>
            {
                clock::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            outcome => break outcome,
        }
    };
    let late = || Err(engine.no_answer());
    match outcome.unwrap_or_else(late) {
        Ok(AcquireReply::Acquired(token, _)) => {
            let now = clock::now();
            let guard = claim.succeed(token, now)?;
            if guard.state_at(now).is_valid() {
                Ok(Ok(guard))
            } else {
                Err(stillborn_error(recipe))
            }
        }
        Ok(AcquireReply::Held(_) | AcquireReply::Behind) => Ok(Err(Refusal::Held)),
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

/// Why a waiter's time ran out: because Redis did not answer, or because somebody had the lock, or
/// nobody could have it. `fares`: how whoever asks for the waiter does.
pub(super) fn out_of_time(
    engine: &Engine,
    recipe: &Arc<dyn Recipe>,
    fares: (Health, Refusal),
    started: Instant,
    wait: Option<Duration>,
    fault: Option<Fault>,
) -> Error {
    let (health, refusal) = fares;
    let named = |error: Error| error.named(recipe.name().as_arc());
    if let Some(fault) = fault {
        return named(fault.into_error(ACTION));
    }
    if is_unanswered(engine, health, started) {
        return named(engine.no_answer_within_the_wait().into_error(ACTION));
    }
    let wait = wait.unwrap_or_default();
    let error = Error::new(ErrorKind::TimedOut, ACTION).detail(format!("waited {wait:?}"));
    named(match refusal {
        Refusal::Held => error,
        Refusal::Unset => error.saying(TIMED_OUT_UNSET),
    })
}

/// Whether Redis does not answer who asks for a waiter that has waited since `started`.
pub(super) fn is_unanswered(engine: &Engine, health: Health, started: Instant) -> bool {
    match health {
        Health::Answering => false,
        Health::Failing => true,
        // The head (or this one) has asked, and for half of the time that either of us had there
        // is no answer. A try that was cut short by the end of the wait says nothing.
        Health::Asking(since) => {
            let now = clock::now();
            let longest = now
                .saturating_duration_since(started)
                .min(engine.response_timeout());
            now.saturating_duration_since(since) >= longest / 2
        }
    }
}

/// Where a waiter stands: in the local queue of the name, or, where every waiter has a place in
/// Redis, in a line of its own.
struct Stand {
    place: Place,
    seat: Option<Seat>,
}

impl Stand {
    fn take(claim: &Claim, now: Instant) -> Self {
        let Bid {
            engine,
            recipe,
            line,
            number,
            ..
        } = &claim.bid;
        let poll = engine.next_poll(now);
        let own = || engine.lines.seat(&**recipe, *number);
        let Some((seat, own)) = engine.rooms.sit(recipe, *number, own) else {
            let mut place = line.enter(&engine.hub, recipe.channel(), poll);
            place.wants_much = recipe.asks_for_many();
            return Self { place, seat: None };
        };
        Self {
            place: own.enter(&engine.hub, None, poll),
            seat: Some(seat),
        }
    }

    /// Tries again at once, as another owner.
    fn stand_again(&mut self, claim: &Claim) {
        let now = clock::now();
        match self.seat {
            None => self.place.tried(Some(now), Health::Answering),
            Some(_) => *self = Self::take(claim, now),
        }
    }

    /// It was refused: looks again at `retry_at`, or when something is announced.
    fn refused(&mut self, engine: &Engine, recipe: &Arc<dyn Recipe>, retry_at: Option<Instant>) {
        self.place.tried(retry_at, Health::Answering);
        if let Some(seat) = &self.seat {
            seat.queued();
        }
        self.listen(engine, recipe);
    }

    /// Whether Redis answers whoever asks for this waiter.
    fn health(&self) -> Health {
        match (self.place.line.health(), &self.seat) {
            (Health::Answering, Some(seat)) => seat.health(),
            (health, _) => health,
        }
    }

    fn listen(&self, engine: &Engine, recipe: &Arc<dyn Recipe>) {
        match (&self.seat, recipe.channel()) {
            (Some(seat), _) => seat.listen(&engine.hub),
            (None, Some(channel)) => self.place.line.listen(&engine.hub, channel),
            (None, None) => {}
        }
    }
}

/// An owner number on its way to a hold. Dropped before it is one, it makes sure that it will not
/// become one.
struct Claim {
    bid: Bid,
    journey: Journey,
    /// It was refused, and left something in Redis all the same.
    traces: bool,
    done: bool,
    /// While a call is under way or its outcome open. Dropped last.
    open: Option<Open>,
}

impl Claim {
    fn new(
        engine: &Arc<Engine>,
        recipe: &Arc<dyn Recipe>,
        line: &Arc<Line>,
        terms: Terms,
        under: Option<&Arc<Hold>>,
    ) -> Self {
        let number = engine.next_number();
        let mate = under.and_then(|hold| hold.mate_owner());
        let bid = Bid {
            engine: Arc::clone(engine),
            recipe: Arc::clone(recipe),
            owner: mate.unwrap_or_else(|| engine.id.owner(number)),
            number,
            under: under.cloned(),
            line: Arc::clone(line),
            terms,
            repeated: false,
        };
        Self {
            bid,
            journey: Journey::default(),
            traces: false,
            done: false,
            open: None,
        }
    }

    /// Asks for the lock once; `None`: the deadline came first. May be repeated: the same owner
    /// asks for the same hold.
    async fn attempt(
        &mut self,
        waits: bool,
        deadline: Option<Instant>,
    ) -> Option<Result<AcquireReply, Fault>> {
        let bid = &self.bid;
        self.open
            .get_or_insert_with(|| bid.engine.releases.open(bid.recipe.is_lasting()));
        let attempt =
            self.journey
                .attempt(&bid.engine.main, || bid.call(waits, deadline), deadline);
        let answer = attempt.await;
        let reply = answer.map(|reply| Ok(bid.recipe.acquired(reply?)?));
        if let Some(Ok(
            AcquireReply::Held(_)
            | AcquireReply::Unset
            | AcquireReply::Behind
            | AcquireReply::Orphaned,
        )) = reply
        {
            // Whatever was sent before under this number did not get the lock either; but where
            // nobody could kill its connection it may come still.
            self.bid.repeated |= self.journey.is_open() && self.bid.recipe.notes_withdrawals();
            self.journey.close();
            self.traces |= waits && self.bid.recipe.leaves_traces();
        }
        if !matches!(reply, Some(Ok(AcquireReply::Acquired(..)))) && !self.is_open() {
            self.open = None;
        }
        reply
    }

    /// Whether Redis may have something of this number.
    fn is_open(&self) -> bool {
        self.traces || self.bid.repeated || self.journey.is_open()
    }

    fn succeed(&mut self, token: Option<u64>, now: Instant) -> Result<HoldGuard, Error> {
        self.done = true;
        let sent = self.journey.sent.unwrap_or(now);
        self.bid.repeated |= self.journey.is_open();
        let guard = Hold::acquired(&self.bid, token, sent, now);
        // Looked at once the hold is among those that a shut-down ends: either it finds the hold,
        // or we find it closing.
        let Bid { engine, recipe, .. } = &self.bid;
        if engine.is_closing() {
            return Err(engine.shut_down_error(ACTION, recipe.name()));
        }
        Ok(guard)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.done || !self.is_open() {
            return;
        }
        let Bid { engine, .. } = &self.bid;
        let ghost = Ghost {
            bid: self.bid.clone(),
            traces: self.traces || self.bid.repeated,
            journey: std::mem::take(&mut self.journey),
        };
        engine.releases.push(Settlement::ghost(ghost));
        engine.ensure_tasks();
    }
}
