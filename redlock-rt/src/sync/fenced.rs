//! The lock that gives out fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::lock::Lock;
use crate::engine::Engine;
use crate::error::Error;
use crate::wire::{FencedWire, ask_token, present_token};

/// The kind of [`FencedLock`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fenced;

/// A re-entrant lock that gives every hold a *fencing token*, shared with Redisson's
/// `RFencedLock` of the same name.
///
/// Use it where two holders at once would do harm. A lock with a lease cannot rule that out: a
/// holder that is paused (a stopped process, a stalled host) cannot look at its guard, and a write
/// that it had under way arrives after its lease, and after somebody else's writes. The token of a
/// later hold is always greater, so the *resource* can tell: it remembers the greatest token that
/// it was shown, and refuses writes that carry a smaller one.
///
/// | the resource is | let it compare with |
/// |---|---|
/// | in this process, or behind a server of yours | [`FenceGate`](crate::FenceGate) |
/// | a value in Redis | [`FencedValue`](crate::FencedValue) |
/// | a row of a database | a column and a condition, below |
/// | anything that cannot compare | nothing: the token is of no use, and [`RLock`](crate::RLock) does as well |
///
/// ```sql
/// -- The column is BIGINT NOT NULL DEFAULT 0.
/// UPDATE accounts SET balance = :balance, fence = :token
///  WHERE id = :id AND fence <= :token;
/// -- No row was updated: the token is stale (or there is no such row). Roll back.
/// ```
///
/// All that a hold writes goes through such a condition, or stands in one transaction with it. Read
/// what the write is computed from *after* acquiring, and keep the token with the hold that it
/// came from: one that is read anew by [`token`](Lock::token) is not the caller's.
///
/// # Tokens
///
/// A new hold's token is the last one given plus one, or the time of Redis in microseconds if that
/// is more. So tokens grow also where the last one was forgotten: the counter flushed, deleted or
/// evicted, its Redis restarted empty, or failed over to a replica that had not heard of it; as long
/// as the clock of the Redis that goes on is not behind the last token, and the first to take the lock
/// after the loss is not a Redisson client: that one begins at 1. They are below 2⁵³ until the
/// year 2255, and fit SQL's BIGINT and a double. Re-entry keeps the hold's token (Redisson counts on;
/// its next token is one more than ours).
///
/// A lock of one name should be taken by fenced locks only: what takes it as a plain
/// [`RLock`](crate::RLock) is excluded like any other, and has no token.
///
/// # Round trips, fairness, cancel safety, errors
///
/// Those of an [`RLock`](crate::RLock): the token comes with the lock, and is minted by the same
/// script. A cancelled or failed acquisition may use up a token, which nobody was given.
/// [`WrongType`](crate::ErrorKind::WrongType) or [`Protocol`](crate::ErrorKind::Protocol) also
/// where the counter `redisson_lock_token:{NAME}` is no counter.
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

impl FencedLock {
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        Self::new(engine, name, |name| FencedWire::new(name, None))
    }

    /// Sets for how long after an acquisition Redis remembers the last token. Defaults to `None`:
    /// for good, as with Redisson, which is one small key for each name ever locked.
    ///
    /// Forgotten, it is the clock of Redis alone that makes the next token greater. So let it be
    /// longer than that clock may ever be set back, say a day, and leave it alone where Redisson
    /// clients take the lock: they count, and would begin at 1. It may not be shorter than the lease
    /// of a lock that is acquired ([`BadInput`](crate::ErrorKind::BadInput)). Each acquisition sets
    /// it anew; one by a handle without it makes the last token permanent.
    #[must_use]
    pub fn token_ttl(self, ttl: impl Into<Option<Duration>>) -> Self {
        let ttl = ttl.into();
        self.rewired(|name| FencedWire::new(name, ttl))
    }

    /// Returns the last token that was given to anybody; `None` where none was, or where it was
    /// forgotten.
    ///
    /// For looking only: what the caller may write with is its guard's
    /// [`token`](LockGuard::token).
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn token(&self) -> Result<Option<u64>, Error> {
        const ACTION: &str = "read fencing token of lock";
        let reply = self.ask(ACTION, |wire| ask_token(wire.name())).await?;
        present_token(reply).map_err(|malformed| self.malformed(ACTION, malformed))
    }
}

impl FencedLockGuard {
    /// Returns the fencing token of the hold: greater than that of every hold before it, and the
    /// same for all guards that share the hold.
    ///
    /// Send it along with every write that is made under the lock; see [`FencedLock`].
    #[must_use]
    pub fn token(&self) -> u64 {
        let Some(token) = self.hold().token else {
            unreachable!("a fenced lock that was acquired without a token")
        };
        token
    }
}
