//! The lock whose waiters poll.

use std::sync::Arc;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::{Backoff, Engine};
use crate::wire::SpinWire;

/// The kind of [`SpinLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Spin;

/// A re-entrant lock whose waiters try again and again, shared with Redisson's `RSpinLock` of the
/// same name.
///
/// Nothing is ever subscribed to or published: no second connection, no message to every waiting
/// process at each release, no SUBSCRIBE right for an ACL user. Use it for holds of milliseconds
/// that are seldom contended, for very many names, or where Redis offers no pub/sub (some proxies).
///
/// Do **not** use it where waits are long or waiters many: each waiting process asks Redis four
/// to eight times a second with the default back-off, and takes a freed lock up to a pause later,
/// 256 ms. There an [`RLock`](crate::RLock) is both faster and cheaper. And do not mix the two on one name: they
/// exclude each other, but a spin unlock wakes nobody, so waiters of an `RLock` find it free only
/// when they look by themselves, after the poll interval of one to two seconds; those of Redisson
/// not before the end of the lease that they were told.
///
/// # Round trips
///
/// One to acquire a free lock, one to release it. A process that waits sends one try after each
/// pause of its [`Backoff`], however many of its tasks wait.
///
/// # Fairness
///
/// First come, first served among the tasks of one client, which hand the lock on without a pause.
/// Among clients none: who tries first after a release has it, and a client whose tasks want it all
/// the time can keep the others away. With the default back-off, who came last tries most often.
///
/// # Cancel safety
///
/// As [`RLock`](crate::RLock): nothing is left.
///
/// # Errors
///
/// Those of [`lock`](Lock::lock); with [`Backoff::max_retries`] also
/// [`TimedOut`](crate::ErrorKind::TimedOut) from `lock`, once they are used up. Redis not answering
/// uses up none: `lock` waits through outages. A back-off that cannot be one is
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
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        Self::new(engine, name, SpinWire::new).spinning(Backoff::default())
    }

    /// Sets the pauses between tries, and how many there are at most. Defaults to
    /// [`Backoff::default`].
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.spinning(backoff)
    }
}
