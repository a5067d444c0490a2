//! The semaphore whose permits have no lease.

use std::sync::Arc;
use std::time::Duration;

use super::counted::{ACQUIRE, Counted, MOST_PERMITS, number};
use super::options::unless_contended;
use super::permit_options::PermitOptions;
use crate::engine::{ClientEngine, HoldGuard, Unlocked};
use crate::error::Error;
use crate::wire::{self, Named, SemaphoreWire};

/// A semaphore whose permits have no lease, shared with Redisson's `RSemaphore` of the same name.
///
/// **A crashed process keeps its permits.** The format has no lease. The permit of a dead process, and one
/// whose release a failover has lost, stay taken until you [add](Self::add_permits) one. Use a
/// [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore), whose permits become free after their
/// leases, unless you share the semaphore with a Redisson `RSemaphore` or want permits to outlive their process.
///
/// Before the first acquisition, [set](Self::try_set_permits) the number of permits once, or use a
/// handle with a [limit](Self::limit). Permits do not belong to a client:
/// [`release`](Self::release) adds permits even if they were not acquired, and deleting the key
/// forgets all of them. If Redisson then sets a new number, an older guard adds its permits to that number
/// when it ends, as Redisson's `release` does.
///
/// If no number was set, the time-out error of an acquisition says so. An acquisition with an
/// unlimited wait continues to wait, as Redisson's does, and logs this once: WARN, target
/// `redlock_rt::semaphore`, field `name`.
///
/// # Round trips
///
/// One to acquire free permits, one to release them. A waiting process sends at most three tries
/// and one SUBSCRIBE. After a release, each waiting process wakes one waiter, which wakes the next
/// one of its process while permits are left.
///
/// # Fairness
///
/// First come, first served among the tasks of one client, however many permits each asks for: a
/// task that asks for many delays the tasks behind it. None among clients: the first try takes the
/// free permits, so a caller that asks for many may wait for ever behind callers that ask for few.
///
/// # Cancel safety
///
/// A dropped [`acquire`](Self::acquire) leaves nothing taken: if a try is in progress, the client
/// waits for its outcome and gives the permits back. The same is true after a lost reply: while the
/// client lives, no permit is lost or created.
///
/// # Errors
///
/// Those of [`RLock`](crate::RLock): [`BadInput`](crate::ErrorKind::BadInput) also for zero permits
/// or more than 2147483647, [`WrongType`](crate::ErrorKind::WrongType) if the key holds no number.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::Client;
///
/// let client = Client::embedded();
/// let printers = client.semaphore("printers");
/// assert!(printers.try_set_permits(3).await?);
///
/// let two = printers.acquire_many(2).await?;
/// assert!(printers.try_acquire_many(2).await?.is_none());
/// assert_eq!(printers.available_permits().await?, 1);
/// two.release().await?;
/// assert_eq!(printers.available_permits().await?, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    counted: Counted,
}

impl Semaphore {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self {
            counted: Counted::new(engine, Named::Semaphore, name),
        }
    }

    /// Sets the number of permits with the first acquisition of this handle, if none is
    /// [set](Self::try_set_permits). An existing semaphore keeps its number. This costs no extra
    /// call.
    ///
    /// All handles of a name should have the same limit. A caller that waits behind a handle without a limit
    /// waits until the number is set. The acquisition refuses a limit of zero or above 2147483647.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// let client = redlock_rt::Client::embedded();
    /// let printers = client.semaphore("printers").limit(3);
    /// let one = printers.acquire().await?;
    /// assert_eq!(printers.available_permits().await?, 2);
    /// # one.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(mut self, permits: u32) -> Self {
        self.counted.limit = Some(permits);
        self
    }

    /// Sets the number of permits if none is set, and returns whether it was set. Zero creates a
    /// semaphore without free permits.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The value may or may not be set.
    ///
    /// # Errors
    ///
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not answer in time. A
    /// repeat after a lost reply is recognised: the result is that of the first call.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        self.counted.try_set_permits(permits).await
    }

    /// Acquires a permit, and waits without a limit.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Semaphore`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore`].
    pub async fn acquire(&self) -> Result<SemaphorePermit, Error> {
        self.acquire_with(PermitOptions::new()).await
    }

    /// Acquires this many permits at once, all or none, and waits without a limit.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Semaphore`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore`].
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit, Error> {
        let options = PermitOptions::new().permits(permits);
        self.acquire_with(options).await
    }

    /// Acquires permits as the options say: how many, and how long to wait. The options of a lease
    /// are refused.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Semaphore`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; and after the wait, [`TimedOut`](crate::ErrorKind::TimedOut) if there
    /// were too few permits, [`Contended`](crate::ErrorKind::Contended) instead, for a wait of
    /// zero, [`Unavailable`](crate::ErrorKind::Unavailable) if Redis did not answer.
    pub async fn acquire_with(&self, options: PermitOptions) -> Result<SemaphorePermit, Error> {
        let (engine, permits) = (&self.counted.engine, options.permits);
        let name = self.counted.taking(ACQUIRE, permits, MOST_PERMITS)?;
        let limit = self.counted.limit()?;
        let terms = options.without_lease();
        let terms = terms.map_err(|error| error.named(name.as_arc()))?;
        let recipe = Arc::new(SemaphoreWire::new(name.clone(), permits, limit));
        let guard = engine.lock(recipe, terms, options.params(engine)).await;
        let inner = guard.map_err(Counted::acquiring)?;
        Ok(SemaphorePermit { inner, permits })
    }

    /// Acquires a permit if one is free at this moment.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`], and [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not answer in time.
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires this many permits, all or none, if they are free at this moment.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`], and [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not
    /// answer in time. Too few permits are not an error: the call returns `None`.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>, Error> {
        let options = PermitOptions::new().permits(permits).wait(Duration::ZERO);
        unless_contended(self.acquire_with(options).await)
    }

    /// Adds this many permits, whichever client had them: for permits whose guard was
    /// [forgotten](SemaphorePermit::forget), or whose process died. Creates the semaphore if it does not
    /// exist.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The permits may or may not be added.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not
    /// answer in time. A repeat after a lost reply adds nothing.
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        const ACTION: &str = "release permits of semaphore";
        self.counted.taking(ACTION, permits, MOST_PERMITS)?;
        self.counted.add(ACTION, permits.into()).await
    }

    /// Changes the number of permits by this amount. After a negative amount, the number of free
    /// permits may be negative until enough permits are released.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The permits may or may not be added.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not
    /// answer in time. A repeat after a lost reply adds nothing.
    pub async fn add_permits(&self, permits: i32) -> Result<(), Error> {
        let added = self.counted.add("add permits to semaphore", permits.into());
        added.await
    }

    /// Takes all free permits, without a guard, and returns how many. If the number of free permits
    /// was negative, the call returns that number and sets it to zero.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The permits may or may not be taken.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not
    /// answer in time. A repeat after a lost reply takes nothing.
    pub async fn drain(&self) -> Result<i64, Error> {
        let drained = self.counted.operate("drain semaphore", wire::drain_permits);
        drained.await
    }

    /// Returns the number of free permits, which may be negative; zero if no number was set.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`], and [`Unavailable`](crate::ErrorKind::Unavailable) if Redis does not
    /// answer in time.
    pub async fn available_permits(&self) -> Result<i64, Error> {
        const ACTION: &str = "look at semaphore";
        let name = self.counted.name()?;
        let call = wire::available_permits(name);
        self.counted.engine.ask(ACTION, name, call, number).await
    }
}

/// The guard of permits of a [`Semaphore`], which gives them back when it is dropped.
///
/// [`release`](Self::release) is the normal way to end the guard. Dropping the guard queues the release, and
/// never blocks. The permits stay taken for ever if the process dies, or the client is shut down without a
/// release ([`Shutdown::Abandon`](crate::Shutdown::Abandon)). They may stay taken if the process ends without
/// a shut-down: see [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the permits"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct SemaphorePermit {
    inner: HoldGuard,
    permits: u32,
}

impl SemaphorePermit {
    /// Gives the permits back, and waits for the reply of Redis.
    ///
    /// A lost reply is not an error: the release is repeated, and nothing is given back twice.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis cannot be reached, and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not answer, and
    /// [`Denied`](crate::ErrorKind::Denied) if it refuses the release; the release then continues in the
    /// background. If the semaphore was deleted meanwhile, the call returns
    /// [`Unlocked::AlreadyExpired`] and does not create the semaphore again.
    pub async fn release(self) -> Result<Unlocked, Error> {
        let released = self.inner.unlock().await;
        released.map_err(|error| error.trying("release permits of semaphore"))
    }

    /// Ends the guard and keeps the permits taken: another caller must
    /// [release](Semaphore::release) them. Never blocks.
    pub fn forget(self) {
        self.inner.forget();
    }

    /// Returns the number of permits of the guard.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Returns the name of the semaphore in Redis, with the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }
}
