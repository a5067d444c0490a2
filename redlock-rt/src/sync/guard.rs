//! The guard of a held lock.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::kind::Kind;
use super::options::{LockOptions, check_lease};
use crate::engine::{GuardState, Hold, HoldGuard, LostReason, ReentryScope, Unlocked};
use crate::error::Error;
use crate::name::HoldId;

/// A lock that is held, and the truth about it.
///
/// The guard never reports the lock as held after its *local deadline*: the moment before the
/// acquiring or renewing command was sent, plus the lease, less a margin for clocks that run at
/// different speeds (1 % and 2 ms). That holds whether or not Redis can be reached. While it lives
/// the watchdog renews the lease, unless the options say otherwise.
///
/// [`unlock`](Self::unlock) is the normal road. Dropping the guard never blocks and never panics,
/// in or out of a runtime: the release is written to the connection at once, where there is one,
/// and its answer is awaited in the background. Where that fails, and no runtime runs the client's
/// tasks (theirs is shutting down), the rest waits for the next use of the client in another
/// runtime, or else the lock ends with its lease; a client with a
/// [dedicated thread](crate::ClientBuilder::dedicated_thread) needs no other runtime. A process that
/// ends waits for nothing: see [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the lock"]
#[clippy::has_significant_drop]
pub struct LockGuard<K: Kind> {
    pub(super) inner: HoldGuard,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> LockGuard<K> {
    pub(super) fn new(inner: HoldGuard) -> Self {
        Self {
            inner,
            kind: PhantomData,
        }
    }

    /// Held for as long as the options want at least.
    pub(super) fn lasting(inner: HoldGuard, options: &LockOptions) -> Self {
        options.set_min_hold(&inner.hold);
        Self::new(inner)
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.inner.hold
    }

    /// What a body under the lock runs in.
    pub(crate) fn scope(&self) -> ReentryScope {
        ReentryScope::of(&self.inner.hold)
    }

    /// Releases the lock, and waits until Redis has said what became of it.
    ///
    /// The lock is then free ([`Unlocked::Released`]), held by other guards of the same hold
    /// ([`Unlocked::StillHeld`]), or locked for the rest of its
    /// [`min_hold`](LockOptions::min_hold) ([`Unlocked::Kept`]).
    ///
    /// A lost reply is no error: the release is repeated on a new connection, and an owner number
    /// is never used twice, so nothing is released that is not this guard's.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background; dropped before it was first polled, this is the same
    /// as dropping the guard.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where Redis cannot be reached, and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where it does not answer, for the connect
    /// time-out and two response time-outs; the release then goes on in the background. An expired
    /// or lost lock is no error, but [`Unlocked::AlreadyExpired`].
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.inner.unlock().await
    }

    /// Returns what the guard knows of its lock at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Returns whether the lock is ours at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until the lock is lost, and says why.
    ///
    /// Resolves as soon as a renewal finds the lock gone (within a renewal interval of its loss),
    /// and at the local deadline at the latest, whether or not Redis can be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    pub async fn lost(&self) -> LostReason {
        self.inner.lost().await
    }

    /// Lengthens the lease to `lease` from now, if that is longer than what is left.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be lengthened.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the lock is gone: nothing re-creates it.
    /// [`BadInput`](crate::ErrorKind::BadInput) for a lease below 1 ms or too long for Redis.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        const ACTION: &str = "extend lock";
        check_lease(lease).map_err(|error| error.named(self.inner.hold.recipe.name().as_arc()))?;
        self.inner.extend(ACTION, lease).await
    }

    /// Takes the lock once more for the same owner: both guards must end before it is free.
    ///
    /// The lease is never shortened by it, and `max_hold` is this guard's own.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the count is set back.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the lock is gone; nothing revives it.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where Redis does not answer in time; the count is
    /// set back.
    pub async fn reenter(&self) -> Result<Self, Error> {
        let hold = &self.inner.hold;
        let terms = LockOptions::new().terms(&hold.engine)?;
        Ok(Self::new(hold.reenter(terms, None).await?))
    }

    /// Runs `body` under the lock, and drops it as soon as the lock is lost.
    ///
    /// Inside, a lock of the same name and kind re-enters this one: [`lock`](super::Lock::lock),
    /// or a function under the attribute. Cancelling takes effect at the body's next await: the
    /// body is dropped completely, then this returns. What the body spawned goes on. A body that
    /// completed is never called lost, and under a lock that is lost already none is started.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) where the body was dropped; unless it was not started, its outcome
    /// is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        const ACTION: &str = "run a body under lock";
        // Each async function on the way would have room for the body twice, as what it is given
        // and as what it awaits: eight times for each level of nesting.
        let body = Box::pin(body);
        async move {
            let body = self.scope().run(body);
            self.inner.run(ACTION, body).await
        }
    }

    /// Returns the name of the lock as it stands in Redis.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }

    /// Returns the identity of the hold as it stands in Redis.
    #[must_use]
    pub fn hold_id(&self) -> &HoldId {
        &self.inner.hold.id
    }

    /// Returns how many guards share the hold, this one included.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.inner.hold.count()
    }
}

/// What is told of a release whose outcome does not change that of the caller.
pub(super) fn note_failure(released: Result<Unlocked, Error>, goes_on: &'static str) {
    if let Err(error) = released {
        tracing::warn!(error = error.with_sources(), "{goes_on}");
    }
}

impl<K: Kind> fmt::Debug for LockGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
