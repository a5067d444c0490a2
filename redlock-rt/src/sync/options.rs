//! How to acquire a lock, checked before anything is sent.

use std::time::Duration;

use crate::clock;
use crate::engine::{Backoff, Engine, Hold, Owner, Terms};
use crate::error::{Error, ErrorKind};
use crate::wire::{LONGEST_SPAN, Recipe};

/// How the lease is renewed while a guard lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// Every third of the lease.
    #[default]
    Third,
    /// This often; shorter than the lease.
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

/// How to acquire a lock: how long to wait, how long to hold, as whom.
///
/// `lease`, `renew` and `max_hold` are three independent things. The lease is how long the lock
/// outlives a crash; renewal keeps a living holder's lock; `max_hold` ends the renewal of a holder
/// that is stuck. (Redisson ties the first two: there, naming a lease ends the renewal.)
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
    wait: Option<Duration>,
    lease: Option<Duration>,
    /// `None`: not set.
    renew: Option<Renew>,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    owner: Option<Owner>,
}

const CHECK: &str = "check lock options";
const SHORTEST_LEASE: Duration = Duration::from_millis(1);

impl LockOptions {
    /// Makes the default options: wait for ever, the client's lease, renewed every third of it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long to wait; zero tries once. It bounds everything: queueing, connecting,
    /// subscribing and trying. Defaults to `None`: as long as it takes.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Sets the lease: how long the lock outlives a crash of its holder, from 1 ms. Defaults to
    /// the client's, which defaults to 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how the lease is renewed while the guard lives: `true`, `false`, or how often, which
    /// must be shorter than the lease. Defaults to every third of the lease.
    #[must_use]
    pub fn renew(mut self, renew: impl Into<Renew>) -> Self {
        self.renew = Some(renew.into());
        self
    }

    /// Sets the longest time to hold: renewal ends with it, and the guard is then lost. It may not
    /// be shorter than the lease. Defaults to `None`: as long as the guard lives.
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = max_hold.into();
        self
    }

    /// Sets the shortest time to hold, counted from the acquisition. A lock whose last guard ends
    /// before stays locked until then, so that what is to run once in a while does not run again at
    /// once, on another machine whose clock is late. Defaults to `None`. (Known as `lockAtLeastFor` from
    /// ShedLock.)
    ///
    /// Meanwhile nobody can acquire it, the former owner included:
    /// [`unlock`](crate::LockGuard::unlock) answers [`Unlocked::Kept`](crate::Unlocked::Kept),
    /// [`is_locked`](crate::Lock::is_locked) `true`, and [`holder`](crate::Lock::holder) the owner whose
    /// hold has ended. [`force_unlock`](crate::Lock::force_unlock) frees it.
    ///
    /// Redis keeps the time, so the process may end meanwhile; one that *crashes* under the lock
    /// leaves it for its lease alone. A write lock that ends beside a read lock of the same owner
    /// (a downgrade) is not kept: it is a read lock at once, and free when that ends. Only for
    /// exclusive locks on one server each.
    #[must_use]
    pub fn min_hold(mut self, min_hold: impl Into<Option<Duration>>) -> Self {
        self.min_hold = min_hold.into();
        self
    }

    /// Sets the identity to acquire as: it re-enters what it holds. Defaults to a fresh one.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    pub(super) fn waiting(&self) -> Option<Duration> {
        self.wait
    }

    /// Has a lock that was acquired last as long as it should at least.
    pub(super) fn set_min_hold(&self, hold: &Hold) {
        if let Some(min_hold) = self.min_hold {
            hold.set_min_hold(clock::after(clock::now(), min_hold));
        }
    }

    /// Of a kind that cannot be left to nobody.
    pub(super) fn without_min_hold(&self) -> Result<(), Error> {
        match self.min_hold {
            Some(_) => Err(Error::bad_input(
                CHECK,
                "min_hold is for exclusive locks on one server each",
            )),
            None => Ok(()),
        }
    }

    /// The same without what permits have not: an owner, and a shortest time to hold.
    pub(super) fn of_permits(self) -> Self {
        Self {
            owner: None,
            min_hold: None,
            ..self
        }
    }

    /// Whether they name what only a lease has.
    pub(super) fn name_a_lease(&self) -> bool {
        self.lease.is_some() || self.renew.is_some() || self.max_hold.is_some()
    }

    pub(super) fn acting_as(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Checks the options of a lock, and fills in the client's defaults.
    pub(super) fn terms_of(
        &self,
        engine: &Engine,
        recipe: &dyn Recipe,
        backoff: Option<Backoff>,
    ) -> Result<Terms, Error> {
        let check = || {
            let terms = self.terms(engine)?;
            if !recipe.profile().exclusive {
                self.without_min_hold()?;
            }
            let backoff_flaw = || backoff.and_then(|backoff| backoff.flaw());
            match recipe.flaw(terms.lease).or_else(backoff_flaw) {
                Some(flaw) => Err(Error::bad_input(CHECK, flaw)),
                None => Ok(terms),
            }
        };
        check().map_err(|error| error.named(recipe.name().as_arc()))
    }

    /// Checks the options but for the kind of lock, and fills in the client's defaults.
    pub(super) fn terms(&self, engine: &Engine) -> Result<Terms, Error> {
        let refuse = |why: &'static str| Err(Error::bad_input(CHECK, why));
        let lease = self.lease.unwrap_or_else(|| engine.lease());
        check_lease(lease)?;
        let renew = match self.renew.unwrap_or_default() {
            // Varied, so that locks taken together are not all renewed together.
            Renew::Third => Some((lease / 3).mul_f64(0.9 + 0.1 * fastrand::f64())),
            Renew::Every(every) if every < SHORTEST_LEASE => {
                return refuse("renew is shorter than a millisecond");
            }
            Renew::Every(every) if every >= lease => {
                return refuse("renew is not shorter than the lease");
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
            }),
        }
    }
}

/// Of a try: contention is no error.
pub(super) fn unless_contended<G>(outcome: Result<G, Error>) -> Result<Option<G>, Error> {
    match outcome {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        Err(error) => Err(error),
    }
}

/// A lease must be one that Redis can keep.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    let refuse = |why: &'static str| Err(Error::bad_input(CHECK, why));
    match lease {
        _ if lease < SHORTEST_LEASE => refuse("the lease is shorter than a millisecond"),
        _ if lease > LONGEST_SPAN => refuse("the lease is longer than redis can keep"),
        _ => Ok(()),
    }
}
