//! The semaphore whose permits have no lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::counted::{Counted, MOST_PERMITS};
use super::options::unless_contended;
use super::permit_options::PermitOptions;
use crate::engine::{AcquireParams, Engine, HoldGuard, Terms, Unlocked};
use crate::error::Error;
use crate::wire::{self, Recipe, SemaphoreWire};

/// A number of permits, shared with Redisson's `RSemaphore` of the same name.
///
/// **A crash keeps the permits.** The format has no lease: a permit that was taken by a process that
/// then died is taken for ever, until somebody [adds](Self::add_permits) one. Use a
/// [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore), whose permits come back by
/// themselves, unless you share the semaphore with a Redisson `RSemaphore`, or permits are to
/// outlive their process.
///
/// The permits must be [set](Self::try_set_permits) once before the first can be acquired, or the
/// handle has a [limit](Self::limit). They are no property of a client: nobody checks that as many are released as were acquired
/// ([`release`](Self::release) adds permits that nobody had), and deleting the key forgets them.
///
/// Where no number was set, the time-out of an acquisition says so. One without a bound goes on waiting,
/// as Redisson's does, and says it once in the log: WARN, target `redlock_rt::semaphore`, field `name`.
///
/// # Round trips
///
/// One to acquire free permits, one to release them. A process that waits sends at most three tries
/// and one SUBSCRIBE; a release of some permits wakes as many waiters of it as have permits, one
/// after the other, and one of them in each other process.
///
/// # Fairness
///
/// First come, first served among the tasks of one client, however many permits each asks for: one
/// that asks for many holds up those behind it. Among clients none: whoever comes first takes what
/// is free, and who asks for many may wait for ever behind those who ask for few.
///
/// # Cancel safety
///
/// A dropped [`acquire`](Self::acquire) leaves nothing taken: if a try was under way, the client
/// waits for its outcome and gives the permits back. So does a lost reply: no permit is lost or made
/// by it, as long as the client lives.
///
/// # Errors
///
/// Those of [`RLock`](crate::RLock): [`BadInput`](crate::ErrorKind::BadInput) also for no permits or
/// more than 2147483647, [`WrongType`](crate::ErrorKind::WrongType) where the key holds no number.
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
#[derive(Clone)]
pub struct Semaphore {
    counted: Counted,
}

const ACQUIRE: &str = "acquire permits of semaphore";

fn acquiring(error: Error) -> Error {
    Counted::of_permits(ACQUIRE, error)
}

impl Semaphore {
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        Self {
            counted: Counted::new(engine, name),
        }
    }

    /// Sets how many permits there are where an acquisition with this handle finds that none were
    /// [set](Self::try_set_permits); a semaphore that exists keeps its own number. Costs no call.
    ///
    /// All handles of a name should have the same limit: whoever waits behind one without it waits
    /// until somebody sets the number. A limit of zero, or of more than 2147483647, is refused by the
    /// acquisition.
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
    pub fn limit(self, permits: u32) -> Self {
        Self {
            counted: self.counted.limited(permits),
        }
    }

    /// Sets the number of permits if none is set; answers whether it was set. Zero makes a semaphore
    /// that nobody can pass yet.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// It may or may not be set.
    ///
    /// # Errors
    ///
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where Redis does not answer in time.
    /// Repeats after lost replies are told apart: the answer is that of the first.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        self.counted.try_set_permits(permits).await
    }

    /// Acquires a permit, waiting as long as it takes.
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

    /// Acquires so many permits at once, all or none, waiting as long as it takes.
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

    /// Acquires permits as the options say: how many, and how long to wait. A lease means nothing
    /// here and is refused.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Semaphore`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; and when the wait is over, [`TimedOut`](crate::ErrorKind::TimedOut) where
    /// there were too few permits, [`Contended`](crate::ErrorKind::Contended) likewise for a wait of
    /// zero, [`Unavailable`](crate::ErrorKind::Unavailable) where Redis did not answer.
    pub async fn acquire_with(&self, options: PermitOptions) -> Result<SemaphorePermit, Error> {
        let (recipe, terms) = self.prepare(&options)?;
        let params = AcquireParams {
            wait: options.waiting(),
            ..AcquireParams::default()
        };
        let inner = self.counted.engine.lock(&recipe, terms, params).await;
        Ok(SemaphorePermit {
            inner: inner.map_err(acquiring)?,
            permits: options.count(),
        })
    }

    /// Acquires a permit if one is free at this moment.
    ///
    /// # Fairness
    ///
    /// None: it goes past those who wait.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_many`](Self::try_acquire_many).
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires so many permits, all or none, if they are free at this moment.
    ///
    /// # Fairness
    ///
    /// None: it goes past those who wait.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`], and [`Unavailable`](crate::ErrorKind::Unavailable) where Redis does not
    /// answer in time. Too few permits are no error but `None`.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>, Error> {
        let options = PermitOptions::new().permits(permits).wait(Duration::ZERO);
        unless_contended(self.acquire_with(options).await)
    }

    fn prepare(&self, options: &PermitOptions) -> Result<(Arc<dyn Recipe>, Terms), Error> {
        let permits = options.count();
        let name = self.counted.taking(ACQUIRE, permits, MOST_PERMITS)?;
        let limit = self.counted.limit(ACQUIRE)?;
        let terms = options.without_lease();
        let terms = terms.map_err(|error| error.named(name.as_arc()))?;
        let recipe = SemaphoreWire::new(name.clone(), permits, limit);
        Ok((Arc::new(recipe), terms))
    }

    /// Adds so many permits, whoever had them: for those whose guard was
    /// [forgotten](SemaphorePermit::forget), or was of a process that died. A semaphore that does not
    /// exist is made.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// They may or may not be added.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]; [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where Redis does not
    /// answer in time. A repeat after a lost reply adds nothing.
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        const ACTION: &str = "release permits of semaphore";
        self.counted.taking(ACTION, permits, MOST_PERMITS)?;
        self.counted.add(ACTION, permits.into()).await
    }

    /// Makes the semaphore larger by so many permits, or smaller by a negative number; then there
    /// may be fewer than none until enough were released.
    ///
    /// # Round trips, cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn add_permits(&self, permits: i32) -> Result<(), Error> {
        let added = self.counted.add("add permits to semaphore", permits.into());
        added.await
    }

    /// Takes all free permits, without a guard; answers how many. Where there were fewer than none,
    /// the negative number is answered, and there are none after it.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// They may or may not be taken.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn drain(&self) -> Result<i64, Error> {
        let drained = self.counted.operate("drain semaphore", wire::drain_permits);
        drained.await
    }

    /// Returns how many permits are free; zero where none were set. It may be negative.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`], and [`Unavailable`](crate::ErrorKind::Unavailable) where Redis does not
    /// answer in time.
    pub async fn available_permits(&self) -> Result<i64, Error> {
        const ACTION: &str = "look at semaphore";
        let name = self.counted.name()?;
        let call = wire::available_permits(name);
        let reply = self.counted.engine.ask(ACTION, name, call).await?;
        self.counted.number(ACTION, reply)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.counted, f)
    }
}

/// Permits of a [`Semaphore`], given back when it is dropped.
///
/// [`release`](Self::release) is the normal road. Dropping the guard queues the release, which never
/// blocks. A process that dies, or a client that is shut down without a release
/// ([`Shutdown::Abandon`](crate::Shutdown::Abandon)), keeps the permits for ever; so may a process
/// that ends with `main` without a shut-down: see
/// [the end of a program](crate#the-end-of-a-program).
#[must_use = "dropping the guard releases the permits"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit {
    inner: HoldGuard,
    permits: u32,
}

impl SemaphorePermit {
    /// Gives the permits back, and waits until Redis has said so.
    ///
    /// A lost reply is no error: the release is repeated, and nothing is given back twice.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where Redis cannot be reached, and
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where it does not answer; the release
    /// then goes on in the background. [`Unlocked::AlreadyExpired`] where the semaphore was deleted
    /// meanwhile: it is not made anew.
    pub async fn release(self) -> Result<Unlocked, Error> {
        let released = self.inner.unlock().await;
        released.map_err(|error| error.trying("release permits of semaphore"))
    }

    /// Ends the guard and keeps the permits taken: somebody else is to
    /// [release](Semaphore::release) them. Never blocks.
    pub fn forget(self) {
        self.inner.forget();
    }

    /// Returns how many permits it has.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Returns the name of the semaphore as it stands in Redis.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.hold.recipe.name().as_str()
    }
}

impl fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit")
            .field("name", &self.name())
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}
