//! The guard of several locks that are held together.

use std::fmt;
use std::time::Duration;

use super::super::group::Group;
use super::super::options::check_lease;
use crate::engine::{GuardState, LostReason, Scope, Unlocked};
use crate::error::Error;
use crate::name::OwnerId;

/// All locks of a [`MultiLock`](crate::MultiLock), held together.
///
/// It says of all what a [`LockGuard`](crate::LockGuard) says of one: held until the earliest of
/// their local deadlines, and lost, for good, as soon as any of them is. Each is renewed by its own
/// client. Dropping the guard queues all releases.
#[must_use = "dropping the guard releases the locks"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard {
    group: Group,
}

impl MultiLockGuard {
    pub(super) fn new(group: Group) -> Self {
        Self { group }
    }

    /// What a body under the locks runs in.
    pub(crate) fn scope(&self) -> Scope {
        self.group.scope()
    }

    /// Returns the names of all locks.
    pub(crate) fn name(&self) -> &str {
        self.group.name()
    }

    /// Releases all locks, and waits until Redis has said what became of them.
    ///
    /// # Round trips
    ///
    /// One for each lock, side by side.
    ///
    /// # Cancel safety
    ///
    /// The releases go on in the background.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::unlock`](crate::LockGuard::unlock), of the first that fails. Where any
    /// lock had expired or was lost the answer is [`Unlocked::AlreadyExpired`].
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.group.unlock().await
    }

    /// Returns what the guard knows of its locks at this moment, by the local clock alone.
    pub fn state(&self) -> GuardState {
        self.group.state()
    }

    /// Returns whether all locks are ours at this moment, by the local clock alone.
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until one of the locks is lost, and says why.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    pub async fn lost(&self) -> LostReason {
        self.group.lost().await
    }

    /// Lengthens all leases to `lease` from now, where that is longer than what is left.
    ///
    /// # Round trips
    ///
    /// One for each lock, side by side.
    ///
    /// # Cancel safety
    ///
    /// Each lease may or may not be lengthened.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::extend`](crate::LockGuard::extend), of the first that fails.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        check_lease(lease).map_err(|error| error.named(self.group.name()))?;
        self.group.extend(lease).await
    }

    /// Runs `body` under all locks, and drops it as soon as any is lost.
    ///
    /// Inside, each of the locks is re-entered, by itself or in another
    /// [`MultiLock`](crate::MultiLock); see [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the body was dropped; unless it was not started, its
    /// outcome is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        // As for a single guard: not inlined into every future on the way.
        let body = Box::pin(body);
        self.group.run(body)
    }

    /// Returns the owners of the holds as they stand in Redis, in the order of the locks.
    pub fn owners(&self) -> Vec<OwnerId> {
        self.group.owners()
    }

    /// Returns how many guards share the holds, this one included; of different counts the smallest.
    pub fn hold_count(&self) -> u32 {
        self.group.count()
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.group, f)
    }
}
