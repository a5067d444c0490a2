//! Acquiring: the caller queues, then asks the servers in rounds until a majority agrees.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::group::{Group, roll_back};
use super::quorum::{Contenders, ContestTurn};
use super::repairer::RepairJob;
use super::round::{Round, RoundParams, RoundVerdict};
use super::{ACTION, RedLock, RedLockGuard};
use crate::clock;
use crate::engine::{Health, NOT_POLLED, Waits};
use crate::error::{Error, ErrorKind};
use crate::pause::{Growth, Pause};

/// After a lease was over this often before its guard could be returned, the error says that the
/// lease is too short.
const MOST_EXPIRED_ON_ARRIVAL: u32 = 3;

/// After a round without success: 4 to 100 ms. Randomised, so that callers that split the servers do not
/// collide again.
const PAUSE: Pause = Pause::new(&Growth {
    shortest: Duration::from_millis(4),
    longest: Duration::from_millis(100),
    factor: 1.5,
    least: 0.25,
});

/// One call that acquires.
pub(super) struct Acquisition<'a> {
    lock: &'a RedLock,
    asking: RoundParams,
    contenders: Arc<Contenders>,
    started: Instant,
    wait: Option<Duration>,
    pause: Pause,
    is_first: bool,
    expired_on_arrival: u32,
}

impl<'a> Acquisition<'a> {
    pub(super) fn new(lock: &'a RedLock, asking: RoundParams, wait: Option<Duration>) -> Self {
        Self {
            contenders: lock.quorum.contenders(&*asking.recipes[0]),
            lock,
            asking,
            started: clock::now(),
            wait,
            pause: PAUSE,
            is_first: true,
            expired_on_arrival: 0,
        }
    }

    /// # Cancel safety
    ///
    /// Nothing is left on any server.
    pub(super) async fn run(mut self) -> Result<RedLockGuard, Error> {
        let turn = self.turn().await?;
        let rounds = pin!(self.rounds());
        match &turn {
            Some(turn) => turn.running(rounds).await,
            None => rounds.await,
        }
    }

    async fn rounds(&mut self) -> Result<RedLockGuard, Error> {
        loop {
            let verdict = match self.round().await? {
                ControlFlow::Break(guard) => return Ok(guard),
                ControlFlow::Continue(verdict) => verdict,
            };
            if self.tries_once() {
                return Err(match verdict {
                    RoundVerdict::Starved => self.lock.starved(),
                    _ => self.error(ErrorKind::Contended),
                });
            }
            self.rest().await?;
        }
    }

    /// Waits for the turn among the tasks of this process; `None`: the call does not queue.
    async fn turn(&self) -> Result<Option<ContestTurn>, Error> {
        // A holder must not wait behind callers that wait for its release.
        if self.tries_once() || self.asking.is_around() {
            return Ok(None);
        }
        let turn = self.lock.quorum.turn(&self.contenders, self.deadline());
        let Some(turn) = turn.await else {
            let (health, timeout) = (self.contenders.health(), self.asking.server_timeout);
            let silent = health.is_silent(self.started, timeout, clock::now());
            let error = self.out_of_time(silent);
            return Err(match health {
                Health::Unpolled => error.saying(NOT_POLLED),
                _ => error,
            });
        };
        self.contenders.begin();
        Ok(Some(turn))
    }

    /// Asks the servers once. Without a guard, nothing of the round is left.
    async fn round(&mut self) -> Result<ControlFlow<RedLockGuard, RoundVerdict>, Error> {
        let started = clock::now();
        let round_until = clock::after(started, self.asking.server_timeout);
        let until = self.within_wait(round_until);
        let mut round = self.asking.round(until, None).await;
        let verdict = round.verdict();
        // A round that was shortened by the end of the wait says nothing about servers that did not answer.
        let cut_short = until < round_until && !self.is_first;
        if !(cut_short && verdict == RoundVerdict::Starved) {
            self.contenders.note_round(verdict == RoundVerdict::Starved);
        }
        self.is_first = false;
        match verdict {
            RoundVerdict::Acquired => {
                let guard = self.acquired(round, started)?;
                return Ok(guard.map_or(ControlFlow::Continue(verdict), ControlFlow::Break));
            }
            RoundVerdict::Impossible => {
                let error = round.fatal.swap_remove(0);
                roll_back(round.into_parts().0, until).await;
                return Err(error.named(&self.lock.name));
            }
            RoundVerdict::Refused | RoundVerdict::Starved => {
                // The servers answered within the lease, so the lease is long enough.
                let lease = self.asking.terms[0].lease;
                if verdict == RoundVerdict::Refused && clock::now() < clock::after(started, lease) {
                    self.expired_on_arrival = 0;
                }
                // Before the pause: another caller may need exactly these parts.
                let patience = clock::after(clock::now(), self.asking.server_timeout);
                roll_back(round.into_parts().0, self.within_wait(patience)).await;
            }
        }
        Ok(ControlFlow::Continue(verdict))
    }

    /// The guard of a round that a majority granted; `None` if its lease is over already, and another round may
    /// follow.
    fn acquired(&mut self, round: Round, started: Instant) -> Result<Option<RedLockGuard>, Error> {
        let asking = &self.asking;
        let (parts, missing) = round.into_parts();
        let group = Group::new(&self.lock.name, asking.need, asking.engines.len(), parts);
        if group.state().is_valid() {
            let job = RepairJob::new(asking, group, missing, started);
            return Ok(Some(RedLockGuard::new(&self.lock.quorum, job)));
        }
        // Too late by the local clock: as if the lock had never been acquired.
        group.leave();
        self.expired_on_arrival += 1;
        if self.expired_on_arrival < MOST_EXPIRED_ON_ARRIVAL && !self.tries_once() {
            return Ok(None);
        }
        let why = "the lease is over before enough servers have answered";
        Err(self.error(ErrorKind::Lost).detail(why))
    }

    /// The pause between two rounds.
    async fn rest(&mut self) -> Result<(), Error> {
        let next = clock::after(clock::now(), self.pause.take());
        match self.deadline() {
            Some(deadline) if next >= deadline => {
                clock::sleep_until(deadline).await;
                Err(self.out_of_time(self.contenders.health() == Health::Failing))
            }
            _ => {
                clock::sleep_until(next).await;
                Ok(())
            }
        }
    }

    fn tries_once(&self) -> bool {
        self.wait.is_some_and(|wait| wait.is_zero())
    }

    fn deadline(&self) -> Option<Instant> {
        self.wait.map(|wait| clock::after(self.started, wait))
    }

    /// `until`, but no later than the end of the wait. A wait of zero limits no round.
    fn within_wait(&self, until: Instant) -> Instant {
        let bound = self.deadline().filter(|_| !self.tries_once());
        bound.map_or(until, |deadline| deadline.min(until))
    }

    fn out_of_time(&self, starved: bool) -> Error {
        if starved {
            return self.lock.starved();
        }
        let wait = self.wait.unwrap_or_default();
        let error = self.error(ErrorKind::TimedOut);
        error.detail(format!("waited {wait:?}"))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, ACTION).named(&self.lock.name)
    }
}
