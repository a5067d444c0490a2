//! The guard of a lock that is held on a majority of servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::group::Group;
use super::super::options::check_lease;
use super::keeper::Charge;
use super::quorum::Shared;
use crate::engine::{GuardState, LostReason, Unlocked};
use crate::error::Error;
use crate::name::OwnerId;

/// A [`RedLock`](crate::RedLock) that is held: on so many servers, without interruption, that nobody
/// else can have a majority.
///
/// It says of the majority what a [`LockGuard`](crate::LockGuard) says of one server: held until the
/// moment from which on fewer than a majority would be left, by the local clock alone, with a
/// margin for clocks that run at different speeds. It is suspect while that depends on servers
/// whose renewals fail. The loss of a minority is not seen in it, and made good in the background.
/// Once fewer than a majority are left it is lost for good, and what is left is released.
#[must_use = "dropping the guard releases the lock"]
#[clippy::has_significant_drop]
pub struct RedLockGuard {
    quorum: Arc<Shared>,
    group: Arc<Group>,
    /// What the keeper knows it by.
    number: u64,
}

impl RedLockGuard {
    pub(super) fn new(quorum: &Arc<Shared>, charge: Charge) -> Self {
        let charge = Arc::new(charge);
        Self {
            quorum: Arc::clone(quorum),
            group: Arc::clone(&charge.group),
            number: quorum.keeper.watch(&charge),
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
        self.group.unlock().await
    }

    /// Returns what the guard knows of its lock at this moment, by the local clock alone.
    pub fn state(&self) -> GuardState {
        self.group.state()
    }

    /// Returns whether the lock is ours at this moment, by the local clock alone.
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
        self.group.lost().await
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
        check_lease(lease).map_err(|error| error.named(self.group.name()))?;
        self.group.extend(lease).await
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
        self.group.run(body)
    }

    /// Returns on how many servers it is held at this moment.
    pub fn servers(&self) -> usize {
        self.group.places().0.len()
    }

    /// Returns the owners of the holds as they stand on the servers, in their order.
    pub fn owners(&self) -> Vec<OwnerId> {
        self.group.owners()
    }

    /// Returns how many guards share the holds of a majority, this one included.
    pub fn hold_count(&self) -> u32 {
        self.group.count()
    }
}

impl Drop for RedLockGuard {
    fn drop(&mut self) {
        self.group.leave();
        self.quorum.keeper.forget(self.number);
    }
}

impl fmt::Debug for RedLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.group, f)
    }
}
