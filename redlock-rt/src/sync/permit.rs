//! The guard of permits with leases.

use std::fmt;
use std::time::Duration;

use super::options::check_lease;
use crate::engine::{GuardState, HoldGuard, LostReason, Unlocked};
use crate::error::Error;
use crate::wire::{ID_DIGITS, PermitsWire};

/// A permit of a [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore) that is held, or
/// several that were acquired together, and the truth about them.
///
/// Like the [guard of a lock](crate::LockGuard) it never reports a permit as held after its local
/// deadline. [`release`](Self::release) is the normal road; dropping the guard queues the release,
/// which never blocks.
/// Before a process ends: [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the permit"]
#[clippy::has_significant_drop]
pub struct LeasedPermit {
    inner: HoldGuard,
    ids: Vec<String>,
}

impl LeasedPermit {
    pub(super) fn new(inner: HoldGuard, wire: &PermitsWire) -> Self {
        let digits = wire.ids(&inner.hold.id);
        let starts = (0..digits.len()).step_by(ID_DIGITS);
        let ids = starts.map(|start| digits[start..start + ID_DIGITS].to_owned());
        Self {
            ids: ids.collect(),
            inner,
        }
    }

    /// Returns the permit's id, 32 hexadecimal digits; of several permits, the first one's.
    #[must_use]
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// Returns the ids of all permits of the guard.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns how many permits the guard has.
    #[must_use]
    pub fn permits(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    /// Gives the permits back, and waits until Redis has said what became of them.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::unlock`](crate::LockGuard::unlock). A permit that is not held any more is no
    /// error, but [`Unlocked::AlreadyExpired`].
    pub async fn release(self) -> Result<Unlocked, Error> {
        let released = self.inner.unlock().await;
        released.map_err(|error| error.trying("release permits of semaphore"))
    }

    /// Ends the guard and leaves the permits to their leases, not renewed any more; answers their
    /// ids, by which they can be released before. Never blocks.
    pub fn forget(self) -> Vec<String> {
        self.inner.forget();
        self.ids
    }

    /// Returns what the guard knows of its permits at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Returns whether the permits are ours at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until a permit is lost, and says why.
    ///
    /// Resolves as soon as a renewal finds it gone (within a renewal interval of its loss), and at
    /// the local deadline at the latest, whether or not Redis can be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    pub async fn lost(&self) -> LostReason {
        self.inner.lost().await
    }

    /// Runs `body` under the permits, and drops it as soon as one of them is lost.
    ///
    /// Cancelling takes effect at the body's next await: the body is dropped completely, then this
    /// returns. What the body spawned goes on. A body that completed is never called lost, and under
    /// a permit that is lost already none is started.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the body was dropped; unless it was not started, its
    /// outcome is unknown.
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
        // Boxed for the reason that there is for a lock's: see there.
        let body = Box::pin(body);
        self.inner.run("run a body under permit of semaphore", body)
    }

    /// Lengthens the lease to `lease` from now, if that is longer than what is left.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be lengthened.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where a permit is gone: nothing re-creates it.
    /// [`BadInput`](crate::ErrorKind::BadInput) for a lease that cannot be one.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        const ACTION: &str = "extend permit of semaphore";
        let hold = &self.inner.hold;
        let named = |error: Error| error.named(hold.recipe.name().as_arc());
        check_lease(lease).map_err(named)?;
        if let Some(flaw) = hold.recipe.flaw(lease) {
            return Err(named(Error::bad_input(ACTION, flaw)));
        }
        self.inner.extend(ACTION, lease).await
    }

    /// Returns the name of the semaphore as it stands in Redis.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }
}

impl fmt::Debug for LeasedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedPermit")
            .field("ids", &self.ids)
            .field("guard", &self.inner)
            .finish()
    }
}
