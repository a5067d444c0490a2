//! The read-write lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use super::options::LockOptions;
use crate::engine::{ClientEngine, Handle};
use crate::error::Error;
use crate::wire::{Named, ReadWire, WriteWire};

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

/// The read mode of a [`ReadWriteLock`]: others may read too.
///
/// `holders` returns all readers. The lock counts as locked while there are readers, including a
/// writer that also reads. `force_unlock` releases it for all readers, but not for a writer.
///
/// The watchdog checks each read guard every 1.5 s, whatever its lease, in batches of a hundred,
/// because the renewal of a Java reader may cut the TTL of the shared lock.
pub type ReadLock = Lock<Read>;

/// The write mode of a [`ReadWriteLock`]: there is no other holder.
///
/// `force_unlock` releases it for the writer, but not for readers.
pub type WriteLock = Lock<Write>;

/// The guard of a [`ReadLock`].
pub type ReadGuard = LockGuard<Read>;

/// The guard of a [`WriteLock`].
pub type WriteGuard = LockGuard<Write>;

/// A lock for many readers or one writer, shared with Redisson's `RReadWriteLock` of the same name.
///
/// Use it if reading takes much longer than a round trip to Redis, and is far more frequent than
/// writing. It costs as much as an [`RLock`](super::RLock), which is simpler and no slower for
/// short sections. Data that is only read often belongs in a cache.
///
/// # Re-entry
///
/// Inside a body that runs under a guard (`with_read`, `with_write`, [`LockGuard::run`]), or with a
/// common [`Owner`](crate::Owner):
///
/// | under | `read()` | `write()` |
/// |---|---|---|
/// | a read guard | re-enters | fails at once: [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) |
/// | a write guard | joins the write hold: reads and writes | re-enters |
///
/// Outside of such a body, the next call does not know the caller's guard: a caller that holds a
/// guard and waits for the other mode waits for itself, as with a lock of the standard library. To
/// convert a guard, use [`WriteGuard::downgrade`](LockGuard::downgrade) and
/// [`ReadGuard::try_upgrade`](LockGuard::try_upgrade).
///
/// # Round trips
///
/// One for each of acquiring, releasing, re-entering and joining; two for a conversion.
///
/// # Fairness
///
/// First come, first served among the readers of one client, among its writers, and among its
/// preferred writers. Waiting readers enter together. Readers bypass waiting writers, so a stream
/// of readers may keep a writer waiting; see [`prefer_writers`](Self::prefer_writers).
///
/// # Cancel safety
///
/// Nothing is left by any method: the caller leaves the queue, and the client frees what a try in progress
/// has acquired.
///
/// # Errors
///
/// Those of [`Lock::lock`]; [`WrongType`](crate::ErrorKind::WrongType) if the key is not a lock. A lock
/// of another kind with that name counts as held by another owner.
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
/// // From here on others may read, and no one has written in between.
/// let reading = writing.downgrade().await.map_err(|refused| refused.into_error())?;
/// assert!(prices.try_read().await?.is_some());
/// reading.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReadWriteLock {
    engine: Handle,
    /// The name as the caller gave it.
    name: Arc<str>,
    read: ReadLock,
    write: WriteLock,
}

/// How long a writer's preference stays after its last try, in addition to the interval of its tries: as long as
/// a try may take.
const PREFERENCE_MARGIN: Duration = Duration::from_secs(3);

impl ReadWriteLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::with_preference(engine, name.into(), Duration::ZERO)
    }

    fn with_preference(engine: &Arc<ClientEngine>, name: Arc<str>, preference: Duration) -> Self {
        let write = |name| WriteWire::new(name, preference);
        Self {
            engine: Handle::new(engine),
            read: Lock::new(engine, Named::ReadWrite, &name, ReadWire::new),
            write: Lock::new(engine, Named::ReadWrite, &name, write),
            name,
        }
    }

    /// Sets whether waiting writers of this handle keep new readers out. Defaults to `false`, as in
    /// Redisson.
    ///
    /// A refused writer then leaves its preference in Redis. Every new reader of this library, with any handle
    /// and in any process, waits until that writer had the lock or gave up. Current holders are not affected:
    /// re-entry and joining are never refused. So the writer waits for the readers at its arrival, but not for
    /// later readers.
    ///
    /// The preference ends when the writer gets the lock or gives up. If its process dies, it ends after twice
    /// the [poll interval](crate::ClientBuilder::poll_interval) and 3 s (5 s by default). Java readers ignore it.
    /// There are two risks. A stream of writers may keep readers out. If a reader waits for another task that
    /// must still read, and a writer comes in between, the reader waits for ever.
    #[must_use]
    pub fn prefer_writers(self, prefer: bool) -> Self {
        let preference = match prefer {
            true => self.engine.config.poll_interval * 2 + PREFERENCE_MARGIN,
            false => Duration::ZERO,
        };
        Self::with_preference(&self.engine, self.name, preference)
    }

    /// Acquires the lock for reading, and waits without a limit.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`].
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.read.lock().await
    }

    /// Acquires the lock for reading if there is no other writer at this moment.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`].
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        self.read.try_lock().await
    }

    /// Acquires the lock for reading as the options say.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock_with`].
    pub async fn read_with(&self, options: LockOptions) -> Result<ReadGuard, Error> {
        self.read.lock_with(options).await
    }

    /// Acquires the lock for writing, and waits without a limit.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`], and at once
    /// [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) inside a body that runs
    /// under a read guard of this lock.
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.write.lock().await
    }

    /// Acquires the lock for writing if there is no other holder at this moment.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock)
    /// inside a body that runs under a read guard of this lock.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        self.write.try_lock().await
    }

    /// Acquires the lock for writing as the options say.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock_with`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock)
    /// inside a body that runs under a read guard of this lock.
    pub async fn write_with(&self, options: LockOptions) -> Result<WriteGuard, Error> {
        self.write.lock_with(options).await
    }

    /// Runs `body` under the lock for reading; see [`Lock::with`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::with`].
    pub async fn with_read<T>(&self, body: impl AsyncFnOnce(&ReadGuard) -> T) -> Result<T, Error> {
        self.read.with(body).await
    }

    /// Runs `body` under the lock for writing; see [`Lock::with`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::with`], and [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock)
    /// inside a body that runs under a read guard of this lock.
    pub async fn with_write<T>(
        &self,
        body: impl AsyncFnOnce(&WriteGuard) -> T,
    ) -> Result<T, Error> {
        self.write.with(body).await
    }

    /// Returns the read lock, for the operations of all locks, such as `holder` and `force_unlock`.
    #[must_use]
    pub fn read_lock(&self) -> ReadLock {
        self.read.clone()
    }

    /// Returns the write lock, for the operations of all locks, such as `holder` and
    /// `force_unlock`.
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
