//! The guard of a held lock.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::kind::Kind;
use super::options::{LockOptions, again, check_lease};
use crate::engine::{GuardState, HoldGuard, LostReason, ReentryScope, Unlocked};
use crate::error::Error;
use crate::limit::SharedLimit;
use crate::name::HoldId;

const REENTER: &str = "re-enter lock";

/// The guard of a held lock. It reports whether the lock is still held.
///
/// The guard never reports the lock as held after its *local deadline*: the moment before the
/// acquiring or renewing command was sent, plus the lease, less a margin for clocks that run at
/// different speeds (1 % and 2 ms). This is true whether or not Redis can be reached. While the
/// guard exists, the watchdog renews the lease, unless the options say otherwise.
///
/// After completed work, drop the guard: `unlock().await?` would turn an outage into an error of the work
/// ([more](crate::recipes#after-the-work)). [`unlock`](Self::unlock) returns the outcome of the release. Dropping the
/// guard never blocks and never panics, inside or outside of a runtime:
///
/// * If there is a connection, the drop writes the release to it at once. A background task waits for the reply.
/// * If that fails, and no runtime runs the client's tasks (their runtime is shutting down), the
///   release waits for the next use of the client in another runtime. Otherwise the lock ends with
///   its lease. A client with a [dedicated thread](crate::ClientBuilder::dedicated_thread) needs no
///   other runtime.
/// * A process that ends does not wait for background tasks: see [the end of a program](crate#the-end-of-a-program).
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

    /// The guard with the `min_hold` of the options.
    pub(super) fn lasting(inner: HoldGuard, options: &LockOptions) -> Self {
        options.set_min_hold(&inner.hold);
        Self::new(inner)
    }

    /// The scope of a body under the lock.
    pub(crate) fn scope(&self) -> ReentryScope {
        ReentryScope::of(&self.inner.hold)
    }

    /// Releases the lock, and waits for the reply of Redis.
    ///
    /// Afterwards the lock is free ([`Unlocked::Released`]), held by other guards of the same hold
    /// ([`Unlocked::StillHeld`]), or locked for the rest of its [`min_hold`](LockOptions::min_hold)
    /// ([`Unlocked::Kept`]).
    ///
    /// A lost reply is not an error: the release is repeated on a new connection. An owner number
    /// is never used twice, so the repeat releases only this guard's lock.
    ///
    /// # Round trips
    ///
    /// One. None if another task of this client waits for the [`RLock`](crate::RLock) or
    /// [`FencedLock`](crate::FencedLock) and goes on with the hold; see [`ClientBuilder::hand_over`](crate::ClientBuilder::hand_over).
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background. Dropping the future before its first poll is the
    /// same as dropping the guard.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis cannot be reached, and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not answer within the
    /// [response time-out](crate::ClientBuilder::response_timeout); the release then continues in the
    /// background. [`Denied`](crate::ErrorKind::Denied) if Redis refuses the release: the lock then ends
    /// with its lease. If Redis refuses the login, the release continues in the background.
    /// An expired or lost lock is not an error: the call returns [`Unlocked::AlreadyExpired`].
    pub async fn unlock(self) -> Result<Unlocked, Error> {
        self.inner.unlock().await
    }

    /// Returns the state of the guard at this moment, by the local clock alone.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Returns whether the lock is held at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state().is_valid()
    }

    /// Waits until the lock is lost, and returns the reason.
    ///
    /// The future resolves as soon as a renewal finds that the lock is gone, within one renewal interval of the loss.
    /// It resolves at the local deadline at the latest, whether or not Redis can be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.inner.lost().await
    }

    /// Calls `told` with the reason as soon as the lock is lost, until the returned value is dropped. For code that
    /// cannot await [`lost`](Self::lost).
    ///
    /// `told` runs on the [dedicated thread](crate::ClientBuilder::dedicated_thread) of the client. Without one it runs
    /// on the runtime of this call, or else on the runtime of the acquisition. It must not block there, and is not
    /// called once that runtime has ended. If the lock is lost while the returned value is dropped, `told` may still
    /// run afterwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use redlock_rt::blocking::BlockOn as _;
    ///
    /// # fn main() -> Result<(), redlock_rt::Error> {
    /// # let redis = redlock_rt::embedded::Engine::new();
    /// # let client = redlock_rt::Client::builder().embedded(&redis).dedicated_thread(true).build()?;
    /// let guard = client.rlock("report").lock().block_on()?;
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let stopped = Arc::clone(&stop);
    /// let watch = guard.on_lost(move |_reason| stopped.store(true, Ordering::Relaxed));
    /// for _chapter in 0..3 {
    ///     if stop.load(Ordering::Relaxed) {
    ///         break;
    ///     }
    ///     // … some work
    /// }
    /// drop(watch);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_lost(&self, told: impl FnOnce(LostReason) + Send + 'static) -> OnLost<'_> {
        OnLost {
            task: self.inner.on_lost(told),
            guard: PhantomData,
        }
    }

    /// Extends the lease to `lease` from now, if that is longer than the remaining lease.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be extended.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is gone (`ShutDown` if the client's shut-down
    /// ended the hold): nothing re-creates it. [`BadInput`](crate::ErrorKind::BadInput) for a lease
    /// below 1 ms or too long for Redis. [`Unavailable`](crate::ErrorKind::Unavailable) if Redis
    /// cannot be reached, and [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does
    /// not answer within the response time-out; the call then continues in the background.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        const ACTION: &str = "extend lock";
        let name = self.inner.hold.recipe.name();
        check_lease(ACTION, lease).map_err(|error| error.named(name.as_arc()))?;
        self.inner.extend(ACTION, lease).await
    }

    /// Takes the lock once more for the same owner. Both guards must end before the lock is free.
    ///
    /// Re-entry never shortens the lease. The new guard has the `max_hold` of this guard.
    ///
    /// # Round trips
    ///
    /// One, and one more if the client waits for [replicas](crate::ClientBuilder::replica_ack).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the count is reduced again.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is gone, or lost for this guard (`ShutDown` if by the client's
    /// shut-down); nothing re-creates it. [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in
    /// time. The count is reduced again, as after [`NotReplicated`](crate::ErrorKind::NotReplicated).
    pub async fn reenter(&self) -> Result<Self, Error> {
        let hold = &self.inner.hold;
        let guard = hold.reenter(again(&self.inner)?, None).await?;
        let guard = hold.engine.acknowledged_by_default(REENTER, guard).await?;
        match guard.state() {
            // Another guard of the hold may outlast the `max_hold` of this one.
            GuardState::Lost(reason) => Err(hold.lost_error(REENTER, reason)),
            _ => Ok(Self::new(guard)),
        }
    }

    /// Runs `body` under the lock, and drops it as soon as the lock is lost.
    ///
    /// Inside the body, a lock of the same name and kind re-enters this one, by
    /// [`lock`](super::Lock::lock) or by a function under the attribute. The body is cancelled at
    /// its next await: it is dropped completely, then `run` returns. Tasks that the body spawned
    /// continue. The result of a completed body is never replaced by `Lost`. If the lock is already
    /// lost, the body is not started.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the body was dropped, or was not started because the
    /// lock was already lost (`ShutDown` if the client's shut-down ended the hold). The outcome of
    /// a dropped body is unknown.
    pub fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
        const ACTION: &str = "run a body under lock";
        // Each async function on the way would store the body twice, as its argument and as the
        // awaited future: eight times for each level of nesting.
        let body = Box::pin(body);
        async move {
            let body = self.scope().run(body);
            self.inner.run(ACTION, body).await
        }
    }

    /// Returns the name of the lock in Redis, with the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }

    /// Returns the identity of the hold, as stored in Redis.
    #[must_use]
    pub fn hold_id(&self) -> &HoldId {
        self.inner.hold.hold_id()
    }

    /// Returns the number of guards that share the hold, including this one.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.inner.hold.count()
    }
}

/// The registration of a function for a loss, from [`LockGuard::on_lost`]. Dropping it cancels the registration.
#[derive(Debug)]
#[must_use = "the function is taken back when this is dropped"]
pub struct OnLost<'a> {
    task: Option<AbortHandle>,
    /// The task relies on the guard.
    guard: PhantomData<&'a ()>,
}

impl Drop for OnLost<'_> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A log line about a release whose failure does not change the result of the caller.
pub(super) struct GoesOn {
    message: &'static str,
    limit: SharedLimit,
}

/// For one lock.
pub(super) static RELEASE: GoesOn = GoesOn::new("the release goes on in the background");

impl GoesOn {
    pub(super) const fn new(message: &'static str) -> Self {
        let limit = SharedLimit::new();
        Self { message, limit }
    }

    pub(super) fn note<T>(&self, released: Result<T, Error>) {
        if let Err(error) = released
            && let Some(left_out) = self.limit.pass()
        {
            tracing::warn!(error = error.with_sources(), left_out, "{}", self.message);
        }
    }
}

impl<K: Kind> fmt::Debug for LockGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
