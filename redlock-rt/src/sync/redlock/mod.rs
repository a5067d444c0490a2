//! One lock over several independent servers, held while a majority of them have it.
//!
//! ```text
//! RedLock ─▶ local queue ─▶ rounds: every server asked once, concurrently ─▶ Group of holds
//!                                                                              ▲
//!                                        repairer (one task a Quorum): replaces lost parts
//! ```
//!
//! On each server it is an ordinary hold of an ordinary RLock, renewed by that server's client.

mod acquire;
mod guard;
mod quorum;
mod repairer;
mod round;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use self::acquire::Acquisition;
pub use self::guard::RedLockGuard;
pub use self::quorum::Quorum;
use self::quorum::QuorumState;
use self::round::RoundParams;
use super::guard::RELEASE;
use super::kind::AnyKind;
use super::lock::Lock;
use super::options::{LockOptions, unless_contended};
use crate::clock;
use crate::error::Error;
use crate::name::{BadName, HoldId};
use crate::wire::{Holder, LockRecipe};

const ACTION: &str = "acquire lock";

/// A lock over the servers of a [`Quorum`]: held while a majority of them have it.
///
/// It survives the loss of a server with all its data, which a lock on one server does not. While a
/// majority of the servers answers, the lock can be acquired, held and released. On a server that
/// died and came back empty, the lock is acquired again in the background.
///
/// On each server it is an ordinary [`RLock`](crate::RLock) of this name, as for `RedissonRedLock`.
/// It excludes every client that holds that `RLock` on a majority of the servers.
///
/// # What it promises, and what it does not
///
/// It is the algorithm of [Distributed Locks with Redis][redlock]. Two guards are never valid at
/// the same time under three conditions:
///
/// * Clocks run at nearly the same speed.
/// * Processes are not paused between checking the guard and acting.
/// * No server answers within one lease after it has lost its data.
///
/// A server that restarts empty has lost its data. To be safe, keep a restarted server from answering for one lease,
/// or let servers write their file at every command. Otherwise two callers can each have a majority until the first
/// caller's watchdog notices: as soon as its connection is back. One such server is enough if the first caller has a
/// bare majority. If it has the lock on all servers, this takes a majority of them.
///
/// Martin Kleppmann's [*How to do distributed locking*][kleppmann] explains the consequence: a
/// holder that is paused for longer than its lease acts while another holder has the lock. Only the
/// resource can refuse that, by a fencing token, which this lock does not have. Salvatore
/// Sanfilippo replied in [*Is Redlock safe?*][antirez]. Both support this use: to make overlaps
/// rare and to survive the loss of a server, not to make overlaps impossible.
///
/// **When not to use it.** If one server with a replica is good enough (a lock that avoids
/// duplicate work), a `RedLock` costs N times as much for little gain. If an overlap does harm, let
/// the resource check a token, and use an [`RLock`](crate::RLock) or this lock to keep refusals
/// rare. Never use it over nodes that replicate each other: those are not independent.
///
/// [redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
/// [kleppmann]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
/// [antirez]: http://antirez.com/news/101
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, Quorum};
///
/// let servers = [Client::embedded(), Client::embedded(), Client::embedded()];
/// let quorum = Quorum::new(servers)?;
///
/// let guard = quorum.redlock("leader").lock().await?;
/// assert!(guard.is_valid());
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedLock {
    quorum: Arc<QuorumState>,
    server_timeout: Option<Duration>,
    /// One for each server.
    recipes: Result<Arc<[Arc<dyn LockRecipe>]>, BadName>,
    name: Arc<str>,
}

impl RedLock {
    fn recipes(&self) -> Result<&Arc<[Arc<dyn LockRecipe>]>, Error> {
        if self.server_timeout.is_some_and(|timeout| timeout.is_zero()) {
            let error = Error::bad_input(ACTION, "the time-out of a server is zero");
            return Err(error.named(&self.name));
        }
        self.recipes.as_ref().map_err(|bad| bad.clone().into())
    }

    /// Acquires the lock, and waits without a limit.
    ///
    /// The call also waits through outages; use [`lock_with`](Self::lock_with) to limit the wait.
    /// Inside a body that runs under a guard of the same lock, the call re-enters.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; the call returns a moment after a majority has
    /// agreed. If the lock is held, the call asks again after a random pause that grows from 4 to
    /// 100 ms: a release wakes no waiter. One task of a process asks for a name, however many tasks
    /// wait.
    ///
    /// # Fairness
    ///
    /// First come, first served among the tasks of one [`Quorum`]. Among processes, any may be
    /// next.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left on any server, with or without a reply from it.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput), [`ShutDown`](crate::ErrorKind::ShutDown);
    /// [`WrongType`](crate::ErrorKind::WrongType) and [`Denied`](crate::ErrorKind::Denied) if so
    /// many servers return it that no majority is left; [`Lost`](crate::ErrorKind::Lost) if the lease is over
    /// before enough servers have answered, three times in a row.
    pub async fn lock(&self) -> Result<RedLockGuard, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Acquires the lock if a majority of the servers gives it at this moment.
    ///
    /// # Round trips, cancel safety
    ///
    /// One to each server; as [`lock`](Self::lock).
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), `Lost` at once, and [`Quorum`](crate::ErrorKind::Quorum) if less than a majority
    /// answers in time. Contention is not an error: the call returns `None`.
    pub async fn try_lock(&self) -> Result<Option<RedLockGuard>, Error> {
        let options = LockOptions::new().wait(Duration::ZERO);
        unless_contended(self.lock_with(options).await)
    }

    /// Acquires the lock as the options say. Without a lease in the options, each server uses the
    /// lease of its client.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// The options change nothing of what [`lock`](Self::lock) says; a wait of zero is
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock); and after the wait, [`TimedOut`](crate::ErrorKind::TimedOut) if
    /// another owner held the lock ([`Contended`](crate::ErrorKind::Contended) for a wait of zero), or
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority of the servers answered.
    pub async fn lock_with(&self, options: LockOptions) -> Result<RedLockGuard, Error> {
        let recipes = self.recipes()?;
        let named = |error: Error| error.named(&self.name);
        options.without_min_hold().map_err(named)?;
        options.without_replica_ack().map_err(named)?;
        let engines = &self.quorum.engines;
        let terms = engines.iter().map(|engine| options.terms(engine));
        let terms = terms.collect::<Result<Vec<_>, _>>().map_err(named)?;
        let lease = terms.iter().map(|terms| terms.lease).min();
        let asking = RoundParams {
            engines: engines.clone(),
            recipes: Arc::clone(recipes),
            terms,
            owner: options.owner,
            for_body: options.for_body,
            need: self.quorum.need(),
            server_timeout: self.quorum.server_timeout(self.server_timeout, lease),
        };
        let acquisition = Acquisition::new(self, asking, options.wait);
        acquisition.run().await
    }

    /// Acquires the lock, runs `body` under it, and releases it.
    ///
    /// If the lock is lost, the body is dropped; see [`RedLockGuard::run`].
    ///
    /// # Cancel safety
    ///
    /// The body is dropped first, then the lock is released in the background.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) or `ShutDown` if the body was
    /// dropped. Neither replaces the result of a completed body, whatever the release returns.
    pub async fn with<T>(&self, body: impl AsyncFnOnce(&RedLockGuard) -> T) -> Result<T, Error> {
        let guard = self.lock_with(LockOptions::new().for_body()).await?;
        let output = guard.run(body(&guard)).await?;
        RELEASE.note(guard.unlock().await);
        Ok(output)
    }

    fn starved(&self) -> Error {
        self.quorum.starved(ACTION, &self.name)
    }

    /// Frees the lock on all servers from any holder, and returns whether it was held.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; the same for the methods below.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority answers in time; the lock is
    /// freed on the other servers nevertheless. [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let freed = self.ask(async |lock| lock.force_unlock().await).await?;
        Ok(freed.into_iter().any(|freed| freed))
    }

    /// Returns whether the lock is held on a majority of the servers.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if too few servers answer in time to decide.
    /// [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let (servers, need) = (self.quorum.engines.len(), self.quorum.need());
        let holders = self.survey().await?;
        let held = holders.iter().filter(|holder| holder.is_some()).count();
        if held >= need {
            Ok(true)
        } else if held + (servers - holders.len()) < need {
            Ok(false)
        } else {
            Err(self.starved())
        }
    }

    /// Returns the holder of the lock, if it is held on a majority of the servers: the owner on the
    /// first of these. The owner on each server comes from the client of that server.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority answers in time.
    /// [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn holder(&self) -> Result<Option<HoldId>, Error> {
        let holders = self.holders().await?;
        let held = holders.len() >= self.quorum.need();
        Ok(holders.into_iter().next().filter(|_| held))
    }

    /// Returns the holder on each server that answers, in the order of the servers, without servers
    /// where the lock is free.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority answers in time.
    /// [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn holders(&self) -> Result<Vec<HoldId>, Error> {
        let holders = self.survey().await?.into_iter().flatten();
        Ok(holders.map(|holder| holder.owner).collect())
    }

    /// Returns the hold count of the holder on a majority of the servers; zero if there is no such
    /// holder.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority answers in time.
    /// [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        let holders = self.survey().await?.into_iter().flatten();
        Ok(self
            .majority(holders.map(|holder| holder.count))
            .unwrap_or(0))
    }

    /// Returns the remaining time for which a majority of the servers has the lock without an
    /// extension; `None` if no majority has it, or if the keys have no TTL.
    ///
    /// # Errors
    ///
    /// [`Quorum`](crate::ErrorKind::Quorum) if less than a majority answers in time.
    /// [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        let holders = self.survey().await?.into_iter().flatten();
        Ok(self.majority(holders.filter_map(|holder| holder.ttl)))
    }

    /// The greatest value that a majority has or exceeds.
    fn majority<T: Ord>(&self, values: impl Iterator<Item = T>) -> Option<T> {
        let mut values: Vec<_> = values.collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.into_iter().nth(self.quorum.need() - 1)
    }

    /// The holders on each server that answers.
    async fn survey(&self) -> Result<Vec<Option<Holder>>, Error> {
        let holders = self.ask(async |lock| lock.inspect().await).await?;
        let first = |holders: Vec<Holder>| holders.into_iter().next();
        Ok(holders.into_iter().map(first).collect())
    }

    /// Asks all servers at the same time; returns the replies that come in time.
    async fn ask<T>(
        &self,
        question: impl AsyncFn(&Lock<AnyKind>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let recipes = self.recipes()?;
        let engines = &self.quorum.engines;
        let lease = engines.iter().map(|engine| engine.config.lease).min();
        let timeout = self.quorum.server_timeout(self.server_timeout, lease);
        let until = clock::to_tokio(clock::after(clock::now(), timeout));
        let locks: Vec<_> = engines
            .iter()
            .zip(recipes.iter())
            .map(|(engine, recipe)| Lock::<AnyKind>::of(engine, Ok(Arc::clone(recipe))))
            .collect();
        let asked = locks.iter().map(|lock| {
            let answer = question(lock);
            async move { clock::timeout_at(until, answer).await }
        });
        let (mut answers, mut refused) = (Vec::new(), None);
        for answer in join_all(asked).await {
            match answer {
                Ok(Ok(answer)) => answers.push(answer),
                Ok(Err(error)) if !error.is_unavailable() => refused = Some(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        match refused {
            _ if answers.len() >= self.quorum.need() => Ok(answers),
            Some(error) => Err(error),
            None => Err(self.starved()),
        }
    }
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock")
            .field("name", &self.name)
            .field("servers", &self.quorum.engines.len())
            .finish_non_exhaustive()
    }
}
