//! Waiting for a gate.
//!
//! ```text
//! join the waiters ─▶ head? ─▶ look (script) ─▶ ended: all that waited are told
//!                        ▲         │ closed
//!                        │         ▼
//!                        └── announced, confirmed, expired, poll ◀── subscribed
//! ```
//!
//! The wait is a hard bound on all of it: connecting, subscribing, looking.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::gate::Word;
use super::gates::{Called, Place};
use super::settle::Journey;
use super::waiters::Health;
use super::{Engine, acquire};
use crate::clock;
use crate::connection::{Caller, Fault};
use crate::error::{Error, ErrorKind};
use crate::wire::{Ended, LatchWire, Look};

pub(crate) const ACTION: &str = "wait for latch";
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Waits until the latch has ended, for at most `wait`; a wait of zero looks once.
///
/// # Cancel safety
///
/// Nothing is left.
pub(crate) async fn pass(
    engine: &Arc<Engine>,
    latch: &LatchWire,
    wait: Option<Duration>,
) -> Result<Ended, Error> {
    engine.open(ACTION, latch.name())?;
    let started = clock::now();
    if wait.is_some_and(|wait| wait.is_zero()) {
        let deadline = Some(engine.patience(started));
        let looked = look(engine, latch, deadline).await;
        return match looked.unwrap_or_else(|| Err(engine.no_answer())) {
            Ok(Look::Ended(ended)) => Ok(ended),
            Ok(Look::Closed(..)) => Err(timed_out(latch, Duration::ZERO)),
            Err(fault) => Err(fault.into_error(ACTION).named(latch.name().as_arc())),
        };
    }
    let deadline = wait.map(|wait| clock::after(started, wait));
    let mut place = engine.gates.enter(&engine.hub, latch.channel());
    let mut fault: Option<Fault> = None;
    let mut pause = SHORTEST_PAUSE;
    loop {
        // The runtime of the client's tasks may have ended while this one waited.
        engine.ensure_tasks();
        match place.called(deadline).await {
            Called::TimedOut => {
                return Err(out_of_time(engine, latch, &place, started, wait, fault));
            }
            Called::Word(Word::Closed) => return Err(engine.shut_down_error(ACTION, latch.name())),
            Called::Word(Word::Over(outcome)) => {
                return outcome
                    .map_err(|fault| fault.into_error(ACTION).named(latch.name().as_arc()));
            }
            // It has the timer now.
            Called::Word(Word::Head) => {}
            Called::Word(Word::Look) => {
                place.gate.set_health(Health::Asking(clock::stamp()));
                let Some(looked) = look(engine, latch, deadline).await else {
                    let error = out_of_time(engine, latch, &place, started, wait, fault);
                    if error.is_unavailable() {
                        // For the others, whose waits may end with this one.
                        place.gate.set_health(Health::Failing);
                    }
                    return Err(error);
                };
                match looked {
                    Ok(Look::Ended(ended)) => place.tell(&Ok(ended)),
                    Ok(Look::Closed(_, ttl)) => {
                        fault = None;
                        pause = SHORTEST_PAUSE;
                        let again = engine.next_look(clock::now(), ttl);
                        place.shut(again, Health::Answering);
                        place.gate.listen(&engine.hub);
                    }
                    Err(passing) if passing.is_passing_for(Caller::Waiter) => {
                        engine.current.will_repeat(latch.name().as_str(), &passing);
                        fault = Some(passing);
                        let again = clock::after(clock::now(), pause);
                        place.shut(again, Health::Failing);
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Err(fault) => place.tell(&Err(fault)),
                }
            }
        }
    }
}

/// Looks once; `None`: the deadline came first.
async fn look(
    engine: &Engine,
    latch: &LatchWire,
    deadline: Option<Instant>,
) -> Option<Result<Look, Fault>> {
    let mut journey = Journey::default();
    let attempt = journey.attempt(&engine.main, || latch.check(), deadline);
    let reply = attempt.await?;
    Some(reply.and_then(|reply| Ok(Look::try_from(reply)?)))
}

fn timed_out(latch: &LatchWire, wait: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, ACTION)
        .named(latch.name().as_arc())
        .saying("timed out before it opened")
        .detail(format!("waited {wait:?}"))
}

/// Why a waiter's time ran out: because Redis did not answer, or because the latch is closed.
fn out_of_time(
    engine: &Engine,
    latch: &LatchWire,
    place: &Place,
    started: Instant,
    wait: Option<Duration>,
    fault: Option<Fault>,
) -> Error {
    if let Some(fault) = fault {
        return fault.into_error(ACTION).named(latch.name().as_arc());
    }
    if acquire::is_unanswered(engine, place.gate.health(), started) {
        let fault = engine.no_answer_within_the_wait();
        return fault.into_error(ACTION).named(latch.name().as_arc());
    }
    timed_out(latch, wait.unwrap_or_default())
}
