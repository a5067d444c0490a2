//! The guard of a lock on a majority of servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::group::{Group, roll_back};
use super::super::options::LockOptions;
use super::quorum::QuorumState;
use super::repairer::{RepairJob, RepairKey};
use super::round::RoundVerdict;
use crate::clock;
use crate::engine::{GuardState, LostReason, Unlocked};
use crate::error::Error;
use crate::name::HoldId;

/// The guard of a held [`RedLock`](crate::RedLock): held without interruption on enough servers
/// that no other client can have a majority.
///
/// The guard reports the state of the majority, as a [`LockGuard`](crate::LockGuard) does for one
/// server:
///
/// * **Held** until the moment after which less than a majority would be left, by the local clock
///   alone, with a margin for clocks that run at different speeds.
/// * **Suspect** while that depends on servers whose renewals fail.
/// * **Lost** for good when less than a majority is left. The remaining parts are released.
///
/// The guard does not show the loss of a minority, which is repaired in the background. Before a
/// process ends, see [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the lock"]
#[clippy::has_significant_drop]
pub struct RedLockGuard {
    quorum: Arc<QuorumState>,
    job: Arc<RepairJob>,
    /// The key of its job in the repairer.
    key: RepairKey,
}

impl RedLockGuard {
    pub(super) fn new(quorum: &Arc<QuorumState>, job: RepairJob) -> Self {
        let job = Arc::new(job);
        Self {
            quorum: Arc::clone(quorum),
            key: quorum.repairer.watch(&job),
            job,
        }
    }

    /// Releases the lock on all servers, and waits for the replies of a majority.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time.
    ///
    /// # Cancel safety
    ///
    /// The releases continue in the background, as do those on servers that do not answer.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if no majority answers, as for
    /// [`LockGuard::unlock`](crate::LockGuard::unlock). An expired or lost lock is not an error:
    /// the call returns [`Unlocked::AlreadyExpired`].
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.job.group.unlock(false).await
    }

    /// Returns the state of the guard at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.job.group.state()
    }

    /// Returns whether the lock is held at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until less than a majority is left, and returns why the first missing part was lost.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.ensure_repairs();
        self.job.group.lost().await
    }

    /// Extends the lease to `lease` from now, if that is longer than the remaining lease.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; it returns when a majority has agreed.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be extended, on each server separately.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is lost (`ShutDown` if a client's shut-down
    /// ended the hold): nothing re-creates it. Those of
    /// [`LockGuard::extend`](crate::LockGuard::extend) if no majority agrees.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.ensure_repairs();
        self.job.group.extend(lease).await
    }

    /// Takes the lock once more for the same owners. Both guards must end before the lock is free.
    ///
    /// Re-entry never shortens a lease. The new guard has the `max_hold` of this guard. If re-entry
    /// fails on a server, that part is repaired in the background like a lost one.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; the call returns a moment after a majority has
    /// agreed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the counts are reduced again on all servers.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is lost (`ShutDown` if a client's shut-down
    /// ended the hold); nothing re-creates it. [`Quorum`](crate::ErrorKind::Quorum) if less than a
    /// majority answers; the counts are reduced again.
    pub async fn reenter(&self) -> Result<Self, Error> {
        const ACTION: &str = "re-enter lock";
        let job = &*self.job;
        job.group.not_lost(ACTION)?;
        let options = LockOptions::new();
        let mut asking = job.asking.clone();
        for (place, engine) in job.asking.engines.iter().enumerate() {
            asking.terms[place] = options.terms(engine)?.within(job.max_hold(place));
        }
        let started = clock::now();
        let patience = asking.engines.iter().map(|engine| engine.patience(started));
        let until = patience.max().unwrap_or(started);
        let mut round = asking.round(until, Some(&job.group.holds())).await;
        if round.verdict() != RoundVerdict::Acquired {
            let error = round.fatal.pop();
            let (parts, _) = round.into_parts();
            roll_back(parts, until).await;
            job.group.not_lost(ACTION)?;
            return Err(error.unwrap_or_else(|| self.quorum.starved(ACTION, &job.group.name)));
        }
        let (parts, missing) = round.into_parts();
        let name = &job.group.name;
        let group = Group::new(name, asking.need, asking.engines.len(), parts);
        group.not_lost(ACTION)?;
        let job = RepairJob::new(&asking, group, missing, started);
        Ok(Self::new(&self.quorum, job))
    }

    /// Runs `body` under the lock, and drops it as soon as the lock is lost.
    ///
    /// Inside the body, a [`RedLock`](crate::RedLock) of the same name and quorum re-enters, as for
    /// [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the body was dropped, or was not started because the
    /// lock was already lost (`ShutDown` if a client's shut-down ended the hold). The outcome of a
    /// dropped body is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        // As for a lock on one server: not inlined into every enclosing future.
        let body = Box::pin(body);
        async move {
            self.ensure_repairs();
            self.job.group.run(body).await
        }
    }

    /// The runtime of the repairing task may have ended, and the guard was moved to another one.
    fn ensure_repairs(&self) {
        self.quorum.repairer.ensure(&self.job);
    }

    /// Returns the name of the lock as given to the quorum. On each server the namespace of its
    /// client precedes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.job.group.name
    }

    /// Returns the number of servers on which the lock is held at this moment.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.job.group.places().0.len()
    }

    /// Returns the identities of the holds, as stored on the servers, in the order of the servers.
    #[must_use]
    pub fn hold_ids(&self) -> Vec<HoldId> {
        self.job.group.hold_ids()
    }

    /// Returns the number of guards that share the holds of a majority, including this one.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.job.group.count()
    }
}

impl Drop for RedLockGuard {
    fn drop(&mut self) {
        self.job.group.leave();
        self.quorum.repairer.forget(&self.key);
    }
}

impl fmt::Debug for RedLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.job.group, f)
    }
}
