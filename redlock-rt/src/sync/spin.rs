//! The lock whose waiters poll.

use std::sync::Arc;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::{Backoff, ClientEngine};
use crate::wire::{Named, RLockWire};

/// The kind of [`SpinLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Spin;

/// A re-entrant lock whose waiters poll, shared with Redisson's `RSpinLock` of the same name.
///
/// There is no SUBSCRIBE and no PUBLISH: no second connection, no message to every waiting process
/// at each release, no SUBSCRIBE right for an ACL user. Use it for holds of milliseconds that are
/// rarely contended, for very many names, or where Redis offers no pub/sub (some proxies).
///
/// Do **not** use it for long waits or many waiters: with the default back-off each waiting process
/// asks Redis four to eight times a second, and takes a free lock up to one pause (256 ms) late. An
/// [`RLock`](crate::RLock) is both faster and cheaper there.
///
/// Do not use a spin lock and an `RLock` of the same name. They exclude each other, but a spin
/// unlock wakes no waiter. Waiters of an `RLock` notice only at their next poll, after one to two
/// seconds, and waiters of Redisson's only at the end of the lease that they last read.
///
/// # Round trips
///
/// One to acquire a free lock, one to release it. A waiting process sends one try after each pause
/// of its [`Backoff`], however many of its tasks wait.
///
/// # Fairness
///
/// First come, first served among the tasks of one client, which hand the lock over without a
/// pause. None among clients: the first try after a release gets the lock, and a client whose tasks
/// always want the lock can keep other clients away. With the default back-off, the latest waiter
/// tries most often.
///
/// # Cancel safety
///
/// Nothing is left: if a try is in progress, the client waits for its outcome and frees the lock.
///
/// # Errors
///
/// Those of [`lock`](Lock::lock). With [`Backoff::max_retries`], `lock` also returns
/// [`TimedOut`](crate::ErrorKind::TimedOut) after the last retry. Tries that Redis does not answer
/// do not count: `lock` waits through outages. An invalid back-off is
/// [`BadInput`](crate::ErrorKind::BadInput).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::Duration;
/// use redlock_rt::{Backoff, Client};
///
/// let client = Client::embedded();
/// let every_5_ms = Backoff::constant(Duration::from_millis(5));
/// let lock = client.spin_lock("slot:7").backoff(every_5_ms.max_retries(3));
///
/// let guard = lock.lock().await?;
/// let refused = lock.lock().await.unwrap_err();
/// assert!(refused.is_timed_out());
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type SpinLock = Lock<Spin>;

/// The guard of a [`SpinLock`].
pub type SpinLockGuard = LockGuard<Spin>;

impl Sealed for Spin {}

impl SpinLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::new(engine, Named::Spin, name, RLockWire::spinning).spinning(Backoff::default())
    }

    /// Sets the pauses between tries and the number of tries. Defaults to [`Backoff::default`].
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.spinning(backoff)
    }
}
