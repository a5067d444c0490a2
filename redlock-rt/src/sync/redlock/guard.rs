//! The guard of a lock that is held on a majority of servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::group::{Group, roll_back};
use super::super::options::LockOptions;
use super::quorum::Shared;
use super::repairer::RepairJob;
use super::round::{Asking, Verdict};
use crate::clock;
use crate::engine::{GuardState, LostReason, Unlocked};
use crate::error::Error;
use crate::name::HoldId;

/// A [`RedLock`](crate::RedLock) that is held: on so many servers, without interruption, that nobody
/// else can have a majority.
///
/// It says of the majority what a [`LockGuard`](crate::LockGuard) says of one server: held until the
/// moment from which on fewer than a majority would be left, by the local clock alone, with a
/// margin for clocks that run at different speeds. It is suspect while that depends on servers
/// whose renewals fail. The loss of a minority is not seen in it, and made good in the background.
/// Once fewer than a majority are left it is lost for good, and what is left is released. Before a
/// process ends: [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the lock"]
#[clippy::has_significant_drop]
pub struct RedLockGuard {
    quorum: Arc<Shared>,
    job: Arc<RepairJob>,
    /// What the repairer knows it by.
    number: u64,
}

impl RedLockGuard {
    pub(super) fn new(quorum: &Arc<Shared>, job: RepairJob) -> Self {
        let job = Arc::new(job);
        Self {
            quorum: Arc::clone(quorum),
            number: quorum.repairer.watch(&job),
            job,
        }
    }

    /// Releases the lock on all servers, and waits until a majority has said what became of it.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time.
    ///
    /// # Cancel safety
    ///
    /// The releases go on in the background, as do those of servers that do not answer.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where no majority answers, as for
    /// [`LockGuard::unlock`](crate::LockGuard::unlock). An expired or lost lock is no error, but
    /// [`Unlocked::AlreadyExpired`].
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.job.group.unlock().await
    }

    /// Returns what the guard knows of its lock at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.job.group.state()
    }

    /// Returns whether the lock is ours at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until fewer than a majority is left, and says why the first of those that are missing
    /// was lost.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    pub async fn lost(&self) -> LostReason {
        self.job.group.lost().await
    }

    /// Lengthens the lease to `lease` from now, where that is longer than what is left.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; it returns when a majority has agreed.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be lengthened, on each server by itself.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the lock is lost: nothing re-creates it. Those of
    /// [`LockGuard::extend`](crate::LockGuard::extend) where no majority agrees.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.job.group.extend(lease).await
    }

    /// Takes the lock once more for the same owners: both guards must end before it is free.
    ///
    /// No lease is shortened by it, and `max_hold` is this guard's own. A server where that fails is
    /// made good in the background, as one that is lost.
    ///
    /// # Round trips
    ///
    /// One to each server, all at the same time; it returns a moment after a majority has agreed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the counts are set back on all servers.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the lock is lost; nothing revives it.
    /// [`Quorum`](crate::ErrorKind::Quorum) where fewer than a majority answers; the counts are set
    /// back.
    pub async fn reenter(&self) -> Result<Self, Error> {
        const ACTION: &str = "re-enter lock";
        let job = &*self.job;
        job.group.not_lost(ACTION)?;
        let options = LockOptions::new();
        let terms = job.engines.iter().map(|engine| options.terms(engine));
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        let asking = Asking {
            engines: &job.engines,
            recipes: &job.recipes,
            terms: &terms,
            owner: job.owner.as_ref(),
            for_body: false,
            under: Some(job.group.holds()),
            need: self.quorum.need(),
            server_timeout: job.server_timeout,
        };
        let started = clock::now();
        let patience = job.engines.iter().map(|engine| engine.patience(started));
        let until = patience.max().unwrap_or(started);
        let mut round = asking.round(until).await;
        if round.verdict() != Verdict::Acquired {
            let error = round.fatal.pop();
            let (parts, _) = round.into_parts();
            roll_back(parts, until).await;
            job.group.not_lost(ACTION)?;
            return Err(error.unwrap_or_else(|| self.quorum.starved(ACTION, job.group.name())));
        }
        let (parts, missing) = round.into_parts();
        let name = job.group.name();
        let group = Group::new(name, asking.need, job.engines.len(), parts);
        group.not_lost(ACTION)?;
        let job = RepairJob::new(&asking, group, missing, started);
        Ok(Self::new(&self.quorum, job))
    }

    /// Runs `body` under the lock, and drops it as soon as the lock is lost.
    ///
    /// Inside, a [`RedLock`](crate::RedLock) of the same name and quorum re-enters, as for
    /// [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the body was dropped; unless it was not started, its
    /// outcome is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        // As for a lock on one server: not inlined into every future on the way.
        let body = Box::pin(body);
        self.job.group.run(body)
    }

    /// Returns the name that the lock was made with; on each server the namespace of its client comes
    /// before it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.job.group.name()
    }

    /// Returns on how many servers it is held at this moment.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.job.group.places().0.len()
    }

    /// Returns the identities of the holds as they stand on the servers, in their order.
    #[must_use]
    pub fn hold_ids(&self) -> Vec<HoldId> {
        self.job.group.hold_ids()
    }

    /// Returns how many guards share the holds of a majority, this one included.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.job.group.count()
    }
}

impl Drop for RedLockGuard {
    fn drop(&mut self) {
        self.job.group.leave();
        self.quorum.repairer.forget(self.number);
    }
}

impl fmt::Debug for RedLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.job.group, f)
    }
}
