//! The read-write lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use super::options::LockOptions;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::wire::{ReadWire, WriteWire};

/// The kind of [`ReadLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Read;

/// The kind of [`WriteLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Write;

impl Sealed for Read {}
impl Sealed for Write {}

/// A [`ReadWriteLock`] for reading: others may read too.
///
/// `holders` are all readers. It counts as locked while anybody reads, the writer included if it
/// reads besides. `force_unlock` takes it from all readers, and from no writer.
///
/// A read guard is looked after every 1.5 s whatever its lease, in batches of a hundred, since the
/// renewal of a Java reader may cut the life of the lock that they share.
pub type ReadLock = Lock<Read>;

/// A [`ReadWriteLock`] for writing: nobody else has it.
///
/// `force_unlock` takes it from the writer, and from no reader.
pub type WriteLock = Lock<Write>;

/// The guard of a [`ReadLock`].
pub type ReadGuard = LockGuard<Read>;

/// The guard of a [`WriteLock`].
pub type WriteGuard = LockGuard<Write>;

/// A lock that many may have for reading or one for writing, shared with Redisson's
/// `RReadWriteLock` of the same name.
///
/// Use it where reading is much longer than a round trip to Redis and far more frequent than
/// writing. It costs as much as an [`RLock`](super::RLock): for short sections that is simpler and
/// no slower. What is merely read often belongs into a cache.
///
/// # Re-entry
///
/// Inside a body that runs under a guard (`with_read`, `with_write`, [`LockGuard::run`]), or with a
/// common [`Owner`](crate::Owner):
///
/// | under | `read()` | `write()` |
/// |---|---|---|
/// | a read guard | re-enters | fails at once: [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) |
/// | a write guard | joins it: reads and writes | re-enters |
///
/// A guard alone, outside of such a body, is not known to the caller's next call: who holds one and
/// waits for the other mode waits for itself, as with a lock of the standard library. A guard is
/// converted by [`WriteGuard::downgrade`](LockGuard::downgrade) and
/// [`ReadGuard::try_upgrade`](LockGuard::try_upgrade).
///
/// # Round trips
///
/// One for each of acquiring, releasing, re-entering and joining; two for a conversion.
///
/// # Fairness
///
/// First come, first served among the readers of one client and among its writers, the preferred
/// ones apart; readers are let in together. Readers go past writers that wait, so that a stream of them may keep a writer out;
/// see [`prefer_writers`](Self::prefer_writers).
///
/// # Cancel safety
///
/// As [`Lock::lock`], for all methods.
///
/// # Errors
///
/// As [`Lock::lock`]. [`WrongType`](crate::ErrorKind::WrongType) where the key is no lock; a lock of
/// another kind of that name is like one that somebody else holds.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// let client = redlock_rt::Client::embedded();
/// let prices = client.read_write_lock("prices");
///
/// let (one, other) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// one.unlock().await?;
/// other.unlock().await?;
///
/// let writing = prices.write().await?;
/// // From here on others may read, and nobody has written between.
/// let reading = writing.downgrade().await.map_err(|refused| refused.into_error())?;
/// assert!(prices.try_read().await?.is_some());
/// reading.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReadWriteLock {
    engine: Handle,
    /// As the caller gave it.
    name: Arc<str>,
    read: ReadLock,
    write: WriteLock,
}

/// How long the wish of a writer outlives the last time that it asked, besides the time in which it
/// asks again: as much as a try may take.
const PREFERENCE_MARGIN: Duration = Duration::from_secs(3);

impl ReadWriteLock {
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        Self::with_preference(engine, name.into(), Duration::ZERO)
    }

    fn with_preference(engine: &Arc<Engine>, name: Arc<str>, preference: Duration) -> Self {
        let write = |name| WriteWire::new(name, preference);
        Self {
            engine: Handle::new(engine),
            read: Lock::new(engine, &name, ReadWire::new),
            write: Lock::new(engine, &name, write),
            name,
        }
    }

    /// Sets whether writers that wait through this handle keep fresh readers out. Defaults to
    /// `false`, as Redisson does.
    ///
    /// A writer that was refused then says so in Redis, and every reader of this library, through
    /// whichever handle and in whichever process, waits until it had its turn or gave up. Who holds
    /// the lock already goes on: re-entry and joining are never refused. The writer thus waits for
    /// those who read when it came, and not for those who come after.
    ///
    /// The wish ends with the writer: when it has the lock, when it gives up, and if its process
    /// dies, after twice the [poll interval](crate::ClientBuilder::poll_interval) and 3 s (5 s by
    /// default). Java readers do not look at it. A stream of writers may now keep readers out; and
    /// a reader that waits for another task which is yet to read waits for itself, if a writer
    /// comes between.
    #[must_use]
    pub fn prefer_writers(self, prefer: bool) -> Self {
        let preference = match prefer {
            true => self.engine.longest_poll() + PREFERENCE_MARGIN,
            false => Duration::ZERO,
        };
        Self::with_preference(&self.engine, self.name, preference)
    }

    /// Acquires the lock for reading, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`].
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.read.lock().await
    }

    /// Acquires the lock for reading if nobody else writes at this moment.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`].
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        self.read.try_lock().await
    }

    /// Acquires the lock for reading as the options say.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock_with`].
    pub async fn read_with(&self, options: LockOptions) -> Result<ReadGuard, Error> {
        self.read.lock_with(options).await
    }

    /// Acquires the lock for writing, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], and at once
    /// [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) inside a body that runs
    /// under a read guard of this lock.
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.write.lock().await
    }

    /// Acquires the lock for writing if nobody else has it at this moment.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock)
    /// as [`write`](Self::write).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        self.write.try_lock().await
    }

    /// Acquires the lock for writing as the options say.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock_with`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock)
    /// as [`write`](Self::write).
    pub async fn write_with(&self, options: LockOptions) -> Result<WriteGuard, Error> {
        self.write.lock_with(options).await
    }

    /// Runs `body` under the lock for reading; see [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As [`Lock::with`].
    pub async fn with_read<T>(&self, body: impl AsyncFnOnce(&ReadGuard) -> T) -> Result<T, Error> {
        self.read.with(body).await
    }

    /// Runs `body` under the lock for writing; see [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As [`Lock::with`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) as
    /// [`write`](Self::write).
    pub async fn with_write<T>(
        &self,
        body: impl AsyncFnOnce(&WriteGuard) -> T,
    ) -> Result<T, Error> {
        self.write.with(body).await
    }

    /// Returns the lock for reading, with what all locks can: who holds it, forcing it.
    #[must_use]
    pub fn read_lock(&self) -> ReadLock {
        self.read.clone()
    }

    /// Returns the lock for writing, with what all locks can: who holds it, forcing it.
    #[must_use]
    pub fn write_lock(&self) -> WriteLock {
        self.write.clone()
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
