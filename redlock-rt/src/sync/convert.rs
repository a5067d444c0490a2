//! Conversion between reading and writing without releasing the lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guard::{GoesOn, LockGuard};
use super::kind::Kind;
use super::read_write::{Read, ReadGuard, Write, WriteGuard};
use crate::clock;
use crate::engine::{GuardState, HoldGuard, LostReason, Unlocked};
use crate::error::{Error, ErrorKind};
use crate::limit::SharedLimit;
use crate::wire::{ReadWire, Recipe, WriteWire};

/// A guard that could not be converted, with the reason. The guard is unchanged.
#[clippy::has_significant_drop]
pub struct ConvertError<K: Kind> {
    pub(super) guard: LockGuard<K>,
    pub(super) error: Error,
}

/// Why a [`ReadGuard`] could not be upgraded, with that guard.
pub type UpgradeError = ConvertError<Read>;

/// Why a [`WriteGuard`] could not be downgraded, with that guard.
pub type DowngradeError = ConvertError<Write>;

impl<K: Kind> ConvertError<K> {
    /// Returns the reason.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the guard.
    pub fn into_guard(self) -> LockGuard<K> {
        self.guard
    }

    /// Drops the guard, which releases the lock, and keeps the reason.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl<K: Kind> LockGuard<K> {
    /// Takes the other mode under this guard, and waits for replicas if the client asks for them. Also
    /// returns the deadline for the end of this mode: `until`, or later after the replicas.
    async fn joined(
        &self,
        action: &'static str,
        recipe: &Arc<dyn Recipe>,
        until: Instant,
    ) -> (Result<Option<HoldGuard>, Error>, Instant) {
        let engine = &self.inner.hold.engine;
        let joined = match self.inner.also(action, recipe).await {
            Ok(Some(guard)) => guard,
            refused => return (refused, until),
        };
        let asked = clock::now();
        let joined = engine.acknowledged_by_default(action, joined).await;
        (joined.map(Some), clock::after(until, clock::now() - asked))
    }
}

impl WriteGuard {
    /// Converts a write guard into a read guard. After that others may read, and no other owner has written
    /// in between.
    ///
    /// The read guard continues with the lease, the renewal and the remaining `max_hold` of this
    /// guard. If other guards share the hold (re-entry), it stays a write hold until they have
    /// ended too, in addition to the read hold.
    ///
    /// # Round trips
    ///
    /// Two: one joins the read mode, the other releases the write mode. One more for the client's
    /// [`replica_ack`](crate::ClientBuilder::replica_ack).
    ///
    /// # Cancel safety
    ///
    /// Both guards are released in the background.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) if the lock is gone, `ShutDown`, [`Unavailable`](ErrorKind::Unavailable)
    /// if Redis does not answer in time before the read mode is joined; the error contains the write guard.
    /// After that, the release of the write mode may continue in the background.
    /// [`NotReplicated`](ErrorKind::NotReplicated) if too few replicas have the read mode in time.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        const ACTION: &str = "downgrade write lock";
        static WRITING: SharedLimit = SharedLimit::new();
        let name = self.inner.hold.recipe.name().clone();
        let recipe: Arc<dyn Recipe> = Arc::new(ReadWire::new(name));
        // The deadline of both calls together.
        let until = self.inner.hold.engine.patience(clock::now());
        let (also, until) = self.joined(ACTION, &recipe, until).await;
        let error = match also {
            Ok(Some(reading)) => {
                let outcome = self.inner.unlock_until(Some(until)).await;
                if !matches!(outcome, Ok(Unlocked::Released | Unlocked::StillHeld)) {
                    if let Some(left_out) = WRITING.pass() {
                        let lock = reading.hold.recipe.name().as_str();
                        tracing::warn!(
                            lock,
                            outcome = outcome
                                .map_or_else(|error| error.to_string(), |how| format!("{how:?}")),
                            left_out,
                            "the end of writing is not confirmed"
                        );
                    }
                    reading.doubt();
                }
                return Ok(LockGuard::new(reading));
            }
            // The writer itself is refused only if it is no longer the writer.
            Ok(None) => self.inner.hold.lost_error(ACTION, LostReason::Deleted),
            Err(error) => error,
        };
        Err(ConvertError { guard: self, error })
    }
}

impl ReadGuard {
    /// Converts a read guard into a write guard, if there is no other reader at this moment. The call never
    /// waits for other readers: two readers that wait for each other would wait for ever.
    ///
    /// The write guard continues with the lease, the renewal and the remaining `max_hold` of this
    /// guard. If other guards share the hold (re-entry), they stay read guards.
    ///
    /// # Round trips
    ///
    /// Two: one acquires the write mode, the other releases the read mode. One if there are other
    /// readers. One more for the client's [`replica_ack`](crate::ClientBuilder::replica_ack).
    ///
    /// # Cancel safety
    ///
    /// Both guards are released in the background.
    ///
    /// # Errors
    ///
    /// The error contains the read guard. [`Contended`](ErrorKind::Contended) if there are other
    /// readers, [`Lost`](ErrorKind::Lost), [`ShutDown`](ErrorKind::ShutDown),
    /// [`Unavailable`](ErrorKind::Unavailable) if Redis does not answer in time, and
    /// [`NotReplicated`](ErrorKind::NotReplicated) if too few replicas have the write mode in time.
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
        static READING: GoesOn = GoesOn::new("the end of reading goes on in the background");
        let name = self.inner.hold.recipe.name().clone();
        // The call does not wait, so it needs no preference.
        let recipe: Arc<dyn Recipe> = Arc::new(WriteWire::new(name, Duration::ZERO));
        // The deadline of both calls together.
        let until = self.inner.hold.engine.patience(clock::now());
        let (also, until) = self.joined(ACTION, &recipe, until).await;
        let error = match also {
            Ok(Some(writing)) => {
                READING.note(self.inner.unlock_until(Some(until)).await);
                return Ok(LockGuard::new(writing));
            }
            Ok(None) => match self.state() {
                // The hold no longer exists.
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
