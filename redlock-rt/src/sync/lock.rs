//! What locks of all kinds have in common.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{LockGuard, note_failure};
use super::kind::Kind;
use super::options::{LockOptions, unless_contended};
use crate::engine::{AcquireParams, Backoff, Engine, Handle, Terms};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, HoldId, LockName};
use crate::wire::{Call, Holder, LockRecipe, Malformed, Recipe, Reply};

/// A handle to the lock of one name; see the aliases for the kinds.
///
/// Making a handle does no I/O, and handles are cheap to clone.
///
/// # Names
///
/// This is about the names of all primitives: locks, semaphores, latches and fenced values.
///
/// A name with the client's [namespace](crate::ClientBuilder::namespace) before it (`svc:order:7`)
/// *is* the key in Redis: a hash for a lock, a string for a semaphore or a latch. So a name must not
/// be the key of anything else, such as the data that the lock protects: give locks a namespace of
/// their own. A key that holds something else is refused with [`WrongType`](ErrorKind::WrongType) and
/// left as it is: another type, a string that is no number, or a hash that cannot be a lock. The
/// fields of a lock are `ID:NUMBER` with a number as the value, and `mode`; a hash of an application
/// that looks like that (`item:42` = `3` as its only field) is taken for a lock that somebody holds. Further keys are derived from it, `PREFIX:{NAME}` or
/// `{NAME}:SUFFIX`, with prefixes that begin with `redisson_` or `redlock_`. They are listed in
/// `docs/protocol.md`.
///
/// An empty or blank name, one with a NUL, or longer than 512 bytes with the namespace, is reported
/// by every operation as [`BadInput`](ErrorKind::BadInput).
///
/// **Braces.** A name that contains `{` is not wrapped in braces again, as in Redisson, so that a
/// hash tag (`order:{42}`) stays one. Therefore a name and the same name in braces (`a` and `{a}`)
/// share those derived keys that Redisson knows, in Java as here: fair locks have one queue for both,
/// so that who wants the one waits behind those who wait for the other;
/// [permits with leases](crate::PermitExpirableSemaphore) of the one count as held of the other, and
/// come back to the wrong one when their leases are over; fenced locks have one counter, which harms
/// nothing. Do not use both. With a namespace
/// (`svc:a`, `svc:{a}`) no two names share anything. Keys that only this crate knows are
/// never shared.
pub struct Lock<K: Kind> {
    pub(super) engine: Handle,
    pub(super) wire: Result<Arc<dyn LockRecipe>, BadName>,
    /// Of a kind whose waiters are not woken.
    pub(super) backoff: Option<Backoff>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Lock<K> {
    pub(super) fn new<W: LockRecipe>(
        engine: &Arc<Engine>,
        name: &str,
        wire: impl FnOnce(LockName) -> W,
    ) -> Self {
        let name = LockName::new(engine.namespace(), name);
        let wire = name.map(|name| Arc::new(wire(name)) as Arc<dyn LockRecipe>);
        Self {
            engine: Handle::new(engine),
            wire,
            backoff: None,
            kind: PhantomData,
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The same lock with other options of its kind.
    pub(super) fn rewired<W: LockRecipe>(mut self, wire: impl FnOnce(LockName) -> W) -> Self {
        self.wire = self
            .wire
            .map(|old| Arc::new(wire(old.name().clone())) as Arc<dyn LockRecipe>);
        self
    }

    pub(super) fn spinning(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// A handle to what another handle leads to.
    pub(super) fn of(engine: &Arc<Engine>, wire: Arc<dyn LockRecipe>) -> Self {
        Self {
            engine: Handle::new(engine),
            wire: Ok(wire),
            backoff: None,
            kind: PhantomData,
        }
    }

    pub(super) fn wire(&self) -> Result<&Arc<dyn LockRecipe>, Error> {
        self.wire.as_ref().map_err(|bad| bad.clone().into())
    }

    /// Acquires the lock, waiting as long as it takes.
    ///
    /// It waits through outages of Redis as well; bound the wait by
    /// [`lock_with`](Self::lock_with). Called inside a body that runs under a guard of the same
    /// lock ([`LockGuard::run`]), it re-enters; otherwise every call is a contender of its own,
    /// also within one task.
    ///
    /// # Round trips
    ///
    /// One where the lock is free. A process that waits sends at most three tries and one
    /// SUBSCRIBE, two tries where it is subscribed already, and one try a poll interval, however
    /// many of its tasks wait.
    ///
    /// # Fairness
    ///
    /// First come, first served among the tasks of one client. Among clients any waiter may be
    /// next.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the place in the queue is given up, and if a try was under way, the client
    /// waits for its outcome and frees the lock.
    ///
    /// # Errors
    ///
    /// [`BadInput`](ErrorKind::BadInput), [`WrongType`](ErrorKind::WrongType) where the key holds
    /// something else, [`Denied`](ErrorKind::Denied), [`ShutDown`](ErrorKind::ShutDown);
    /// [`Lost`](ErrorKind::Lost) where the enclosing hold is lost already.
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
        self.lock_with(LockOptions::new()).await
    }

    /// Acquires the lock if nobody else has it at this moment.
    ///
    /// # Round trips
    ///
    /// One; none where this client itself holds the lock.
    ///
    /// # Fairness
    ///
    /// None: it goes past those who wait.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Unavailable`](ErrorKind::Unavailable) where Redis does not
    /// answer in time. Contention is no error but `None`.
    pub async fn try_lock(&self) -> Result<Option<LockGuard<K>>, Error> {
        let options = LockOptions::new().wait(Duration::ZERO);
        unless_contended(self.lock_with(options).await)
    }

    /// Acquires the lock as the options say.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); and when the wait is over, [`TimedOut`](ErrorKind::TimedOut)
    /// where somebody else had the lock, [`Contended`](ErrorKind::Contended) likewise for a wait
    /// of zero, [`Unavailable`](ErrorKind::Unavailable) where Redis did not answer.
    pub async fn lock_with(&self, options: LockOptions) -> Result<LockGuard<K>, Error> {
        let (recipe, terms, params) = self.prepare(&options)?;
        let guard = self.engine.lock(&recipe, terms, params).await?;
        Ok(LockGuard::lasting(guard, &options))
    }

    /// As [`lock_with`](Self::lock_with), for a guard that one body runs under.
    pub(crate) async fn lock_for_body(&self, options: LockOptions) -> Result<LockGuard<K>, Error> {
        let (recipe, terms, params) = self.prepare(&options)?;
        let guard = self.engine.lock_for_body(&recipe, terms, params).await?;
        Ok(LockGuard::lasting(guard, &options))
    }

    fn prepare<'a>(
        &'a self,
        options: &'a LockOptions,
    ) -> Result<(Arc<dyn Recipe>, Terms, AcquireParams<'a>), Error> {
        let recipe: Arc<dyn Recipe> = Arc::clone(self.wire()?) as _;
        let terms = options.terms_of(&self.engine, &*recipe, self.backoff)?;
        let params = AcquireParams {
            wait: options.waiting(),
            owner: options.acting_as(),
            backoff: self.backoff.as_ref(),
        };
        Ok((recipe, terms, params))
    }

    /// Acquires the lock, runs `body` under it, and releases it.
    ///
    /// The body is dropped if the lock is lost; see [`LockGuard::run`]. Called inside a body that
    /// runs under a guard of the same lock, it re-enters, and bodies side by side (`join!`) do so
    /// one after the other.
    ///
    /// # Cancel safety
    ///
    /// The body is dropped first, then the lock is released in the background.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Lost`](ErrorKind::Lost) where the body was dropped. A body
    /// that completed is never called lost, whatever becomes of the release.
    pub async fn with<T>(&self, body: impl AsyncFnOnce(&LockGuard<K>) -> T) -> Result<T, Error> {
        let guard = self.lock_for_body(LockOptions::new()).await?;
        let output = guard.run(body(&guard)).await?;
        note_failure(
            guard.unlock().await,
            "the release goes on in the background",
        );
        Ok(output)
    }

    /// Frees the lock whoever holds it; answers whether anybody did.
    ///
    /// The holder's guard is lost at its next renewal. A key that is no lock (see
    /// [names](Self#names)) is not deleted, but refused with [`WrongType`](ErrorKind::WrongType).
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) where it was not sent,
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) where it was and the reply was lost, and those of
    /// [`lock`](Self::lock). After a lost reply it is not repeated: the lock may be somebody else's by
    /// then. Look who holds it before you call it again.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        const ACTION: &str = "force-release lock";
        let wire = self.wire()?;
        match self.engine.force_release(ACTION, &**wire).await? {
            Reply::Int(freed @ 0..=1) => Ok(freed == 1),
            other => Err(self.malformed(ACTION, Malformed(other))),
        }
    }

    /// Returns whether anybody holds the lock, or it stays locked for the rest of a
    /// [`min_hold`](LockOptions::min_hold).
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable), and those of [`lock`](Self::lock).
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect().await?.is_empty())
    }

    /// Returns who holds the lock; of several holders, any. For the rest of a
    /// [`min_hold`](LockOptions::min_hold) it is the owner whose hold has ended.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn holder(&self) -> Result<Option<HoldId>, Error> {
        let first = self.inspect().await?.into_iter().next();
        Ok(first.map(|holder| holder.owner))
    }

    /// Returns all who hold the lock: one at most, where the kind is exclusive.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn holders(&self) -> Result<Vec<HoldId>, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.map(|holder| holder.owner).collect())
    }

    /// Returns how often the present holders have it, all together; zero where nobody does.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.map(|holder| holder.count).sum())
    }

    /// Returns the rest of the present holder's lease (of several, the longest); `None` where
    /// nobody holds it, or where the key has no TTL.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        let holders = self.inspect().await?.into_iter();
        Ok(holders.filter_map(|holder| holder.ttl).max())
    }

    pub(super) async fn inspect(&self) -> Result<Vec<Holder>, Error> {
        const ACTION: &str = "inspect lock";
        let reply = self.ask(ACTION, LockRecipe::inspect).await?;
        Holder::decode(reply).map_err(|malformed| self.malformed(ACTION, malformed))
    }

    pub(super) async fn ask(
        &self,
        action: &'static str,
        call: impl FnOnce(&dyn LockRecipe) -> Call,
    ) -> Result<Reply, Error> {
        let wire = self.wire()?;
        self.engine.ask(action, wire.name(), call(&**wire)).await
    }

    pub(super) fn malformed(&self, action: &'static str, malformed: Malformed) -> Error {
        let error = Error::new(ErrorKind::Protocol, action).caused_by(Arc::new(malformed));
        match &self.wire {
            Ok(wire) => error.named(wire.name().as_arc()),
            Err(_) => error,
        }
    }
}

impl<K: Kind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            wire: self.wire.clone(),
            backoff: self.backoff,
            kind: PhantomData,
        }
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
