//! The options of an acquisition, checked before anything is sent.

use std::time::Duration;

use crate::clock;
use crate::engine::{
    AcquireParams, Backoff, ClientEngine, Fsync, Hold, HoldGuard, Owner, ReplicaAck, Terms, margin,
};
use crate::error::{Error, ErrorKind};
use crate::meter::Meter;
use crate::wire::{LONGEST_SPAN, Recipe};

/// How the lease is renewed while a guard lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// Every third of the lease.
    #[default]
    Third,
    /// At this interval; [`LockOptions::renew`] says how long it may be.
    Every(Duration),
    /// Never: the lock ends with its lease.
    Never,
}

impl From<bool> for Renew {
    fn from(renew: bool) -> Self {
        if renew { Self::Third } else { Self::Never }
    }
}

impl From<Duration> for Renew {
    fn from(every: Duration) -> Self {
        Self::Every(every)
    }
}

/// The options of an acquisition: how long to wait, how long to hold, and the owner.
///
/// `lease`, `renew` and `max_hold` are independent:
///
/// * The lease is the time until the lock of a crashed process is free.
/// * Renewal keeps the lock of a live holder.
/// * `max_hold` ends the renewal of a holder that is stuck.
///
/// (Redisson combines the first two: an explicit lease turns renewal off.)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_rt::LockOptions;
///
/// let options = LockOptions::new()
///     .wait(Duration::from_secs(1))
///     .lease(Duration::from_secs(10))
///     .max_hold(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Default)]
pub struct LockOptions {
    pub(super) wait: Option<Duration>,
    lease: Option<Duration>,
    /// `None`: not set.
    renew: Option<Renew>,
    max_hold: Option<Duration>,
    pub(super) owner: Option<Owner>,
    min_hold: Option<Duration>,
    ack: Option<ReplicaAck>,
    fsync: Option<Fsync>,
    outlasts_denial: bool,
    pub(super) meter: Meter,
    pub(super) for_body: bool,
}

const CHECK: &str = "check lock options";
const SHORTEST_LEASE: Duration = Duration::from_millis(1);

impl LockOptions {
    /// Returns the default options: an unlimited wait, the client's lease, and renewal every third
    /// of the lease.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            wait: None,
            lease: None,
            renew: None,
            max_hold: None,
            owner: None,
            min_hold: None,
            ack: None,
            fsync: None,
            outlasts_denial: false,
            meter: Meter::NONE,
            for_body: false,
        }
    }

    /// Sets how long to wait; zero tries once. The wait limits everything: queueing, connecting,
    /// subscribing and trying. Defaults to `None`: no limit.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Sets the lease: the time until the lock of a crashed holder is free, at least 1 ms. Defaults
    /// to the client's lease, which defaults to 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how the lease is renewed while the guard exists: `true`, `false`, or the interval. The interval
    /// must be shorter than what the guard counts on: the lease without 1 % and 2 ms (of a lease below 20 ms,
    /// a tenth). Defaults to every third of the lease.
    #[must_use]
    pub fn renew(mut self, renew: impl Into<Renew>) -> Self {
        self.renew = Some(renew.into());
        self
    }

    /// Sets the longest hold: renewal ends then, and the guard is lost. It may not be shorter than
    /// the lease. Defaults to `None`: as long as the guard exists.
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = max_hold.into();
        self
    }

    /// Keeps the lock taken for at least this long after the acquisition, even if the guard is dropped
    /// sooner. So a periodic job does not run twice when another machine's clock is late. Defaults to `None`.
    /// (ShedLock calls this `lockAtLeastFor`.)
    ///
    /// Until then no owner can acquire the lock, including the former owner.
    /// [`unlock`](crate::LockGuard::unlock) returns [`Unlocked::Kept`](crate::Unlocked::Kept),
    /// [`is_locked`](crate::Lock::is_locked) returns `true`, and [`holder`](crate::Lock::holder)
    /// returns the owner of the ended hold. [`force_unlock`](crate::Lock::force_unlock) frees the
    /// lock.
    ///
    /// Redis measures the time, so the process may end meanwhile. After a *crash* under the lock, only the
    /// lease applies. A write lock that ends while the same owner also reads (a downgrade) does not stay
    /// locked: it becomes a read lock at once, and is free when that ends. The same happens if Redis still
    /// has a read of the same owner that was cancelled a moment before. This option is only for exclusive
    /// locks on one server each.
    #[must_use]
    pub fn min_hold(mut self, min_hold: impl Into<Option<Duration>>) -> Self {
        self.min_hold = min_hold.into();
        self
    }

    /// Sets the owner, which re-enters its own holds. Defaults to a new owner.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Sets how many replicas must have the lock before the guard is returned. Defaults to that of
    /// the [client](crate::ClientBuilder::replica_ack).
    ///
    /// If fewer have it in time, the lock is released (of a re-entered lock this hold), and the error is
    /// [`NotReplicated`](ErrorKind::NotReplicated). The time is limited by the wait and by
    /// [`replica_timeout`](crate::ClientBuilder::replica_timeout), and counts against the lease.
    /// [`reenter`](crate::LockGuard::reenter) and conversions use the setting of the client. A
    /// [`RedLock`](crate::RedLock) refuses this option, and waits for no replicas: each of its servers is one
    /// vote, and the others remember what one of them forgets.
    #[must_use]
    pub fn replica_ack(mut self, ack: ReplicaAck) -> Self {
        self.ack = Some(ack);
        self
    }

    /// Sets which servers must have the lock on disk before the guard is returned, by WAITAOF instead
    /// of WAIT. Defaults to that of the [client](crate::ClientBuilder::fsync).
    ///
    /// If it is not there in time, the error is [`NotReplicated`](ErrorKind::NotReplicated) as for
    /// [`replica_ack`](Self::replica_ack). The error is [`Misconfigured`](ErrorKind::Misconfigured) for a
    /// server before Redis 7.2, and for [`Fsync::All`] if the master has no append-only file. A replica
    /// without one never acknowledges.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = Some(fsync);
        self
    }

    /// Sets whether the wait continues while a right or the password is missing, as it does through an
    /// outage. Use it if rights and passwords are changed separately from the service.
    /// [`Denied`](ErrorKind::Denied) then comes only at the end of the wait. Waiters behind it in the same
    /// client wait as well. Defaults to `false`. A [`RedLock`](crate::RedLock) and tries (a wait of zero) do
    /// not use it.
    #[must_use]
    pub fn outlast_denial(mut self, outlasts: bool) -> Self {
        self.outlasts_denial = outlasts;
        self
    }

    /// Sets the label under which the lock is counted (feature `metrics`), the same for all locks of one use.
    /// Do not use names that contain values, since each label is a time series. After 200 labels of a process
    /// the others are `other`. Defaults to the kind of the lock, and under the attribute to the name of the
    /// function.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.meter = Meter::labelled(label);
        self
    }

    /// The guard is for one body.
    pub(crate) fn for_body(self) -> Self {
        Self {
            for_body: true,
            ..self
        }
    }

    /// The parameters of an acquisition.
    pub(super) fn params<'a>(
        &'a self,
        engine: &ClientEngine,
        backoff: Option<&'a Backoff>,
    ) -> AcquireParams<'a> {
        AcquireParams {
            wait: self.wait,
            owner: self.owner.as_ref(),
            backoff,
            outlasts_denial: self.outlasts_denial,
            ack: engine.ack(self.ack, self.fsync),
            steal: None,
            for_body: self.for_body,
        }
    }

    /// The error for a lock on several servers.
    pub(super) fn without_replica_ack(&self) -> Result<(), Error> {
        let none = matches!(self.ack, None | Some(ReplicaAck::None));
        match none && matches!(self.fsync, None | Some(Fsync::None)) {
            true => Ok(()),
            false => Err(Error::bad_input(
                CHECK,
                "replica_ack and fsync are for locks on one server each; a RedLock asks several",
            )),
        }
    }

    /// Applies the `min_hold` to an acquired lock.
    pub(super) fn set_min_hold(&self, hold: &Hold) {
        if let Some(min_hold) = self.min_hold {
            let until = clock::after(clock::now(), min_hold);
            hold.lease().set_min_hold(until);
        }
    }

    /// The error for a kind without a `min_hold`.
    pub(super) fn without_min_hold(&self) -> Result<(), Error> {
        match self.min_hold {
            Some(_) => Err(Error::bad_input(
                CHECK,
                "min_hold is for exclusive locks on one server each",
            )),
            None => Ok(()),
        }
    }

    /// The same options without an owner and a `min_hold`, which permits do not have.
    pub(super) fn of_permits(mut self) -> Self {
        self.owner = None;
        self.min_hold = None;
        self
    }

    /// Whether an option is set that needs a lease.
    pub(super) fn name_a_lease(&self) -> bool {
        self.lease.is_some() || self.renew.is_some() || self.max_hold.is_some()
    }

    /// Checks the options of a lock, and fills in the client's defaults.
    pub(super) fn terms_of(
        &self,
        engine: &ClientEngine,
        recipe: &dyn Recipe,
        backoff: Option<&Backoff>,
    ) -> Result<Terms, Error> {
        let check = || {
            let terms = self.terms(engine)?;
            if !recipe.profile().exclusive {
                self.without_min_hold()?;
            }
            let backoff_flaw = || backoff.and_then(Backoff::flaw);
            match recipe.flaw(terms.lease).or_else(backoff_flaw) {
                Some(flaw) => Err(Error::bad_input(CHECK, flaw)),
                None => Ok(terms),
            }
        };
        check().map_err(|error| error.named(recipe.name().as_arc()))
    }

    /// Checks the options but for the kind of lock, and fills in the client's defaults.
    pub(super) fn terms(&self, engine: &ClientEngine) -> Result<Terms, Error> {
        let refuse = |why: &'static str| Err(Error::bad_input(CHECK, why));
        let lease = self.lease.unwrap_or(engine.config.lease);
        check_lease(CHECK, lease)?;
        let renew = match self.renew.unwrap_or_default() {
            // Random, so that locks taken together are not all renewed together.
            Renew::Third => Some(clock::shortened(lease / 3)),
            Renew::Every(every) if every < SHORTEST_LEASE => {
                return refuse("renew is shorter than a millisecond");
            }
            Renew::Every(every) if every >= lease - margin(lease) => {
                return refuse("renew is not shorter than the lease without its margin");
            }
            Renew::Every(every) => Some(every),
            Renew::Never => None,
        };
        match (self.max_hold, self.min_hold) {
            (_, Some(min_hold)) if min_hold > LONGEST_SPAN => {
                refuse("min_hold is longer than redis can keep")
            }
            (Some(max_hold), Some(min_hold)) if max_hold < min_hold => {
                refuse("max_hold is shorter than min_hold")
            }
            (Some(max_hold), _) if max_hold < lease => refuse("max_hold is shorter than the lease"),
            (max_hold, _) => Ok(Terms {
                lease,
                renew,
                max_hold,
                meter: self.meter,
            }),
        }
    }
}

/// The result of a try, where contention is not an error.
pub(super) fn unless_contended<G>(outcome: Result<G, Error>) -> Result<Option<G>, Error> {
    match outcome {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        Err(error) => Err(error),
    }
}

/// The terms of a re-entry beside this guard: the client's terms, and no longer a hold than this guard has.
pub(super) fn again(guard: &HoldGuard) -> Result<Terms, Error> {
    let terms = LockOptions::new().terms(&guard.hold.engine)?;
    let own = guard.terms(clock::now());
    Ok(terms.within(own.and_then(|own| own.max_hold)))
}

/// As [`check_lease`], for a lock of this kind.
pub(super) fn check_lease_of(
    action: &'static str,
    recipe: &dyn Recipe,
    lease: Duration,
) -> Result<(), Error> {
    let flaw = |why| Err(Error::bad_input(action, why));
    let checked = check_lease(action, lease).and_then(|()| recipe.flaw(lease).map_or(Ok(()), flaw));
    checked.map_err(|error| error.named(recipe.name().as_arc()))
}

/// Checks that Redis can store the lease that `action` asks for.
pub(crate) fn check_lease(action: &'static str, lease: Duration) -> Result<(), Error> {
    let refuse = |why: &'static str| Err(Error::bad_input(action, why));
    match lease {
        _ if lease < SHORTEST_LEASE => refuse("the lease is shorter than a millisecond"),
        _ if lease > LONGEST_SPAN => refuse("the lease is longer than redis can keep"),
        _ => Ok(()),
    }
}
