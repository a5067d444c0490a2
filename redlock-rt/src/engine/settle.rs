//! What must still be told to Redis for a hold, whoever waits for it.
//!
//! A settlement is run by a caller (`unlock`, re-entry) or by the release task. Whoever stops in
//! the middle leaves it, with the call under way, to the release queue. It needs no runtime of its
//! own, sets the state that it means, and so may be repeated until Redis has answered or the lease
//! is over.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout_at;

use super::Engine;
use super::hold::{Bid, Hold};
use super::releases::Open;
use crate::clock;
use crate::connection::{Connection, Exchange, Fault};
use crate::error::{Error, ErrorKind};
use crate::wire::{AcquireReply, Call, HoldReply, Recipe};

/// What is to become true in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The hold is over.
    End,
    /// The hold has the count of its guards, and at least this lease.
    Lengthen(Duration),
}

/// A command's way to its answer, over as many connections as it takes.
#[derive(Debug, Default)]
pub(crate) struct Journey {
    exchange: Option<Exchange>,
    /// When the first of the tries was sent whose answers were lost.
    open_since: Option<Instant>,
    /// When the last try was handed to a connection.
    pub(crate) sent: Option<Instant>,
}

impl Journey {
    /// Sends `call` once, or goes on waiting for the answer to the one under way.
    ///
    /// # Cancel safety
    ///
    /// The call under way stays here, to be waited for by the next who runs this.
    pub(crate) async fn attempt(
        &mut self,
        connection: &Connection,
        call: impl FnOnce() -> Call,
    ) -> Result<crate::wire::Reply, Fault> {
        if self.exchange.is_none() {
            self.exchange = Some(connection.call(call()).await?);
        }
        let Some(exchange) = &mut self.exchange else {
            return Err(Fault::timed_out("no call is under way"));
        };
        let sent = *self.sent.insert(exchange.made());
        let patience = clock::to_tokio(clock::after(sent, connection.timeouts().response));
        let answer = timeout_at(patience, &mut *exchange).await;
        let exchange = self.exchange.take();
        match answer {
            Ok(Err(fault)) => {
                if fault.may_have_run() {
                    self.open_since.get_or_insert(sent);
                }
                Err(fault)
            }
            Ok(answer) => answer,
            Err(_) => {
                // It may still run: the connection is given up, and its client is killed from the
                // next one before anything else is sent.
                if let Some(exchange) = exchange {
                    exchange.abandon();
                }
                self.open_since.get_or_insert(sent);
                Err(Fault::timed_out("no answer within the response time-out"))
            }
        }
    }

    /// Whether a call was sent whose outcome is not known.
    pub(crate) fn is_open(&self) -> bool {
        self.open_since.is_some() || self.exchange.as_ref().is_some_and(Exchange::is_sent)
    }

    /// What is known of the call by who did not make it and takes no part in waiting for it: it was
    /// sent, and may have run.
    pub(super) fn shadow(&self) -> Self {
        Self {
            exchange: None,
            open_since: self.open_since.or(self.sent),
            sent: self.sent,
        }
    }

    /// A call was answered: what was sent before is settled by it.
    pub(crate) fn close(&mut self) {
        self.exchange = None;
        self.open_since = None;
    }
}

/// Whose settlement it is.
enum Subject {
    Hold(Arc<Hold>),
    /// An acquisition whose caller went away, or gave up with the outcome unknown.
    Ghost(Box<Ghost>),
}

/// An owner that may have the lock, and must not.
pub(crate) struct Ghost {
    /// Its line is kept, so that the local queue does not try before this is over.
    pub(super) bid: Bid,
    /// Whether there is something to take away even where it does not have the lock.
    pub(super) traces: bool,
    pub(super) journey: Journey,
}

/// One thing that Redis must be told; see the module.
pub(crate) struct Settlement {
    subject: Subject,
    goal: Goal,
    journey: Journey,
    /// Held from the first try to the last, across whoever runs it.
    turn: Option<OwnedMutexGuard<()>>,
    /// After this the key has expired and there is nothing to settle.
    give_up: Instant,
    pause: Duration,
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const FOR_GOOD: Duration = Duration::from_secs(24 * 60 * 60);

impl Settlement {
    pub(super) fn new(hold: &Arc<Hold>, goal: Goal) -> Self {
        // The key outlives the local deadline by the margin, and by what the clocks differ.
        let give_up = hold.deadline() + Duration::from_secs(1);
        Self {
            subject: Subject::Hold(Arc::clone(hold)),
            goal,
            journey: Journey::default(),
            turn: None,
            give_up,
            pause: SHORTEST_PAUSE,
        }
    }

    pub(super) fn ghost(ghost: Ghost) -> Self {
        let sent = ghost.journey.sent.unwrap_or_else(clock::now);
        // What is left besides the lock has no lease, and stays until it is taken away.
        let stays = match ghost.bid.recipe.leaves_traces() {
            true => FOR_GOOD,
            false => ghost.bid.terms.lease,
        };
        let give_up = clock::after(sent, stays) + Duration::from_secs(1);
        Self {
            subject: Subject::Ghost(Box::new(ghost)),
            goal: Goal::End,
            journey: Journey::default(),
            turn: None,
            give_up,
            pause: SHORTEST_PAUSE,
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        match &self.subject {
            Subject::Hold(hold) => &hold.engine,
            Subject::Ghost(ghost) => &ghost.bid.engine,
        }
    }

    fn recipe(&self) -> &Arc<dyn Recipe> {
        match &self.subject {
            Subject::Hold(hold) => &hold.recipe,
            Subject::Ghost(ghost) => &ghost.bid.recipe,
        }
    }

    /// Runs until Redis has answered, refused for good, or the lease is over.
    async fn run(&mut self) -> Result<HoldReply, Fault> {
        if self.ended_before_it_began().await? {
            return Ok(HoldReply::Gone);
        }
        if let (Subject::Hold(hold), None) = (&self.subject, &self.turn) {
            self.turn = Some(match Arc::clone(&hold.serial).try_lock_owned() {
                Ok(turn) => turn,
                Err(_) => Arc::clone(&hold.serial).lock_owned().await,
            });
        }
        loop {
            match self.step().await {
                Ok(reply) => return Ok(reply),
                Err(fault) if fault.is_passing() && clock::now() < self.give_up => {
                    // Where there is no connection, connecting has a pause of its own.
                    if !matches!(fault, Fault::Unreachable(_)) {
                        tokio::time::sleep(self.pause).await;
                        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    }
                }
                // A lock whose lease is over needs no release any more.
                Err(fault) if fault.is_passing() && self.goal == Goal::End => {
                    return Ok(self.judged(HoldReply::Gone));
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// What became of the hold if a release is answered so, or there is none left to answer. An
    /// earlier try whose answer was lost is what released it, if the lease was still running then.
    fn judged(&self, reply: HoldReply) -> HoldReply {
        match (&self.subject, self.journey.open_since) {
            (Subject::Hold(hold), Some(sent)) if sent < hold.deadline() => HoldReply::Done,
            _ => reply,
        }
    }

    /// For a ghost: waits for the outcome of the acquisition. Answers whether there is nothing to
    /// release.
    async fn ended_before_it_began(&mut self) -> Result<bool, Fault> {
        let Subject::Ghost(ghost) = &mut self.subject else {
            return Ok(false);
        };
        let Ghost {
            bid,
            traces,
            journey,
        } = &mut **ghost;
        if journey.exchange.is_none() {
            return Ok(!*traces && journey.open_since.is_none());
        }
        // Nothing is sent here: the call is under way.
        let answer = journey.attempt(&bid.engine.main, || bid.call(false)).await;
        match answer.and_then(|reply| Ok(bid.recipe.acquired(reply)?)) {
            Ok(AcquireReply::Held(_) | AcquireReply::Behind | AcquireReply::Orphaned) => {
                Ok(!bid.recipe.leaves_traces())
            }
            // From here on the number is used up: only its release is ever sent again.
            Ok(AcquireReply::Acquired(_)) => {
                journey.open_since = journey.sent;
                Ok(false)
            }
            Err(_) => Ok(!*traces && journey.open_since.is_none()),
        }
    }

    async fn step(&mut self) -> Result<HoldReply, Fault> {
        let engine = Arc::clone(self.engine());
        let Self {
            subject,
            goal,
            journey,
            ..
        } = self;
        match (&*subject, *goal) {
            (Subject::Hold(hold), Goal::Lengthen(lease)) => {
                let count = hold.count();
                if count == 0 {
                    // The last guard left meanwhile; the end of the hold is on its way.
                    return Ok(HoldReply::Done);
                }
                let call = || hold.recipe.update(&hold.owner, lease, count);
                let reply = HoldReply::try_from(journey.attempt(&engine.main, call).await?)?;
                let sent = journey.sent.unwrap_or_else(clock::now);
                hold.answered(reply, sent, lease);
                Ok(reply)
            }
            (Subject::Hold(hold), Goal::End) => {
                let call = || hold.recipe.release(&hold.owner);
                let reply = HoldReply::try_from(journey.attempt(&engine.main, call).await?)?;
                Ok(self.judged(reply))
            }
            (Subject::Ghost(ghost), _) => {
                let call = || ghost.bid.recipe.release(&ghost.bid.owner);
                Ok(HoldReply::try_from(
                    journey.attempt(&engine.main, call).await?,
                )?)
            }
        }
    }

    /// Whether others of its hold wait for it.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a lock stays behind unless this is run.
    pub(super) fn is_due(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => self.goal == Goal::End && !hold.is_settled(),
            Subject::Ghost(_) => true,
        }
    }

    fn over(&self, outcome: &Result<HoldReply, Fault>) {
        let announced = matches!(outcome, Ok(HoldReply::Done));
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => hold.settled(announced),
            Subject::Hold(_) => {}
            Subject::Ghost(ghost) => ghost.bid.line.notify(),
        }
    }
}

impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlement")
            .field("name", self.recipe().name())
            .field("goal", &self.goal)
            .field("journey", &self.journey)
            .finish_non_exhaustive()
    }
}

/// A settlement that goes to the release queue unless it is run to its end.
#[derive(Debug)]
pub(crate) struct Unsettled {
    settlement: Option<Settlement>,
    /// Dropped last.
    _open: Open,
}

impl Unsettled {
    pub(super) fn new(settlement: Settlement) -> Self {
        let open = settlement.engine().releases.open();
        Self {
            settlement: Some(settlement),
            _open: open,
        }
    }

    /// Runs it to its end.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and run again at any point.
    pub(super) async fn run(&mut self) -> Result<HoldReply, Fault> {
        let Some(settlement) = &mut self.settlement else {
            return Ok(HoldReply::Done);
        };
        let outcome = settlement.run().await;
        if let Some(settlement) = self.settlement.take() {
            settlement.over(&outcome);
        }
        outcome
    }

    /// The error for a caller who cannot wait any longer; it goes on in the background.
    pub(super) fn out_of_time(self, action: &'static str) -> Error {
        let open = self
            .settlement
            .as_ref()
            .is_some_and(|settlement| settlement.journey.is_open());
        let kind = if open {
            ErrorKind::OutcomeUnknown
        } else {
            ErrorKind::Unavailable
        };
        let mut error = Error::new(kind, action);
        if let Some(settlement) = &self.settlement {
            error = error.named(settlement.recipe().name().as_arc());
            error = error.detail("it goes on in the background");
        }
        error
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            let engine = Arc::clone(settlement.engine());
            engine.releases.push(settlement);
            engine.ensure_tasks();
        }
    }
}
