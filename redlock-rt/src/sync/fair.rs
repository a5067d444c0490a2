//! The fair lock.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::{Engine, Owner};
use crate::error::Error;
use crate::name::HoldId;
use crate::wire::{FairTerms, FairWire, LockRecipe, Malformed, Reply, fair_position};

/// The kind of [`FairLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fair;

/// A re-entrant lock that is given to those who wait in the order in which they came, shared with
/// Redisson's `RFairLock` of the same name.
///
/// Use it where a waiter must not be passed over for long: an [`RLock`](crate::RLock) is given to
/// any waiter. Use an RLock where that does not matter: a fair lock costs a call for each waiter
/// and a heartbeat for each process that waits, and every hand-over waits for one particular task,
/// in whatever process, to wake up.
///
/// # Fairness
///
/// First come, first served over all waiters of all processes, Java ones included; who comes first
/// is decided by Redis. [`try_lock`](Self::try_lock) and a wait of zero do not queue, and are
/// refused while anybody is queued.
///
/// A waiter that gives up, is dropped or shut down leaves the queue at once. A process that is
/// killed delays those behind its waiters by
/// [`waiter_timeout`](crate::ClientBuilder::waiter_timeout) (5 s) at most, as long as one client of
/// this crate waits for, takes or releases the lock. Where only Redisson clients are left, they sit out
/// its deadline: the rest of a bounded wait, and otherwise about five minutes (more where a Redisson
/// thread was queued before it, by that thread's wait). A Redisson thread that dies while it waits
/// delays the others until Redisson's own deadline, at most 5 s longer than in a queue of Redisson
/// threads with the same waits; a waiter of this crate counts in that with its own wait, and five
/// minutes at most. A live waiter keeps its place whatever the waits of Redisson threads and their
/// `fairLockWaitTimeout`, with one exception. How long a Redisson thread waits that was next before any
/// waiter of this crate came is not known: nothing in Redis says so. Behind one that waits for more than
/// five minutes, and has used more than half of that by then, a live waiter can lose its place, and
/// queues again, at the end. A process that is paused for longer than the waiter time-out loses its
/// place, and its waiters queue again.
///
/// A waiter that Redis still has and its process has not (a command of a dead connection ran after its
/// leave, which CLIENT KILL prevents where an ACL allows that) is found by the heartbeats of its process,
/// the first of which comes with its first waiter of the name.
///
/// Fair locks of the names `a` and `{a}` have one queue, as in Redisson: see
/// [names](Lock#names).
///
/// # Round trips
///
/// As the other locks, and for each waiter one call to queue; only the first in the queue tries
/// again, when the lock may be free. A process that waits sends one heartbeat for up to 100 names in each
/// third of the waiter time-out (every 30 s at least), and every one to two
/// [poll intervals](crate::ClientBuilder::poll_interval) for names in whose queues its waiters are first;
/// with the defaults that is at most one call a second. It has one subscription whatever the number of
/// names (where an ACL forbids that, it hears from its heartbeats whose turn it is). Where Redisson threads have a lock or are
/// queued, it has one more for each of its four oldest waiters of that name.
///
/// # Cancel safety
///
/// A dropped waiter leaves the queue in the background, and wakes the next if it was its turn.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, LockOptions, Owner};
///
/// let client = Client::embedded();
/// let lock = client.fair_lock("printer");
///
/// let guard = lock.lock().await?;
/// let me = Owner::new();
/// let waiter = tokio::spawn({
///     let (lock, options) = (lock.clone(), LockOptions::new().owner(&me));
///     async move { lock.lock_with(options).await }
/// });
/// while lock.position(&me).await?.is_none() {
///     tokio::task::yield_now().await;
/// }
/// assert_eq!(lock.position(&me).await?, Some(0));
/// assert_eq!(lock.queue_len().await?, 1);
///
/// guard.unlock().await?;
/// waiter.await.unwrap()?.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type FairLock = Lock<Fair>;

/// The guard of a [`FairLock`].
pub type FairLockGuard = LockGuard<Fair>;

impl Sealed for Fair {}

/// How long a waiter counts at most for the deadlines by which Redisson judges those behind it: its
/// `fairLockWaitTimeout`.
const LONGEST: Duration = Duration::from_secs(300);

impl FairLock {
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        let terms = FairTerms {
            alive: engine.waiter_timeout(),
            longest: LONGEST,
        };
        Self::new(engine, name, |name| FairWire::new(name, terms))
    }

    /// Returns how many wait for it, in all processes.
    ///
    /// Dead waiters are counted until it would be their turn.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn queue_len(&self) -> Result<u64, Error> {
        Ok(self.look(None).await?.0)
    }

    /// Returns how many wait before this owner; `None` where it does not wait.
    ///
    /// # Round trips
    ///
    /// One; none where the owner waits for nothing. The server goes through the queue.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn position(&self, owner: &Owner) -> Result<Option<u64>, Error> {
        match self.waiting_as(owner)? {
            Some(owner) => Ok(self.look(Some(&owner)).await?.1),
            None => Ok(None),
        }
    }

    /// Returns the identity under which this owner waits at present, as it stands in the queue.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) where the name cannot be one.
    pub fn waiting_as(&self, owner: &Owner) -> Result<Option<HoldId>, Error> {
        Ok(owner.asks_as(&self.engine().id, &**self.wire()?))
    }

    async fn look(&self, owner: Option<&HoldId>) -> Result<(u64, Option<u64>), Error> {
        const ACTION: &str = "look at the queue of lock";
        let call = |wire: &dyn LockRecipe| fair_position(wire.name(), owner);
        let reply = self.ask(ACTION, call).await?;
        if let Reply::List(items) = &reply
            && let [Reply::Int(len @ 0..), Reply::Int(place)] = items.as_slice()
        {
            return Ok((len.unsigned_abs(), u64::try_from(*place).ok()));
        }
        Err(self.malformed(ACTION, Malformed(reply)))
    }
}
