//! A job that is done once for each of its nominal times.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::guard::LockGuard;
use super::kind::sealed::Sealed;
use super::options::LockOptions;
use crate::clock;
use crate::engine::{ClientEngine, Handle, LostReason, Unlocked};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, HoldId, LockName};
use crate::wire::{Found, Malformed, Named, OnceTerms, OnceWire, Recipe};

const BEGIN: &str = "begin";
const MARK: &str = "mark as done";

/// The kind of [`FireGuard`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fires;

impl Sealed for Fires {}

/// A job that several instances start at its nominal times, and that is done once for each of them.
///
/// Each instance makes this handle with the *nominal* time of the fire, as the schedule gives it, and calls
/// [`start`](Self::start). One of them gets a guard and runs the job; the others wait until it is done. The time is
/// a part of the name. So the job does not run twice if clocks differ by minutes, the job is short, or an instance
/// is late, as long as Redis [keeps](Self::keep) the mark.
///
/// # What is promised
///
/// * A fire is marked as done once. Later callers get [`Fire::Done`].
/// * Guards that are valid never overlap: the guard is that of a [`FencedLock`](crate::FencedLock), renewed
///   while it lives.
/// * A job may *begin* again. If it was dropped, has failed, or its process died, the fire stays open, and a waiting
///   instance begins it again. So the job must tolerate that, or compare the [token](FireGuard::token). A process
///   that dies after its work and before the mark has done the work.
/// * A fire is lost if no instance waits for it or comes later, or if all [`attempts`](Self::attempts) have failed.
///   It is also lost if Redis loses its data; a fire may then also be done again.
///
/// # Round trips
///
/// One to begin, one to mark it, and one for a fire that is done. Waiting costs as much as for a
/// [lock](crate::Lock::lock).
///
/// # Fairness
///
/// That of a [lock](crate::Lock::lock).
///
/// # Cancel safety
///
/// Nothing is left: a dropped [`start`](Self::start) gives back what it may have begun, which does not count as an
/// attempt. A begin whose reply was lost counts if Redis cannot be reached before its lease is over.
///
/// # Errors
///
/// Those of a [lock](crate::Lock::lock), [`BadInput`](crate::ErrorKind::BadInput) also for a time before 1970,
/// for attempts of zero, and if `keep` is shorter than the lease;
/// [`UpgradeWouldDeadlock`](crate::ErrorKind::UpgradeWouldDeadlock) inside a body that
/// [runs](LockGuard::run) under the same fire.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::{Duration, UNIX_EPOCH};
/// use redlock_rt::{Client, Fire};
///
/// let client = Client::embedded();
/// // 2026-11-28 03:00:00 UTC, in each instance, whatever its clock says.
/// let fire_time = UNIX_EPOCH + Duration::from_secs(1_795_834_800);
/// let report = client.once("nightly-report", fire_time).attempts(3);
///
/// match report.start().await? {
///     Fire::Run(guard) => {
///         guard.run(async { /* the report */ }).await?;
///         guard.done().await?;
///     }
///     Fire::Done(at) => println!("done at {at:?}"),
///     Fire::Running(by) => println!("{by} runs it"),
///     Fire::Failed => println!("three attempts have failed"),
///     _ => {}
/// }
/// assert!(matches!(report.start().await?, Fire::Done(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start` is awaited"]
pub struct Once {
    engine: Handle,
    name: Result<LockName, BadName>,
    options: LockOptions,
    pub(super) terms: OnceTerms,
}

/// The outcome of a call for a fire.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fire {
    /// The caller runs it. If the guard ends without [`done`](FireGuard::done), the fire stays open.
    Run(FireGuard),
    /// Another caller runs it: this owner ran it when Redis was last asked during the wait.
    Running(HoldId),
    /// It was done at this time, by the clock of Redis.
    Done(SystemTime),
    /// All attempts have failed.
    Failed,
}

/// The guard of a fire that runs. Dropping it leaves the fire open: other callers may begin it again.
pub type FireGuard = LockGuard<Fires>;

impl Once {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str, fire: SystemTime) -> Self {
        let since = fire
            .duration_since(UNIX_EPOCH)
            .map(|since| since.as_millis());
        let since = since.map_err(|_| BadName::new(name, "the fire is before 1970"));
        Self::named(engine, "once", name, |name| {
            since.map(|millis| format!("{name}:{millis}"))
        })
    }

    /// `whole`: makes the whole name from the given one, after `sort`.
    pub(super) fn named(
        engine: &Arc<ClientEngine>,
        sort: &str,
        name: &str,
        whole: impl FnOnce(String) -> Result<String, BadName>,
    ) -> Self {
        // Checked alone: with its prefix a blank name would be valid.
        let whole = LockName::new(None, name).and_then(|_| whole(format!("{sort}:{name}")));
        Self {
            engine: Handle::new(engine),
            name: whole.and_then(|whole| engine.name(Named::Once, &whole)),
            options: LockOptions::new(),
            terms: OnceTerms {
                keep: Duration::from_secs(24 * 60 * 60),
                attempts: None,
                request: String::new(),
            },
        }
    }

    /// Sets how long Redis remembers a fire after it was done, and its attempts after the last one. Choose a time
    /// that is longer than the delay of an instance, the difference between clocks, and a run. (A run that takes
    /// longer counts as the first attempt again.) It may not be shorter than the lease. Defaults to 24 h.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.terms.keep = keep;
        self
    }

    /// Sets how often the job may be begun, at least once. After that the result is [`Fire::Failed`], until `keep`
    /// is over or a handle with more attempts comes. Defaults to `None`: no limit.
    pub fn attempts(mut self, attempts: impl Into<Option<u32>>) -> Self {
        self.terms.attempts = attempts.into();
        self
    }

    /// Sets the lease: the time after which others begin the job of a crashed process again. Defaults to the
    /// client's lease. The guard renews it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options = self.options.lease(lease);
        self
    }

    /// Sets how long to wait while another instance runs the job; zero asks once. Defaults to `None`: until it is
    /// done or has failed. If its instance dies, a waiting instance begins the job again.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.options = self.options.wait(wait);
        self
    }

    /// Sets all options of the lock, and replaces those of [`lease`](Self::lease) and [`wait`](Self::wait).
    /// `start` refuses a [`min_hold`](LockOptions::min_hold): the mark is kept instead. An
    /// [`Owner`](crate::Owner) does not re-enter its fire.
    pub fn options(self, options: LockOptions) -> Self {
        Self { options, ..self }
    }

    /// Begins the job, or returns its state. Waits while another instance runs it.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Once`].
    ///
    /// # Errors
    ///
    /// See [`Once`]. That another instance runs it, or has done it, is no error.
    pub async fn start(&self) -> Result<Fire, Error> {
        let found = match self.begin().await? {
            Ok(guard) => return Ok(Fire::Run(guard)),
            Err(found) => found,
        };
        let known = match &found {
            // Some systems cannot represent a time as far away as a server may return.
            Found::Done { at, .. } => UNIX_EPOCH.checked_add(*at).map(Fire::Done),
            Found::Running(by) => Some(Fire::Running(by.clone())),
            Found::Failed => self.terms.attempts.map(|_| Fire::Failed),
            Found::OtherRequest => None,
        };
        known.ok_or_else(|| self.unexpected(found))
    }

    /// For replies that no script gives to this handle.
    pub(super) fn unexpected(&self, found: Found) -> Error {
        let error = Error::new(ErrorKind::Protocol, BEGIN).caused_by(Arc::new(Malformed(found)));
        match &self.name {
            Ok(name) => error.named(name.as_arc()),
            Err(_) => error,
        }
    }

    /// The guard, or what was found instead.
    pub(super) async fn begin(&self) -> Result<Result<FireGuard, Found>, Error> {
        match self.ask(&self.options).await {
            // Other callers of this client have asked instead, and only they have the reply.
            Err(error) if error.is_timed_out() => {
                self.ask(&self.options.clone().wait(Duration::ZERO)).await
            }
            outcome => outcome,
        }
    }

    async fn ask(&self, options: &LockOptions) -> Result<Result<FireGuard, Found>, Error> {
        let wire = Arc::new(OnceWire::new(self.name.clone()?, self.terms.clone()));
        options.without_min_hold()?;
        let terms = options.terms_of(&self.engine, &*wire, None)?;
        let params = options.params(&self.engine, None);
        let recipe: Arc<dyn Recipe> = Arc::clone(&wire) as _;
        match self.engine.lock(recipe, terms, params).await {
            Ok(guard) => {
                wire.mark.begin();
                Ok(Ok(LockGuard::new(guard)))
            }
            Err(error) if error.is_contended() => match wire.mark.found() {
                Some(Found::OtherRequest) => Err(error.known_as(ErrorKind::OtherRequest)),
                found => found.map(Err).ok_or(error),
            },
            Err(error) if error.is_upgrade_would_deadlock() => {
                Err(error.saying("run by the caller itself"))
            }
            Err(error) => Err(error),
        }
    }
}

impl FireGuard {
    /// Marks the fire as done, and ends the guard.
    ///
    /// Redis marks the fire only while it has the hold of this guard. If other guards [share](LockGuard::reenter)
    /// the hold, the fire is marked when the last of them ends.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, the call continues in the background.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the hold was lost (`ShutDown` if by the client's shut-down):
    /// another instance may have begun the job. A lost reply is not an error: the call is repeated, and
    /// finds its own mark. [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if Redis does not
    /// answer within the [response time-out](crate::ClientBuilder::response_timeout); the call then
    /// continues in the background. [`Unavailable`](crate::ErrorKind::Unavailable) and
    /// [`Denied`](crate::ErrorKind::Denied) as for [`unlock`](LockGuard::unlock).
    pub async fn done(self) -> Result<(), Error> {
        self.done_with(&[]).await
    }

    pub(super) async fn done_with(self, result: &[u8]) -> Result<(), Error> {
        self.will_be_done(result);
        let hold = Arc::clone(&self.inner.hold);
        let ended = self.inner.unlock().await;
        if ended.map_err(|error| error.trying(MARK))? == Unlocked::AlreadyExpired {
            let known = hold.lost_reason(clock::now());
            return Err(hold.lost_error(MARK, known.unwrap_or(LostReason::Deleted)));
        }
        Ok(())
    }

    /// The end of the last guard marks the fire.
    pub(crate) fn will_be_done(&self, result: &[u8]) {
        if let Some(mark) = self.inner.hold.recipe.mark() {
            mark.set(result);
        }
    }

    /// Returns the fencing token: greater than that of each earlier attempt at this fire, for a store that
    /// compares. See [`FencedLock`](crate::FencedLock).
    #[must_use]
    pub fn token(&self) -> u64 {
        self.inner.token()
    }
}
