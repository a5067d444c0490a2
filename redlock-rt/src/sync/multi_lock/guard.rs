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
/// It says of all what a [`LockGuard`](crate::LockGuard) says of one: held until the earliest of
/// their local deadlines, and lost, for good, as soon as any of them is; the others stay as they are
/// until the guard ends. Each is renewed by its own client. Dropping the guard queues all releases.
/// Before a process ends: [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the locks"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard {
    group: Group,
    /// By place.
    parts: Arc<[Checked]>,
}

impl MultiLockGuard {
    pub(super) fn new(group: Group, parts: &Arc<[Checked]>) -> Self {
        Self {
            group,
            parts: Arc::clone(parts),
        }
    }

    /// What a body under the locks runs in.
    pub(crate) fn scope(&self) -> ReentryScope {
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
    /// Those of [`LockGuard::unlock`](crate::LockGuard::unlock), of the first that fails. Where some
    /// stay locked for their [`min_hold`](crate::LockOptions::min_hold) the answer is
    /// [`Unlocked::Kept`], until the last of them is free. Where any
    /// lock had expired or was lost the answer is [`Unlocked::AlreadyExpired`], once the others are
    /// released.
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.group.unlock_all().await
    }

    /// Returns what the guard knows of its locks at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.group.state()
    }

    /// Returns whether all locks are ours at this moment, by the local clock alone.
    #[must_use]
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
        self.group.extend(lease).await
    }

    /// Takes all locks once more for the same owners: both guards must end before they are free.
    ///
    /// No lease is shortened by it, and `max_hold` is this guard's own.
    ///
    /// # Round trips
    ///
    /// One for each lock, side by side.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the counts are set back.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::reenter`](crate::LockGuard::reenter), of the first that fails; what was
    /// taken of the others is given back.
    pub async fn reenter(&self) -> Result<Self, Error> {
        let group = self.group.reenter().await?;
        Ok(Self::new(group, &self.parts))
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

    /// Returns the names of the locks as they stand in Redis, in the order in which they were taken.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let holds = self.group.holds();
        let places = holds.into_iter().map(|(place, _)| place);
        places.map(|place| self.name_at(place)).collect()
    }

    /// Returns the fencing tokens of those that are [`FencedLock`](crate::FencedLock)s, with the
    /// names as in [`names`](Self::names), in the order of the locks.
    ///
    /// Each is for the resource of its own lock: send it along with the writes to that one. Tokens
    /// of different names are not to be compared.
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
    ///     assert_eq!(client.fenced_lock(name).token().await?, Some(token));
    /// }
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tokens(&self) -> Vec<(&str, u64)> {
        let holds = self.group.holds().into_iter();
        let tokens = holds.filter_map(|(place, hold)| Some((self.name_at(place), hold.token?)));
        tokens.collect()
    }

    fn name_at(&self, place: usize) -> &str {
        self.parts[place].recipe.name().as_str()
    }

    /// Returns the identities of the holds as they stand in Redis, in the order of the locks.
    #[must_use]
    pub fn hold_ids(&self) -> Vec<HoldId> {
        self.group.hold_ids()
    }

    /// Returns how many guards share the holds, this one included; of different counts the smallest.
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
