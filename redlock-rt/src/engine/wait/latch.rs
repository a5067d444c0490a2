//! Waiting for a latch, or for the end of a barrier's generation.
//!
//! ```text
//! join the waiters ─▶ head? ─▶ look (script) ─▶ ended: all that waited are told
//!                        ▲         │ closed
//!                        │         ▼
//!                        └── announced, confirmed, expired, poll ◀── subscribed
//! ```
//!
//! The wait limits all of this: connecting, subscribing, looking.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use super::{Called, Health, NOT_POLLED, Subject, WaitKey, WaiterGuard, WaiterMap, Waits, Wake};
use crate::clock;
use crate::connection::{Caller, Delivery, Fault};
use crate::engine::ClientEngine;
use crate::error::{Error, ErrorKind};
use crate::wire::{Gate, GateState};

pub(crate) const ACTION: &str = "wait for latch";

/// The subject of the waiters of a gate: empty, since a gate has no holder.
#[derive(Debug, Default)]
pub(crate) struct LatchSubject;

impl Subject for LatchSubject {
    /// A look that finds the end, or that fails for good, ends the wait of all.
    type Outcome = Result<Ended, Fault>;
    type Offer = std::convert::Infallible;
}

type Ended = Result<Arc<str>, ErrorKind>;

/// The wait queues of all gates.
pub(crate) type LatchWaiters = WaiterMap<LatchSubject>;

/// Waits until the gate has ended, for at most `wait`; a wait of zero looks once. Returns how it ended.
///
/// # Cancel safety
///
/// Nothing is left.
pub(crate) fn wait_latch<'a>(
    engine: &'a Arc<ClientEngine>,
    latch: &'a dyn Gate,
    wait: Option<Duration>,
) -> BoxFuture<'a, Result<Arc<str>, Error>> {
    // Boxed for the compiler; see `Opaque`.
    Box::pin(wait_at(engine, latch, wait))
}

async fn wait_at(
    engine: &Arc<ClientEngine>,
    latch: &dyn Gate,
    wait: Option<Duration>,
) -> Result<Arc<str>, Error> {
    engine.ensure_open(ACTION, latch.name())?;
    let started = clock::now();
    if wait.is_some_and(|wait| wait.is_zero()) {
        let deadline = Some(engine.patience(started));
        let looked = look(engine, latch, deadline).await;
        return match looked.unwrap_or_else(|| Err(engine.no_answer(latch.name()))) {
            Ok(GateState::Ended(ended)) => told(latch, Ok(ended)),
            Ok(GateState::Closed(..)) => Err(timed_out(latch, Duration::ZERO)),
            Err(fault) => Err(failed(latch, fault)),
        };
    }
    let (kind, name) = latch.queue();
    let waiters = engine.latches.waiters(WaitKey { kind, name });
    let place = waiters.enter(
        &engine.hub,
        Some(latch.channel()),
        || engine.next_poll(started),
        None,
    );
    let mut waiting = LatchWait {
        engine,
        latch,
        started,
        wait,
        deadline: wait.map(|wait| clock::after(started, wait)),
        place,
        fault: None,
        unanswered: 0,
    };
    waiting.run().await
}

/// A waiting caller.
struct LatchWait<'a> {
    engine: &'a Arc<ClientEngine>,
    latch: &'a dyn Gate,
    started: Instant,
    wait: Option<Duration>,
    deadline: Option<Instant>,
    place: WaiterGuard<LatchSubject>,
    /// Why Redis did not answer the last look.
    fault: Option<Fault>,
    /// The number of looks since Redis answered.
    unanswered: u32,
}

impl LatchWait<'_> {
    async fn run(&mut self) -> Result<Arc<str>, Error> {
        loop {
            // The runtime of the client's tasks may have ended while this caller waited.
            self.engine.ensure_tasks();
            match self.place.called(self.deadline).await {
                Called::TimedOut => return Err(self.out_of_time()),
                Called::Wake(Wake::Closed) => {
                    return Err(self.engine.shut_down_error(ACTION, self.latch.name()));
                }
                Called::Wake(Wake::Done(outcome)) => return told(self.latch, outcome),
                // The head has the timer now.
                Called::Wake(Wake::Head) => {}
                Called::Wake(Wake::Offered(never)) => match never {},
                Called::Wake(Wake::Try) => self.look().await?,
            }
        }
    }

    /// Asks Redis as the head of the local queue.
    async fn look(&mut self) -> Result<(), Error> {
        let waiters = &self.place.waiters;
        waiters.set_health(Health::Asking(clock::stamp()));
        let looks = pin!(look(self.engine, self.latch, self.deadline));
        let Some(looked) = self.place.running(looks).await else {
            let error = self.out_of_time();
            if error.is_unavailable() {
                // For the other waiters, whose waits may end at the same time.
                self.place.waiters.set_health(Health::Failing);
            }
            return Err(error);
        };
        match looked {
            Ok(GateState::Ended(ended)) => self.place.finish(&Ok(ended)),
            Ok(GateState::Closed(_, ttl)) => {
                self.fault = None;
                self.unanswered = 0;
                let again = self.engine.next_look(clock::now(), ttl);
                self.place.tried(Some(again), Health::Answering);
                let waiters = &self.place.waiters;
                waiters.listen(&self.engine.hub, self.latch.channel());
            }
            Err(fault) if fault.is_passing_for(Caller::Waiter) => {
                let retry = &self.engine.config.timeouts.retry;
                let Some(pause) = retry.next(&mut self.unanswered) else {
                    return Err(failed(self.latch, fault));
                };
                let name = self.latch.name().as_str();
                let current = self.engine.nodes.current();
                current.journal.will_repeat(name, &fault);
                self.fault = Some(fault);
                let again = clock::after(clock::now(), pause);
                self.place.tried(Some(again), Health::Failing);
            }
            Err(fault) => self.place.finish(&Err(fault)),
        }
        Ok(())
    }

    /// Why the time ran out: Redis did not answer, or the latch is closed.
    fn out_of_time(&mut self) -> Error {
        let health = self.place.waiters.health();
        let silence = || self.engine.silence(self.latch.name(), health, self.started);
        if let Some(fault) = self.fault.take().or_else(silence) {
            return failed(self.latch, fault);
        }
        let error = timed_out(self.latch, self.wait.unwrap_or_default());
        match health {
            Health::Unpolled => error.saying(NOT_POLLED),
            _ => error,
        }
    }
}

/// Looks once; `None`: the deadline came first.
async fn look(
    engine: &ClientEngine,
    latch: &dyn Gate,
    deadline: Option<Instant>,
) -> Option<Result<GateState, Fault>> {
    let mut delivery = Delivery::default();
    let attempt = delivery.attempt(engine.to(latch.name()), || latch.check(), deadline);
    let answer = attempt.await?;
    Some(delivery.read(answer, |reply| latch.read(reply)))
}

fn told(latch: &dyn Gate, outcome: Result<Ended, Fault>) -> Result<Arc<str>, Error> {
    let ended = outcome.map_err(|fault| failed(latch, fault))?;
    ended.map_err(|kind| Error::new(kind, ACTION).named(latch.name().as_arc()))
}

fn failed(latch: &dyn Gate, fault: Fault) -> Error {
    fault.into_error(ACTION).named(latch.name().as_arc())
}

fn timed_out(latch: &dyn Gate, wait: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, ACTION)
        .named(latch.name().as_arc())
        .saying("timed out before it opened")
        .detail(format!("waited {wait:?}"))
}
