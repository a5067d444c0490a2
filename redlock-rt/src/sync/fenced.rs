//! The lock that gives out fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::kind::sealed::{Adoptable, Sealed};
use super::lock::Lock;
use crate::engine::ClientEngine;
use crate::error::Error;
use crate::wire::{FencedWire, LockRecipe, Named, ask_token, present_token};

/// The kind of [`FencedLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fenced;

/// A re-entrant lock that gives every hold a *fencing token*, shared with Redisson's
/// `RFencedLock` of the same name.
///
/// Use it where two holders at the same time would do harm. A lock with a lease cannot exclude that. A paused holder (a
/// stopped process, a stalled host) cannot check its guard, and its unfinished write arrives after its lease has ended
/// and after another holder's writes. The token of a later hold is always greater, so the *resource* can decide: it
/// remembers the greatest token that it has seen, and refuses writes with a smaller one.
///
/// | the resource | compare with |
/// |---|---|
/// | in this process, or behind your own server | [`FenceGate`](crate::FenceGate) |
/// | a value in Redis | [`FencedValue`](crate::FencedValue) |
/// | a row of a database | a column and a condition, below |
/// | a resource that cannot compare | nothing: the token does not help, so use [`RLock`](crate::RLock) |
///
/// ```sql
/// -- The column is BIGINT NOT NULL DEFAULT 0.
/// UPDATE accounts SET balance = :balance, fence = :token
///  WHERE id = :id AND fence <= :token;
/// -- No row was updated: the token is stale (or there is no such row). Roll back.
/// ```
///
/// Every write under the lock needs such a condition, or must be in one transaction with it. Read the data for the
/// write *after* the acquisition. Use only the guard's token: a token from [`token`](Lock::token) may belong to another
/// hold.
///
/// # Tokens
///
/// An acquisition sets the counter to the last token plus one, or to the time of Redis in microseconds if that is
/// greater. Its token is that number. If other tasks of its client want the lock too, they get the numbers between the
/// last token and that one, 1000 at most, as their tokens, least first
/// ([`hand_over`](crate::ClientBuilder::hand_over)). So tokens also increase after a loss of the last token: the
/// counter was flushed, deleted or evicted, its Redis restarted empty, or a failover went to a replica without it. Two
/// conditions apply:
///
/// * The clock of the remaining Redis is 1 ms past the last token.
/// * The first client that takes the lock after the loss is not a Redisson client, which would begin at 1.
///
/// Tokens are below 2⁵³ until the year 2255, and fit SQL's BIGINT and a double. Re-entry keeps the
/// token of the hold. (Redisson increments it; its next token is ours plus one.)
///
/// Take a lock of one name only as a fenced lock: a plain [`RLock`](crate::RLock) of that name
/// excludes other holders too, but has no token.
///
/// # Round trips, fairness, cancel safety, errors
///
/// Those of an [`RLock`](crate::RLock): the same script takes the lock and creates the token. Tasks of one client [hand
/// the lock over](crate::ClientBuilder::hand_over) to each other for a limited time, without a round trip, each with
/// its own token. A cancelled or failed acquisition may use up a token that no caller gets.
/// [`WrongType`](crate::ErrorKind::WrongType) or [`Protocol`](crate::ErrorKind::Protocol) also if the key
/// `redisson_lock_token:{NAME}` is not a counter.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, FenceGate};
///
/// let client = Client::embedded();
/// let lock = client.fenced_lock("report:7");
/// let gate = FenceGate::new(); // beside the resource
///
/// let first = lock.lock().await?;
/// let late = first.token();
/// // Paused for longer than its lease: here, the lock is taken from it.
/// lock.force_unlock().await?;
///
/// let second = lock.lock().await?;
/// assert!(second.token() > late);
/// assert!(gate.check(second.token()).is_ok());
/// assert!(gate.check(late).is_err(), "the late write is refused");
/// second.unlock().await?;
/// # drop(first);
/// # Ok(())
/// # }
/// ```
pub type FencedLock = Lock<Fenced>;

/// The guard of a [`FencedLock`].
pub type FencedLockGuard = LockGuard<Fenced>;

impl Sealed for Fenced {}

impl Adoptable for Fenced {}

impl FencedLock {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::new(engine, Named::Fenced, name, |name| {
            FencedWire::new(name, None)
        })
    }

    /// The lock of an election.
    pub(super) fn leading(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self::new(engine, Named::Fenced, name, FencedWire::leading)
    }

    /// Sets how long Redis keeps the last token after an acquisition. Defaults to `None`: for ever,
    /// as in Redisson, which is one small key for each name ever locked.
    ///
    /// After this time only the clock of Redis makes the next token greater. So choose a time longer than any amount by
    /// which that clock may be set back, for example a day. Do not set it if Redisson clients take the lock: they only
    /// count, and would begin at 1. It may not be shorter than the lease of the acquisition
    /// ([`BadInput`](crate::ErrorKind::BadInput)). Each acquisition sets the time again. An acquisition by a handle
    /// without it makes the last token permanent.
    #[must_use]
    pub fn token_ttl(self, ttl: impl Into<Option<Duration>>) -> Self {
        let ttl = ttl.into();
        self.rewired(|name| FencedWire::new(name, ttl))
    }

    /// Takes the lock by force from any holder, as [`RLock::steal`](crate::RLock::steal) does, with a token that is
    /// greater than the holder's. From then on the holder's writes are refused.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// Those of [`RLock::steal`](crate::RLock::steal).
    ///
    /// # Errors
    ///
    /// Those of [`RLock::steal`](crate::RLock::steal). Without a new token, nothing is taken.
    pub async fn steal(&self, why: &str) -> Result<FencedLockGuard, Error> {
        self.steal_for(why).await
    }

    /// Returns the last token that was given to any hold; `None` if there was none, or if it has
    /// expired.
    ///
    /// Where tasks of one client [hand the lock over](crate::ClientBuilder::hand_over), it may be a token
    /// that no guard got. This is for inspection only: for writes, use the [`token`](LockGuard::token) of the guard.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn token(&self) -> Result<Option<u64>, Error> {
        const ACTION: &str = "read fencing token of lock";
        let call = |wire: &dyn LockRecipe| ask_token(wire.name());
        self.ask(ACTION, call, present_token).await
    }
}

impl FencedLockGuard {
    /// Returns the fencing token of the hold: greater than that of every hold before it, and the
    /// same for all guards that share the hold.
    ///
    /// Send it with every write under the lock; see [`FencedLock`].
    #[must_use]
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// Returns the [`token`](Self::token) as the `BIGINT` of SQL databases. It fits: the counter of Redis has 64 bits
    /// with a sign.
    #[must_use]
    pub fn token_i64(&self) -> i64 {
        self.token().cast_signed()
    }
}
