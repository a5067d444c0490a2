//! The fair lock.

use std::sync::Arc;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::{ClientEngine, Owner};
use crate::error::Error;
use crate::name::HoldId;
use crate::wire::{FairQueue, LockRecipe, Named, Reply, fair_position};

/// The kind of [`FairLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fair;

/// A re-entrant lock that serves waiters in the order of their arrival, shared with Redisson's
/// `RFairLock` of the same name.
///
/// Use it if no waiter may be passed over for long: an [`RLock`](crate::RLock) may go to any waiter. Otherwise use an
/// `RLock`: a fair lock costs one call per waiter and a heartbeat per waiting process, and each hand-over waits until
/// one particular task wakes up.
///
/// # Fairness
///
/// First come, first served across all waiters of all processes, including Java; Redis decides the
/// order. [`try_lock`](Self::try_lock) and a wait of zero do not queue, and are refused while the
/// queue is not empty.
///
/// * **A waiter that ends** (it gives up, is dropped or shut down) leaves the queue at once.
/// * **A killed process** delays the waiters behind its own by at most
///   [`waiter_timeout`](crate::ClientBuilder::waiter_timeout) (5 s), plus the time until a waiting client of this crate
///   sends its next heartbeat, or takes or releases the lock. If only Redisson clients are left, they wait until the
///   deadline of the dead waiter: the rest of a limited wait, otherwise about five minutes (plus the wait of each
///   Redisson thread that was queued before it).
/// * **A Redisson thread that dies while it waits** delays the others until Redisson's own
///   deadline, at most 5 s longer than in a queue of Redisson threads with the same waits. In this
///   comparison, a waiter of this crate counts with its own wait, at most five minutes.
/// * **A live waiter keeps its place**, whatever the waits of Redisson threads and their `fairLockWaitTimeout`, with
///   two exceptions. First: if a Redisson thread was next before any waiter of this crate came, Redis does not store
///   how long that thread waits. If it waits for more than five minutes, and has used more than half of that by then, a
///   live waiter behind it can lose its place and queues again, at the end. Second: an asynchronous or reactive
///   `tryLock` of Redisson that gives up has the same effect. It subtracts `fairLockWaitTimeout` from the deadlines
///   behind it, however long it has waited.
/// * **A waiter that is not polled** for the waiter time-out when it is next leaves the queue, if its process runs. It
///   also returns a lock that a release gave to it. When it is polled, it queues again, at the end. Until it has left,
///   its process delays all others.
/// * **A paused process** loses its places after a pause longer than the waiter time-out, and its waiters queue again.
///   The same happens to a waiter to which a release of its process gave the lock, after a pause longer than its lease.
///
/// * **A left-over waiter**, which is still in Redis but no longer in its process, is found by the
///   heartbeats of its process. (A command of a broken connection ran after the waiter had left;
///   CLIENT KILL prevents that if an ACL allows it.) The first heartbeat comes with the first
///   waiter of the name.
///
/// Fair locks of the names `a` and `{a}` have one queue, as in Redisson: see
/// [names](Lock#names).
///
/// # Round trips
///
/// As for other locks, and one call for each waiter to queue. The release gives the lock to the next
/// waiter in the same call, if that waiter is a task of the same client (see
/// [`hand_over`](crate::ClientBuilder::hand_over)); otherwise the first waiter in the queue tries
/// again when the lock may be free.
///
/// * A waiting process sends one heartbeat for up to 100 names in each third of the waiter time-out
///   (at least every 30 s). For names in whose queues its waiters are first, it sends one every one
///   to two [poll intervals](crate::ClientBuilder::poll_interval). With the defaults that is at
///   most one call a second.
/// * A waiting process has one subscription, whatever the number of names. If an ACL forbids the
///   subscription, the heartbeats report whose turn it is.
/// * If Redisson threads hold a lock or are queued, the process has one more subscription for each
///   of its four oldest waiters of that name.
///
/// # Cancel safety
///
/// A dropped waiter leaves the queue in the background, and wakes the next waiter if it was its
/// turn.
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

impl FairLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        let alive = engine.config.waiter_timeout;
        let wire = |name| FairQueue::new(name, alive);
        Self::new(engine, Named::Fair, name, wire)
    }

    /// Returns the number of waiters in all processes.
    ///
    /// A dead waiter counts until it would be next.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn queue_len(&self) -> Result<u64, Error> {
        Ok(self.look(None).await?.0)
    }

    /// Returns the number of waiters before this owner; `None` if the owner does not wait.
    ///
    /// # Round trips
    ///
    /// One; none if the owner waits for nothing. The server reads the queue.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn position(&self, owner: &Owner) -> Result<Option<u64>, Error> {
        match self.waiting_as(owner)? {
            Some(owner) => Ok(self.look(Some(&owner)).await?.1),
            None => Ok(None),
        }
    }

    /// Returns the identity with which this owner waits at present, as stored in the queue.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) if the name is invalid.
    pub fn waiting_as(&self, owner: &Owner) -> Result<Option<HoldId>, Error> {
        Ok(owner.asks_as(&self.engine.id, &**self.wire()?))
    }

    async fn look(&self, owner: Option<&HoldId>) -> Result<(u64, Option<u64>), Error> {
        const ACTION: &str = "look at the queue of lock";
        let call = |wire: &dyn LockRecipe| fair_position(wire.name(), owner);
        let read = |items: &[Reply]| match items {
            [Reply::Int(len @ 0..), Reply::Int(place)] => {
                Some((len.unsigned_abs(), u64::try_from(*place).ok()))
            }
            _ => None,
        };
        self.ask(ACTION, call, |reply| reply.read(read)).await
    }
}
