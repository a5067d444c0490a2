//! From reading to writing and back, without giving the lock up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{LockGuard, note_failure};
use super::kind::Kind;
use super::read_write::{Read, ReadGuard, Write, WriteGuard};
use crate::clock;
use crate::engine::{GuardState, LostReason, Unlocked};
use crate::error::{Error, ErrorKind};
use crate::wire::{ReadWire, Recipe, WriteWire};

/// A guard that could not be converted, and why. The guard is as it was.
#[clippy::has_significant_drop]
pub struct ConvertError<K: Kind> {
    guard: LockGuard<K>,
    error: Error,
}

/// Why a [`ReadGuard`] could not be upgraded, with that guard.
pub type UpgradeError = ConvertError<Read>;

/// Why a [`WriteGuard`] could not be downgraded, with that guard.
pub type DowngradeError = ConvertError<Write>;

impl<K: Kind> ConvertError<K> {
    /// Returns why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Gives the guard back.
    pub fn into_guard(self) -> LockGuard<K> {
        self.guard
    }

    /// Drops the guard, which releases the lock, and keeps the reason.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl WriteGuard {
    /// Turns writing into reading: others may read from then on, and nobody has written between.
    ///
    /// The read guard goes on with the lease, the renewal and what is left of the `max_hold` of
    /// this one. Where other guards share the hold (re-entry), it stays a write hold until they
    /// have ended too, and the read guard is one besides.
    ///
    /// # Round trips
    ///
    /// Two: reading is joined, then writing is released.
    ///
    /// # Cancel safety
    ///
    /// Both guards are released in the background.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) where the lock is gone, [`Unavailable`](ErrorKind::Unavailable)
    /// where Redis does not answer in time before reading is joined; the write guard is given back.
    /// After that the end of writing goes on in the background if it must.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        const ACTION: &str = "downgrade write lock";
        let name = self.inner.hold.recipe.name().clone();
        let recipe: Arc<dyn Recipe> = Arc::new(ReadWire::new(name));
        // Of both calls together.
        let until = self.inner.hold.engine.patience(clock::now());
        let error = match self.inner.also(ACTION, &recipe).await {
            Ok(Some(reading)) => {
                let outcome = self.inner.unlock_until(until).await;
                if !matches!(outcome, Ok(Unlocked::Released | Unlocked::StillHeld)) {
                    tracing::warn!(?outcome, "the end of writing is not confirmed");
                    reading.doubt();
                }
                return Ok(LockGuard::new(reading));
            }
            // Nobody but its writer is refused to join only where there is no such writer.
            Ok(None) => self.inner.hold.lost_error(ACTION, LostReason::Deleted),
            Err(error) => error,
        };
        Err(ConvertError { guard: self, error })
    }
}

impl ReadGuard {
    /// Turns reading into writing, if nobody else reads at this moment. Never waits for others:
    /// two readers that wait for each other's end would do so for ever.
    ///
    /// The write guard goes on with the lease, the renewal and what is left of the `max_hold` of
    /// this one. Where other guards share the hold (re-entry), they stay, and read besides.
    ///
    /// # Round trips
    ///
    /// Two: writing is acquired, then reading is released. One where others read.
    ///
    /// # Cancel safety
    ///
    /// Both guards are released in the background.
    ///
    /// # Errors
    ///
    /// With the read guard: [`Contended`](ErrorKind::Contended) where others read,
    /// [`Lost`](ErrorKind::Lost), and [`Unavailable`](ErrorKind::Unavailable) where Redis does not
    /// answer in time.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// let client = redlock_rt::Client::embedded();
    /// let lock = client.read_write_lock("prices");
    /// let (one, other) = (lock.read().await?, lock.read().await?);
    ///
    /// let refused = one.try_upgrade().await.unwrap_err();
    /// assert!(refused.error().is_contended());
    /// let one = refused.into_guard();
    ///
    /// other.unlock().await?;
    /// let writing = one.try_upgrade().await.unwrap();
    /// writing.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, UpgradeError> {
        const ACTION: &str = "upgrade read lock";
        let name = self.inner.hold.recipe.name().clone();
        // It does not wait, so it needs no preference.
        let recipe: Arc<dyn Recipe> = Arc::new(WriteWire::new(name, Duration::ZERO));
        // Of both calls together.
        let until = self.inner.hold.engine.patience(clock::now());
        let error = match self.inner.also(ACTION, &recipe).await {
            Ok(Some(writing)) => {
                note_failure(
                    self.inner.unlock_until(until).await,
                    "the end of reading goes on in the background",
                );
                return Ok(LockGuard::new(writing));
            }
            Ok(None) => match self.state() {
                // Its hold turned out to be gone.
                GuardState::Lost(reason) => self.inner.hold.lost_error(ACTION, reason),
                _ => Error::new(ErrorKind::Contended, ACTION)
                    .named(recipe.name().as_arc())
                    .detail("others read"),
            },
            Err(error) => error,
        };
        Err(ConvertError { guard: self, error })
    }
}

impl<K: Kind> fmt::Debug for ConvertError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvertError")
            .field("error", &self.error)
            .field("guard", &self.guard)
            .finish()
    }
}

impl<K: Kind> fmt::Display for ConvertError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<K: Kind> std::error::Error for ConvertError<K> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
