//! The guard of permits with leases.

use std::time::Duration;

use super::options::check_lease_of;
use crate::engine::{GuardState, HoldGuard, LostReason, Unlocked};
use crate::error::Error;
use crate::wire::{ID_DIGITS, PermitsWire};

/// The guard of a permit of a [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore), or of
/// several permits that were acquired together.
///
/// Like the [guard of a lock](crate::LockGuard), it never reports a permit as held after its local
/// deadline. [`release`](Self::release) is the normal way to end the guard. Dropping the guard queues
/// the release, and never blocks. Before a process ends, see [the end of a
/// program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the permit"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct LeasedPermit {
    inner: HoldGuard,
    ids: Vec<String>,
}

impl LeasedPermit {
    pub(super) fn new(inner: HoldGuard, wire: &PermitsWire) -> Self {
        let digits = wire.ids(&inner.hold.id());
        let starts = (0..digits.len()).step_by(ID_DIGITS);
        let ids = starts.map(|start| digits[start..start + ID_DIGITS].to_owned());
        Self {
            ids: ids.collect(),
            inner,
        }
    }

    /// Returns the permit's id, 32 hexadecimal digits; the first id if there are several permits.
    #[must_use]
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// Returns the ids of all permits of the guard.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns the number of permits of the guard.
    #[must_use]
    pub fn permits(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    /// Gives the permits back, and waits for the replies of Redis.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::unlock`](crate::LockGuard::unlock). A permit that is no longer held is not
    /// an error: the call returns [`Unlocked::AlreadyExpired`].
    pub async fn release(self) -> Result<Unlocked, Error> {
        let released = self.inner.unlock().await;
        released.map_err(|error| error.trying("release permits of semaphore"))
    }

    /// Ends the guard without a release, and returns the ids of the permits. The permits are not
    /// renewed and end with their leases; [release](crate::PermitExpirableSemaphore::release) them
    /// by their ids to end them sooner. Never blocks.
    pub fn forget(self) -> Vec<String> {
        self.inner.forget();
        self.ids
    }

    /// Returns the state of the guard at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Returns whether the permits are held at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until a permit is lost, and returns the reason.
    ///
    /// The future resolves as soon as a renewal finds that the permit is gone, within one renewal
    /// interval of the loss. It resolves at the local deadline at the latest, whether or not Redis can
    /// be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.inner.lost().await
    }

    /// Runs `body` under the permits, and drops it as soon as one of them is lost.
    ///
    /// The body is cancelled at its next await: it is dropped completely, then `run` returns. Tasks
    /// that the body spawned continue. The result of a completed body is never replaced by `Lost`.
    /// If a permit is already lost, the body is not started.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the body was dropped, or was not started because a
    /// permit was already lost (`ShutDown` if the client's shut-down ended the hold). The outcome
    /// of a dropped body is unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use std::time::Duration;
    /// use redlock_rt::{Client, PermitOptions};
    ///
    /// let client = Client::embedded();
    /// let calls = client.permit_expirable_semaphore("calls to the bank").limit(2);
    /// let options = PermitOptions::new().renew(Duration::from_millis(20));
    /// let permit = calls.acquire_with(options).await?;
    /// assert_eq!(permit.run(async { "paid" }).await?, "paid");
    ///
    /// calls.release(permit.id()).await?;
    /// let stopped = permit.run(std::future::pending::<()>()).await;
    /// assert!(stopped.unwrap_err().is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        // Boxed for the same reason as for a lock.
        let body = Box::pin(body);
        self.inner.run("run a body under permit of semaphore", body)
    }

    /// Extends the lease to `lease` from now, if that is longer than the remaining lease.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be extended.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if a permit is gone (`ShutDown` if the client's shut-down
    /// ended the hold): nothing re-creates it. [`BadInput`](crate::ErrorKind::BadInput) for an
    /// invalid lease. [`Unavailable`](crate::ErrorKind::Unavailable) if Redis cannot be reached,
    /// and [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not answer within the
    /// response time-out; the call then continues in the background.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        const ACTION: &str = "extend permit of semaphore";
        check_lease_of(ACTION, &*self.inner.hold.recipe, lease)?;
        self.inner.extend(ACTION, lease).await
    }

    /// Returns the name of the semaphore in Redis, with the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }
}
