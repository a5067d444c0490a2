//! The common part of all kinds of locks.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{LockGuard, RELEASE};
use super::kind::Kind;
use super::options::{LockOptions, unless_contended};
use crate::engine::{AcquireParams, Backoff, ClientEngine, Handle, Steal};
use crate::error::{Error, Theft};
use crate::name::{BadName, HoldId, LockName};
use crate::wire::{Call, Holder, LockRecipe, Malformed, Named, Recipe, Reply};

/// A handle to the lock of one name. The type aliases describe the kinds.
///
/// Creating a handle does no I/O, and handles are cheap to clone.
///
/// # Names
///
/// These rules apply to the names of all primitives: locks, semaphores, latches and fenced values.
///
/// A name with the client's [namespace](crate::ClientBuilder::namespace) before it (`svc:order:7`)
/// *is* the key in Redis: a hash for a lock, a string for a semaphore or a latch. So the key must
/// hold nothing else, such as the data that the lock protects: use a separate namespace for locks.
///
/// A key that holds something else is refused with [`WrongType`](crate::ErrorKind::WrongType) and stays
/// unchanged: another type, a string that is not a number, or a hash that cannot be a lock. The
/// fields of a lock are `ID:NUMBER` with a number as the value, and `mode`. An application's hash
/// with the same format (`item:42` = `3` as its only field) counts as a held lock.
///
/// Other keys are derived from the name: `PREFIX:{NAME}` or `{NAME}:SUFFIX`, with prefixes that
/// begin with `redisson_` or `redlock_`. `docs/protocol.md` lists them.
///
/// If a name is empty or blank, contains a NUL, or with the namespace is longer than 512 bytes or begins like a
/// derived key (`redlock_sem:`), every operation returns [`BadInput`](crate::ErrorKind::BadInput); in a cluster
/// also if its braces put its keys into several slots (`x{y`, `x}y`).
///
/// **Braces.** As in Redisson, a name that contains `{` is not wrapped in braces again, so that a
/// hash tag (`order:{42}`) stays a hash tag. Therefore a name and the same name in braces (`a` and
/// `{a}`) share the derived keys that Redisson knows, in Java as here:
///
/// * Fair locks have one queue for both: waiters of one name wait behind waiters of the other.
/// * [Permits with leases](crate::PermitExpirableSemaphore) of one name count as held for the
///   other, and return to the wrong one when their leases are over.
/// * Fenced locks have one counter, which does no harm.
///
/// Do not use both. With a namespace (`svc:a`, `svc:{a}`) no two names share a key. Keys that only
/// this crate knows are never shared.
///
/// # Futures that are not polled
/// Poll each future that waits for a primitive, or drop it. Do not keep such a future unpolled during other work.
/// If it is next and is not polled for half a second, other callers of its client pass it over. When it is polled,
/// it has its place again. A [`FairLock`](crate::FairLock) removes it from its queue.
///
/// If such a future does not read an answer, what the answer gave to it stays taken: a lock for its lease, a
/// permit without a lease until the future is polled or dropped. The parts of a [`MultiLock`](crate::MultiLock)
/// that it has also stay taken, and the next call of its [`Owner`](crate::Owner) waits.
pub struct Lock<K: Kind> {
    pub(super) engine: Handle,
    pub(super) wire: Wire,
    /// Set for a kind whose waiters poll.
    pub(super) backoff: Option<Arc<Backoff>>,
    kind: PhantomData<fn() -> K>,
}

/// The calls of a lock, unless its name is refused.
type Wire = Result<Arc<dyn LockRecipe>, BadName>;

impl<K: Kind> Lock<K> {
    pub(super) fn new<W: LockRecipe>(
        engine: &Arc<ClientEngine>,
        named: Named,
        name: &str,
        wire: impl FnOnce(LockName) -> W,
    ) -> Self {
        let name = engine.name(named, name);
        let wire = name.map(|name| Arc::new(wire(name)) as Arc<dyn LockRecipe>);
        Self::of(engine, wire)
    }

    /// The same lock with other options of its kind.
    pub(super) fn rewired<W: LockRecipe>(mut self, wire: impl FnOnce(LockName) -> W) -> Self {
        self.wire = self
            .wire
            .map(|old| Arc::new(wire(old.name().clone())) as Arc<dyn LockRecipe>);
        self
    }

    pub(super) fn spinning(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(Arc::new(backoff));
        self
    }

    /// A handle to the same lock as another handle.
    pub(super) fn of(engine: &Arc<ClientEngine>, wire: Wire) -> Self {
        Self {
            engine: Handle::new(engine),
            wire,
            backoff: None,
            kind: PhantomData,
        }
    }

    /// The same lock, for any kind that its type names.
    pub(super) fn as_kind<L: Kind>(&self) -> Lock<L> {
        let mut lock = Lock::of(&self.engine, self.wire.clone());
        lock.backoff = self.backoff.clone();
        lock
    }

    pub(super) fn wire(&self) -> Result<&Arc<dyn LockRecipe>, Error> {
        self.wire.as_ref().map_err(|bad| bad.clone().into())
    }

    /// Acquires the lock, and waits without a limit.
    ///
    /// The call also waits through outages of Redis; use [`lock_with`](Self::lock_with) to limit
    /// the wait. Inside a body that runs under a guard of the same lock ([`LockGuard::run`]), the
    /// call re-enters. Otherwise every call competes with all other calls, also within one task.
    ///
    /// # Round trips
    ///
    /// One if the lock is free. A waiting process sends at most three tries and one SUBSCRIBE, or two tries if it
    /// is already subscribed, and then one try per poll interval, however many of its tasks wait. If the lock is
    /// taken and the client did not know that, the first try takes two. A hold that is [handed
    /// over](crate::ClientBuilder::hand_over) takes none.
    ///
    /// # Fairness
    ///
    /// First come, first served among the tasks of one client. Among clients, any waiter may be next. For
    /// milliseconds, a client that had the lock lately lets clients try first that listen to its releases.
    /// [`try_lock`](Self::try_lock) and a wait of zero let no other client try first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the caller leaves the queue. If a try is in progress, the client waits for
    /// its outcome and frees the lock.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput), [`WrongType`](crate::ErrorKind::WrongType) if the key holds
    /// something else, [`Denied`](crate::ErrorKind::Denied), [`Misconfigured`](crate::ErrorKind::Misconfigured),
    /// [`NoScripts`](crate::ErrorKind::NoScripts), [`Protocol`](crate::ErrorKind::Protocol),
    /// [`NotReplicated`](crate::ErrorKind::NotReplicated), [`ShutDown`](crate::ErrorKind::ShutDown);
    /// [`Lost`](crate::ErrorKind::Lost) if the enclosing hold is already lost, or if the lease was over before the
    /// reply came, three times in a row. A re-entry waits for its reply for the response time-out. A client with
    /// [`RetryPolicy::attempts`](crate::RetryPolicy::attempts) ends the wait after that many attempts:
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// let client = redlock_rt::Client::embedded();
    /// let guard = client.rlock("order:7").lock().await?;
    /// assert!(guard.is_valid());
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<LockGuard<K>, Error> {
        static DEFAULT: LockOptions = LockOptions::new();
        self.acquire(&DEFAULT).await
    }

    /// Acquires the lock if it is free at this moment.
    ///
    /// # Round trips
    ///
    /// One; none if this client itself holds the lock. Two if the lock is taken, and the client did not know that.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: if the try is in progress, the client waits for its outcome and frees the lock.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not
    /// answer in time. Contention is not an error: the call returns `None`.
    pub async fn try_lock(&self) -> Result<Option<LockGuard<K>>, Error> {
        let options = LockOptions::new().wait(Duration::ZERO);
        unless_contended(self.lock_with(options).await)
    }

    /// Acquires the lock as the options say.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// As for [`lock`](Self::lock), whatever the options; a wait of zero is [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock); and after the wait, [`TimedOut`](crate::ErrorKind::TimedOut) if another
    /// owner held the lock, [`Contended`](crate::ErrorKind::Contended) instead, for a wait of zero,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis did not answer.
    pub async fn lock_with(&self, options: LockOptions) -> Result<LockGuard<K>, Error> {
        self.acquire(&options).await
    }

    /// Acquires the lock as the options say, with a future that owns its data: for a temporary handle. (For other
    /// primitives write `async { client.semaphore("s").acquire().await }`.)
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// # use redlock_rt::LockOptions;
    /// # let (client, stop) = (redlock_rt::Client::embedded(), std::future::pending::<()>());
    /// tokio::select! {
    ///     guard = client.rlock("order:7").lock_owned(LockOptions::new()) => assert!(guard?.is_valid()),
    ///     () = stop => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_owned(self, options: LockOptions) -> Result<LockGuard<K>, Error> {
        self.acquire(&options).await
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn has room for its arguments twice"
    )]
    fn acquire<'a>(
        &'a self,
        options: &'a LockOptions,
    ) -> impl Future<Output = Result<LockGuard<K>, Error>> + Send + 'a {
        async move {
            let recipe: Arc<dyn Recipe> = Arc::clone(self.wire()?) as _;
            let terms = options.terms_of(&self.engine, &*recipe, self.backoff.as_deref())?;
            let params = options.params(&self.engine, self.backoff.as_deref());
            let guard = self.engine.lock(recipe, terms, params).await?;
            Ok(LockGuard::lasting(guard, options))
        }
    }

    /// Acquires the lock, runs `body` under it, and releases it.
    ///
    /// If the lock is lost, the body is dropped; see [`LockGuard::run`]. Inside a body that runs
    /// under a guard of the same lock, the call re-enters. Concurrent bodies (`join!`) re-enter one
    /// after the other.
    ///
    /// # Cancel safety
    ///
    /// The body is dropped first, then the lock is released in the background.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) or `ShutDown` if the body was
    /// dropped. Neither replaces the result of a completed body, whatever the release returns.
    pub async fn with<T>(&self, body: impl AsyncFnOnce(&LockGuard<K>) -> T) -> Result<T, Error> {
        let guard = self.lock_with(LockOptions::new().for_body()).await?;
        let output = guard.run(body(&guard)).await?;
        RELEASE.note(guard.unlock().await);
        Ok(output)
    }

    /// Frees the lock from any holder, and returns whether it was held.
    ///
    /// The holder's guard becomes lost at its next renewal. A key that is not a lock (see
    /// [names](Self#names)) is not deleted: the call returns [`WrongType`](crate::ErrorKind::WrongType).
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the command was not sent,
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the command was sent and its reply was
    /// lost, and the errors of [`lock`](Self::lock). The command is not repeated after a lost
    /// reply, since another owner may hold the lock by then. Check the holder before you call this
    /// again.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        const ACTION: &str = "force-release lock";
        let wire = self.wire()?;
        self.engine.force_release(ACTION, &**wire).await
    }

    /// As [`force_unlock`](Self::force_unlock), and gives the holders a reason.
    ///
    /// Holders of this library lose their guards with [`LostReason::Stolen`](crate::LostReason::Stolen) at the
    /// next renewal. The reason has 1 to 1024 bytes and no NUL, and is not blank.
    ///
    /// # Round trips
    ///
    /// Two, and one for each holder.
    ///
    /// # Cancel safety
    ///
    /// The reason may stay in Redis, for the lease of the holder and 10 s.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) for a bad reason, and those of
    /// [`force_unlock`](Self::force_unlock).
    pub async fn force_unlock_because(&self, why: &str) -> Result<bool, Error> {
        const ACTION: &str = "tell the holder of lock";
        self.check_reason(ACTION, why)?;
        let engine = &self.engine;
        let theft = Theft {
            by: engine.thief(|| engine.id.as_str().to_owned()),
            why: why.to_owned(),
        };
        for holder in self.inspect().await? {
            let note = |wire: &dyn LockRecipe| theft.leave(wire.name(), &holder);
            self.ask(ACTION, note, |_| Ok(())).await?;
        }
        self.force_unlock().await
    }

    fn check_reason(&self, action: &'static str, why: &str) -> Result<(), Error> {
        let name = self.wire()?.name();
        let flaw =
            Theft::flaw(why).map(|flaw| Error::bad_input(action, format!("the reason {flaw}")));
        flaw.map_or(Ok(()), |error| Err(error.named(name.as_arc())))
    }

    /// For kinds that can be stolen.
    pub(super) async fn steal_for(&self, why: &str) -> Result<LockGuard<K>, Error> {
        const ACTION: &str = "steal lock";
        self.check_reason(ACTION, why)?;
        let seen = self.inspect().await.map_err(|error| error.trying(ACTION))?;
        let from = seen.first().map(|holder| &holder.owner);
        let steal = Steal {
            from,
            why: Some(why),
        };
        self.take_from(ACTION, steal, &LockOptions::new()).await
    }

    pub(super) async fn take_from(
        &self,
        action: &'static str,
        steal: Steal<'_>,
        options: &LockOptions,
    ) -> Result<LockGuard<K>, Error> {
        let recipe: Arc<dyn Recipe> = Arc::clone(self.wire()?) as _;
        let terms = options.terms_of(&self.engine, &*recipe, None)?;
        let params = AcquireParams {
            steal: Some(steal),
            ..options.params(&self.engine, None)
        };
        let guard = self.engine.lock(recipe, terms, params).await;
        let guard = guard.map_err(|error| error.trying(action))?;
        Ok(LockGuard::lasting(guard, options))
    }

    /// Returns whether the lock is held, or stays locked for the rest of a
    /// [`min_hold`](LockOptions::min_hold).
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), and those of [`lock`](Self::lock).
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect().await?.is_empty())
    }

    /// Returns the holder of the lock; any of them if there are several. During the rest of a
    /// [`min_hold`](LockOptions::min_hold), this is the owner of the ended hold.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn holder(&self) -> Result<Option<HoldId>, Error> {
        let first = self.inspect().await?.into_iter().next();
        Ok(first.map(|holder| holder.owner))
    }

    /// Returns all holders of the lock: at most one for an exclusive kind.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn holders(&self) -> Result<Vec<HoldId>, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.map(|holder| holder.owner).collect())
    }

    /// Returns the sum of the hold counts of all holders; zero if the lock is free, or if the hold has
    /// ended and [`min_hold`](LockOptions::min_hold) keeps the lock.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.fold(0, |sum, holder| sum.saturating_add(holder.count)))
    }

    /// Returns the remaining lease of the holder (the longest, if there are several); `None` if the
    /// lock is free or the key has no TTL.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time, and the errors of
    /// [`lock`](Self::lock).
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.filter_map(|holder| holder.ttl).max())
    }

    pub(super) async fn inspect(&self) -> Result<Vec<Holder>, Error> {
        const ACTION: &str = "inspect lock";
        self.ask(ACTION, LockRecipe::inspect, Holder::decode).await
    }

    pub(super) async fn ask<T>(
        &self,
        action: &'static str,
        call: impl FnOnce(&dyn LockRecipe) -> Call,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let wire = self.wire()?;
        let call = call(&**wire);
        self.engine.ask(action, wire.name(), call, read).await
    }
}

impl<K: Kind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        self.as_kind()
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.wire.as_ref().map(|wire| wire.name().as_str());
        f.debug_struct("Lock")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}
