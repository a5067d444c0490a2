//! The re-entrant lock.

use std::sync::Arc;

use super::guard::LockGuard;
use super::kind::sealed::{Adoptable, Sealed};
use super::lock::Lock;
use crate::engine::ClientEngine;
use crate::error::Error;
use crate::wire::{Named, RLockWire};

/// The kind of [`RLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Reentrant;

/// A re-entrant lock, shared with Redisson's `RLock` of the same name.
///
/// Use it where only one process at a time may do something. An announcement wakes waiters; there
/// is no order among processes.
///
/// A lock with a lease makes overlaps unlikely, but cannot exclude them (a paused process, a lost
/// master). If an overlap does harm, let the resource check a fencing token too.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::Duration;
/// use redlock_rt::{Client, LockOptions};
///
/// let client = Client::embedded();
/// let lock = client.rlock("order:7");
///
/// let guard = lock.lock_with(LockOptions::new().wait(Duration::from_secs(1))).await?;
/// assert!(lock.try_lock().await?.is_none());
/// guard.unlock().await?;
///
/// let receipt = lock.with(async |_guard| "paid").await?;
/// assert_eq!(receipt, "paid");
/// # Ok(())
/// # }
/// ```
pub type RLock = Lock<Reentrant>;

/// The guard of an [`RLock`].
pub type RLockGuard = LockGuard<Reentrant>;

impl Sealed for Reentrant {}

impl Adoptable for Reentrant {
    const FENCED: bool = false;
}

impl RLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::new(engine, Named::RLock, name, RLockWire::new)
    }

    /// Takes the lock by force from any holder, or acquires a free lock, and gives a reason.
    ///
    /// The holder's guard is lost with [`LostReason::Stolen`](crate::LostReason::Stolen), which names this
    /// client's [identity](crate::ClientBuilder::identity) (or the id of the new hold) and the reason. This
    /// happens at its next renewal or re-entry, or at once with [`tracking`](crate::ClientBuilder::tracking).
    /// For a holder of Redisson it looks like a `forceUnlock`. All guards of the holder are lost, also those of
    /// this client, and the bodies that run under them. Nothing is re-entered. The new hold has the client's
    /// [lease](crate::ClientBuilder::lease) and is renewed.
    ///
    /// **The holder may continue until it notices.** If that does harm, let the resource check a token, with a
    /// [`FencedLock`](crate::FencedLock).
    ///
    /// The reason has 1 to 1024 bytes and no NUL, and is not blank. Redis keeps it for the rest of the holder's
    /// lease and 10 s more.
    ///
    /// # Round trips
    ///
    /// Two: a look at the holder, and one script that takes the lock from it alone.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses all waiters.
    ///
    /// # Cancel safety
    ///
    /// The holder may have lost the lock, which is then free.
    ///
    /// # Errors
    ///
    /// [`Contended`](crate::ErrorKind::Contended) if another owner has taken the lock since the look. A steal
    /// takes it only from the holder that it saw, or a free lock, also if its reply is lost and the call is
    /// repeated. A holder of Redisson is a thread, whichever of its holds that is.
    /// [`BadInput`](crate::ErrorKind::BadInput) for a bad reason, and those of [`try_lock`](Self::try_lock).
    /// After these the holder may also have lost the lock, if Redis did not answer.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use redlock_rt::{Client, LostReason};
    ///
    /// let client = Client::embedded();
    /// let lock = client.rlock("import");
    /// let stuck = lock.lock().await?;
    ///
    /// let guard = lock.steal("deploy 42: stuck worker").await?;
    /// assert!(guard.is_valid());
    /// let LostReason::Stolen(theft) = stuck.lost().await else {
    ///     panic!("it was stolen");
    /// };
    /// assert_eq!(theft.why, "deploy 42: stuck worker");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn steal(&self, why: &str) -> Result<RLockGuard, Error> {
        self.steal_for(why).await
    }
}
