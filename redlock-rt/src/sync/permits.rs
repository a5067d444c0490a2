//! The semaphore whose permits have leases.

use std::sync::Arc;
use std::time::Duration;

use super::counted::{ACQUIRE, Counted, number};
use super::options::{check_lease_of, unless_contended};
use super::permit::LeasedPermit;
use super::permit_options::{CHECK, PermitOptions};
use crate::engine::{ClientEngine, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::wire::{ID_DIGITS, Named, PermitsWire, Recipe, Reply};

/// The most permits of one acquisition.
const MOST_AT_ONCE: u32 = 1000;

/// A semaphore whose permits have leases, shared with Redisson's `RPermitExpirableSemaphore` of the
/// same name.
///
/// Each permit has an id and a lease. While its guard exists, the watchdog renews the lease. The permit of a
/// dead process is free after its lease, and a waiter takes it within milliseconds. (Redisson does not renew
/// permits: there the lease is the longest hold.) Before the first acquisition, [set](Self::try_set_permits)
/// the number of permits once, or use a handle with a [limit](Self::limit).
///
/// If no number was set, an acquisition reports that as a [`Semaphore`](crate::Semaphore) does.
///
/// Do **not** use it where an overlap does harm: as with every lock with a lease, a process that is
/// paused for longer than its lease continues with a permit that another process has. Redisson
/// clients compare leases with their own clocks: a clock that is ahead by more than the lease
/// removes permits that are held, and the guard is lost at its next renewal. Semaphores of the
/// names `a` and `{a}` share the set of held permits, as in Redisson: see
/// [names](crate::Lock#names).
///
/// # Round trips
///
/// One to acquire a free permit, one to release it, and a share of the watchdog's call in each
/// third of the lease. A waiting process sends at most three tries and one SUBSCRIBE, one try when
/// the next lease is over, and one try per poll interval, however many of its tasks wait.
///
/// # Fairness
///
/// First come, first served among the tasks of one client. Among clients, any waiter may be next.
///
/// # Cancel safety
///
/// Nothing is left: a dropped [`acquire`](Self::acquire) gives back the permits that it may have
/// taken.
///
/// # Errors
///
/// Those of [`RLock`](crate::RLock); [`BadInput`](crate::ErrorKind::BadInput) also for zero permits
/// or more than 1000 at once, [`WrongType`](crate::ErrorKind::WrongType) if the key holds no
/// number.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::Duration;
/// use redlock_rt::{Client, PermitOptions};
///
/// let client = Client::embedded();
/// let calls = client.permit_expirable_semaphore("calls to the bank");
/// calls.try_set_permits(2).await?;
///
/// let options = PermitOptions::new().lease(Duration::from_secs(10));
/// let permit = calls.acquire_with(options).await?;
/// assert_eq!(permit.id().len(), 32);
/// assert_eq!((calls.available_permits().await?, calls.permits().await?), (1, 2));
/// permit.release().await?;
/// assert_eq!(calls.acquired().await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PermitExpirableSemaphore {
    counted: Counted,
}

impl PermitExpirableSemaphore {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self {
            counted: Counted::new(engine, Named::Permits, name),
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
    /// let calls = client.permit_expirable_semaphore("calls to the bank").limit(2);
    /// let permit = calls.acquire().await?;
    /// assert_eq!((calls.available_permits().await?, calls.permits().await?), (1, 2));
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(mut self, permits: u32) -> Self {
        self.counted.limit = Some(permits);
        self
    }

    /// Sets the number of permits if none is set, and returns whether it was set. The number
    /// includes permits that are still held from a deleted semaphore.
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
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not answer in time. A repeat after
    /// a lost reply is recognised: the result is that of the first call.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        const ACTION: &str = "set the permits of semaphore";
        self.counted.having(ACTION, permits)?;
        let set = self.counted.operate(ACTION, |name, operation| {
            wire(name).set(operation, permits, true)
        });
        Ok(set.await? == 1)
    }

    /// Sets the total number of permits, including held ones.
    ///
    /// No holder loses a permit. If more permits are held, none is given out until enough have been released.
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
    /// See [`PermitExpirableSemaphore`]; [`Unavailable`](ErrorKind::Unavailable) if Redis cannot be
    /// reached in time, and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not answer:
    /// a repeat after a lost reply does not overwrite a number that was set since.
    pub async fn set_permits(&self, permits: u32) -> Result<(), Error> {
        const ACTION: &str = "set the permits of semaphore";
        self.counted.having(ACTION, permits)?;
        let set = self.counted.operate(ACTION, |name, operation| {
            wire(name).set(operation, permits, false)
        });
        set.await.map(drop)
    }

    /// Changes the total number of permits by this amount, which may be negative.
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
    /// See [`PermitExpirableSemaphore`]; [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not
    /// answer in time. A repeat after a lost reply adds nothing.
    pub async fn add_permits(&self, permits: i32) -> Result<(), Error> {
        let added = self.counted.add("add permits to semaphore", permits.into());
        added.await
    }

    /// Acquires a permit, and waits without a limit.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`PermitExpirableSemaphore`].
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`].
    pub async fn acquire(&self) -> Result<LeasedPermit, Error> {
        self.acquire_with(PermitOptions::new()).await
    }

    /// Acquires this many permits at once, all or none, and waits without a limit. The permits are
    /// renewed and released together; if one is lost, the guard is lost.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`PermitExpirableSemaphore`]. The server does work for each permit.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`].
    pub async fn acquire_many(&self, permits: u32) -> Result<LeasedPermit, Error> {
        let options = PermitOptions::new().permits(permits);
        self.acquire_with(options).await
    }

    /// Acquires permits as the options say. Each acquisition is a separate hold: permits have no
    /// re-entry.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`PermitExpirableSemaphore`]. The server does work for each permit.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`]; and after the wait, [`TimedOut`](ErrorKind::TimedOut) if
    /// there were too few permits, [`Contended`](ErrorKind::Contended) instead, for a wait of zero,
    /// [`Unavailable`](ErrorKind::Unavailable) if Redis did not answer.
    pub async fn acquire_with(&self, options: PermitOptions) -> Result<LeasedPermit, Error> {
        let (engine, permits) = (&self.counted.engine, options.permits);
        let name = self.counted.taking(ACQUIRE, permits, MOST_AT_ONCE)?;
        let wire = PermitsWire::new(name.clone(), permits, self.counted.limit()?);
        let terms = options.terms_of(engine, &wire)?;
        let wire = Arc::new(wire);
        let recipe: Arc<dyn Recipe> = Arc::clone(&wire) as _;
        let guard = engine.lock(recipe, terms, options.params(engine)).await;
        let guard = guard.map_err(Counted::acquiring)?;
        Ok(LeasedPermit::new(guard, &wire))
    }

    /// Acquires a permit if one is free at this moment.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`], and [`Unavailable`](ErrorKind::Unavailable) if Redis does not answer
    /// in time.
    pub async fn try_acquire(&self) -> Result<Option<LeasedPermit>, Error> {
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
    /// See [`PermitExpirableSemaphore`], and [`Unavailable`](ErrorKind::Unavailable) if Redis does
    /// not answer in time. Too few permits are not an error: the call returns `None`.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<LeasedPermit>, Error> {
        let options = PermitOptions::new().permits(permits).wait(Duration::ZERO);
        unless_contended(self.acquire_with(options).await)
    }

    /// Releases the permit with this id, whichever client acquired it.
    ///
    /// The guard of this permit is lost at its next renewal.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The permit may or may not be released.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](ErrorKind::NotOwner) if there is no such permit, or its lease is over;
    /// [`BadInput`](ErrorKind::BadInput) for an invalid id;
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not answer in time.
    pub async fn release(&self, id: &str) -> Result<(), Error> {
        if self.try_release(id).await? {
            return Ok(());
        }
        let error = Error::new(ErrorKind::NotOwner, "release permit of semaphore")
            .detail(format!("there is no permit {id}"));
        Err(error.named(self.counted.name()?.as_arc()))
    }

    /// Releases the permit with this id, and returns whether there was such a permit.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The permit may or may not be released.
    ///
    /// # Errors
    ///
    /// [`BadInput`](ErrorKind::BadInput) for an invalid id;
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not answer in time.
    pub async fn try_release(&self, id: &str) -> Result<bool, Error> {
        const ACTION: &str = "release permit of semaphore";
        self.check_id(ACTION, id)?;
        let released = self.counted.operate(ACTION, |name, operation| {
            wire(name).release_id(operation, id)
        });
        Ok(released.await? == 1)
    }

    /// Sets the lease of the permit with this id from now on, also to a shorter one, and returns
    /// whether there is such a permit.
    ///
    /// The guard of this permit continues to renew it with its own lease, and does not know about a
    /// shorter lease.
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
    /// See [`PermitExpirableSemaphore`]; [`Unavailable`](ErrorKind::Unavailable) if the command was
    /// not sent, [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if it was sent and the reply was
    /// lost: the command is not repeated, since another lease may have been set by then;
    /// [`BadInput`](ErrorKind::BadInput) for an invalid id, or an invalid lease.
    pub async fn update_lease(&self, id: &str, lease: Duration) -> Result<bool, Error> {
        const ACTION: &str = "update the lease of a permit of semaphore";
        self.check_id(ACTION, id)?;
        let wire = wire(self.counted.name()?);
        check_lease_of(CHECK, &wire, lease)?;
        let call = wire.update_lease(id, lease);
        let (engine, once) = (&self.counted.engine, Repeat::UnlessRun);
        let updated = engine.send(ACTION, wire.name(), call, once, number).await?;
        Ok(updated == 1)
    }

    fn check_id(&self, action: &'static str, id: &str) -> Result<(), Error> {
        let name = self.counted.name()?;
        if id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(());
        }
        let error = Error::bad_input(action, "a permit's id has 32 hexadecimal digits");
        Err(error.named(name.as_arc()))
    }

    /// Returns the number of free permits; negative if more are held than the total number.
    ///
    /// # Round trips
    ///
    /// One. The call also frees permits whose leases are over.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`], and [`Unavailable`](ErrorKind::Unavailable) if Redis does
    /// not answer in time.
    pub async fn available_permits(&self) -> Result<i64, Error> {
        Ok(self.look().await?.0)
    }

    /// Returns the total number of permits, including held ones.
    ///
    /// # Round trips
    ///
    /// One. The call also frees permits whose leases are over.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`], and [`Unavailable`](ErrorKind::Unavailable) if Redis does
    /// not answer in time.
    pub async fn permits(&self) -> Result<i64, Error> {
        let (free, held) = self.look().await?;
        Ok(free.saturating_add(held))
    }

    /// Returns the number of held permits.
    ///
    /// # Round trips
    ///
    /// One. The call also frees permits whose leases are over.
    ///
    /// # Errors
    ///
    /// See [`PermitExpirableSemaphore`], and [`Unavailable`](ErrorKind::Unavailable) if Redis does
    /// not answer in time.
    pub async fn acquired(&self) -> Result<i64, Error> {
        Ok(self.look().await?.1)
    }

    async fn look(&self) -> Result<(i64, i64), Error> {
        const ACTION: &str = "look at semaphore";
        let name = self.counted.name()?;
        let call = wire(name).inspect();
        let pair = |items: &[Reply]| match items {
            [Reply::Int(free), Reply::Int(held)] => Some((*free, *held)),
            _ => None,
        };
        let read = |reply: Reply| reply.read(pair);
        self.counted.engine.ask(ACTION, name, call, read).await
    }
}

/// The recipe for calls that take no permit.
fn wire(name: &LockName) -> PermitsWire {
    PermitsWire::new(name.clone(), 1, 0)
}
