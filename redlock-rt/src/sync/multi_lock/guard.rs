//! The guard of several locks that are held together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::group::Group;
use super::Checked;
use crate::engine::{GuardState, LostReason, ReentryScope, Unlocked};
use crate::error::Error;
use crate::name::HoldId;

/// All locks of a [`MultiLock`](crate::MultiLock), held together.
///
/// The guard reports the state of all locks together, as a [`LockGuard`](crate::LockGuard) does for
/// one lock: held until the earliest of their local deadlines, and lost, for good, as soon as any
/// lock is lost. The other locks stay until the guard ends. Each lock is renewed by its own client.
/// Dropping the guard queues all releases. Before a process ends, see [the end of a
/// program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the locks"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard {
    group: Group,
    /// The locks, by place.
    parts: Arc<[Checked]>,
}

impl MultiLockGuard {
    pub(super) fn new(group: Group, parts: &Arc<[Checked]>) -> Self {
        Self {
            group,
            parts: Arc::clone(parts),
        }
    }

    /// The scope of a body under the locks.
    pub(crate) fn scope(&self) -> ReentryScope {
        self.group.scope()
    }

    /// Returns the names of all locks.
    pub(crate) fn name(&self) -> &str {
        &self.group.name
    }

    /// Releases all locks, and waits for the replies of Redis.
    ///
    /// # Round trips
    ///
    /// One for each lock, concurrently.
    ///
    /// # Cancel safety
    ///
    /// The releases continue in the background.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::unlock`](crate::LockGuard::unlock), for the first lock that fails. If
    /// some locks stay locked for their [`min_hold`](crate::LockOptions::min_hold), the call
    /// returns [`Unlocked::Kept`] with the time when the last of them is free. If any lock had
    /// expired or was lost, the call returns [`Unlocked::AlreadyExpired`] after the others are
    /// released.
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.group.unlock(true).await
    }

    /// Returns the state of the guard at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.group.state()
    }

    /// Returns whether all locks are held at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until one of the locks is lost, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.group.lost().await
    }

    /// Extends all leases to `lease` from now, if that is longer than the remaining lease.
    ///
    /// # Round trips
    ///
    /// One for each lock, concurrently.
    ///
    /// # Cancel safety
    ///
    /// Each lease may or may not be extended.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::extend`](crate::LockGuard::extend), for the first lock that fails.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.group.extend(lease).await
    }

    /// Takes all locks once more for the same owners. Both guards must end before the locks are
    /// free.
    ///
    /// Re-entry never shortens a lease. The new guard has the `max_hold` of this guard.
    ///
    /// # Round trips
    ///
    /// One for each lock, concurrently.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the counts are reduced again.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::reenter`](crate::LockGuard::reenter), for the first lock that fails;
    /// the re-entries of the others are undone.
    pub async fn reenter(&self) -> Result<Self, Error> {
        let group = self.group.reenter().await?;
        Ok(Self::new(group, &self.parts))
    }

    /// Runs `body` under all locks, and drops it as soon as any lock is lost.
    ///
    /// Inside the body, each of the locks can be re-entered, alone or in another
    /// [`MultiLock`](crate::MultiLock); see [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the body was dropped, or was not started because the
    /// lock was already lost (`ShutDown` if a client's shut-down ended the hold). The outcome of a
    /// dropped body is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        // As for a single guard: not inlined into every enclosing future.
        let body = Box::pin(body);
        self.group.run(body)
    }

    /// Returns the names of the locks in Redis, with their namespaces, in the order in which they
    /// were taken.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let holds = self.group.holds();
        holds.into_keys().map(|place| self.name_at(place)).collect()
    }

    /// Returns the fencing tokens of all [`FencedLock`](crate::FencedLock)s among the locks, with
    /// the names as in [`names`](Self::names), in the order of the locks.
    ///
    /// Each token is for the resource of its own lock: send it with the writes to that resource. Do
    /// not compare tokens of different names.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use redlock_rt::{Client, MultiLock};
    ///
    /// let client = Client::embedded();
    /// let accounts = ["account:7", "account:3"].map(|name| client.fenced_lock(name));
    /// let guard = MultiLock::new(&accounts).lock().await?;
    /// for (name, token) in guard.tokens() {
    ///     // UPDATE accounts SET .., fence = :token WHERE name = :name AND fence <= :token
    ///     assert!(client.fenced_lock(name).token().await? >= Some(token));
    /// }
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tokens(&self) -> Vec<(&str, u64)> {
        let holds = self.group.holds().into_iter();
        let tokens = holds.filter_map(|(place, hold)| Some((self.name_at(place), hold.token()?)));
        tokens.collect()
    }

    fn name_at(&self, place: usize) -> &str {
        self.parts[place].recipe.name().as_str()
    }

    /// Returns the identities of the holds, as stored in Redis, in the order of the locks.
    #[must_use]
    pub fn hold_ids(&self) -> Vec<HoldId> {
        self.group.hold_ids()
    }

    /// Returns the number of guards that share the holds, including this one; the smallest number
    /// if they differ.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.group.count()
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.group, f)
    }
}
