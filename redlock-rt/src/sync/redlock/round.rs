//! One round: every server is asked once, all at the same time.
//!
//! Each call takes at most the server time-out. Once the round is decided, servers that have not answered
//! get ten times as long as the decision took, and at least 5 ms. Then their calls are dropped like any
//! cancelled call, and what they take is released. A round without a majority is rolled back before a
//! random pause. A server that owes 64 replies to releases is considered silent, and is asked only if there
//! is no majority without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::super::group::{Parts, SHORTEST_GRACE};
use super::ACTION;
use crate::clock;
use crate::engine::{AcquireParams, ClientEngine, Handle, Hold, HoldGuard, Owner, Terms};
use crate::error::{Error, ErrorKind};
use crate::wire::{LockRecipe, Recipe};

/// The parameters of a round.
#[derive(Clone)]
pub(super) struct RoundParams {
    pub(super) engines: Vec<Handle>,
    pub(super) recipes: Arc<[Arc<dyn LockRecipe>]>,
    pub(super) terms: Vec<Terms>,
    pub(super) owner: Option<Owner>,
    pub(super) for_body: bool,
    pub(super) need: usize,
    pub(super) server_timeout: Duration,
}

/// The holds to re-enter, by place; `None`: any that the caller has.
type Under<'a> = Option<&'a BTreeMap<usize, Arc<Hold>>>;

/// The result of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    servers: usize,
    need: usize,
    parts: Parts,
    /// The number of servers where another owner has the lock.
    contended: usize,
    /// The servers that may give the lock later: they did not answer in time, or another owner has
    /// it there.
    missing: BTreeSet<usize>,
    /// The errors that another round would not change.
    pub(super) fatal: Vec<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundVerdict {
    Acquired,
    /// Another owner has the lock.
    Refused,
    /// Less than a majority answered.
    Starved,
    /// No later round can succeed.
    Impossible,
}

impl Round {
    pub(super) fn verdict(&self) -> RoundVerdict {
        if self.parts.len() >= self.need {
            RoundVerdict::Acquired
        } else if self.fatal.len() > self.servers - self.need {
            RoundVerdict::Impossible
        } else if self.parts.len() + self.contended < self.need {
            RoundVerdict::Starved
        } else {
            RoundVerdict::Refused
        }
    }

    /// The holds, and the servers to ask again.
    pub(super) fn into_parts(self) -> (Parts, BTreeSet<usize>) {
        (self.parts, self.missing)
    }

    fn add(&mut self, place: usize, outcome: Result<HoldGuard, Error>) {
        match outcome {
            Ok(guard) => {
                self.missing.remove(&place);
                self.parts.insert(place, guard);
            }
            Err(error) if error.is_contended() => self.contended += 1,
            Err(error) => match error.kind() {
                ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Lost => {
                    tracing::debug!(place, %error, "a server did not answer");
                }
                _ => {
                    self.missing.remove(&place);
                    self.fatal.push(error);
                }
            },
        }
    }
}

/// A server that owes replies to more releases than this is silent.
const MOST_OWED: usize = 64;

/// Whether another call would only add to the unanswered releases of the server.
pub(super) fn is_silent(engine: &ClientEngine) -> bool {
    engine.releases.len() >= MOST_OWED
}

impl RoundParams {
    /// Whether the caller, or its owner, has the lock already on any of the servers.
    pub(super) fn is_around(&self) -> bool {
        let mut servers = self.engines.iter().zip(self.recipes.iter());
        servers.any(|(engine, recipe)| engine.is_around(&**recipe, self.owner.as_ref()))
    }

    /// The servers to ask: silent ones only if there is no majority without them.
    fn asked(&self) -> Vec<usize> {
        let all = 0..self.engines.len();
        let talking = all
            .clone()
            .filter(|&place| !is_silent(&self.engines[place]));
        let talking: Vec<_> = talking.collect();
        if talking.len() >= self.need {
            talking
        } else {
            all.collect()
        }
    }

    /// Asks all servers, and reads their replies until `until`. Once the result is decided, the
    /// others still have a moment.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: calls in progress go to the release queues of their clients.
    pub(super) async fn round(&self, until: Instant, under: Under<'_>) -> Round {
        let started = clock::now();
        let asked = self.asked();
        let mut round = Round {
            servers: self.engines.len(),
            need: self.need,
            missing: (0..self.engines.len()).collect(),
            ..Round::default()
        };
        let mut under_way: FuturesUnordered<_> = asked
            .into_iter()
            .map(|place| async move {
                let terms = self.terms[place];
                let outcome = match under.map(|under| under.get(&place)) {
                    None => self.try_at(place, terms).await,
                    Some(Some(hold)) => hold.reenter(terms, Some(until)).await,
                    Some(None) => Err(Error::new(ErrorKind::Lost, ACTION)),
                };
                (place, outcome)
            })
            .collect();
        let mut limit = until;
        loop {
            let next = clock::timeout_at(clock::to_tokio(limit), under_way.next());
            let Ok(Some((place, outcome))) = next.await else {
                return round;
            };
            round.add(place, outcome);
            let decided =
                round.parts.len() >= self.need || round.parts.len() + under_way.len() < self.need;
            if decided && limit == until {
                let now = clock::now();
                // Servers are about equally far away; a silent server delays no caller.
                let grace = ((now - started) * 10).max(SHORTEST_GRACE);
                limit = until.min(clock::after(now, grace));
            }
        }
    }

    /// Tries once to acquire the lock on this server.
    pub(super) async fn try_at(&self, place: usize, terms: Terms) -> Result<HoldGuard, Error> {
        let params = AcquireParams {
            wait: Some(Duration::ZERO),
            owner: self.owner.as_ref(),
            for_body: self.for_body,
            ..AcquireParams::default()
        };
        let recipe: Arc<dyn Recipe> = Arc::clone(&self.recipes[place]) as _;
        self.engines[place].lock(recipe, terms, params).await
    }
}
