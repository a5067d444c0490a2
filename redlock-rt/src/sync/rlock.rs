//! The re-entrant lock.

use std::sync::Arc;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::ClientEngine;
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

impl RLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::new(engine, Named::RLock, name, RLockWire::new)
    }
}
