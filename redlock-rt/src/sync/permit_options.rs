//! How to acquire permits, checked before anything is sent.

use std::time::Duration;

use super::options::{LockOptions, Renew};
use crate::engine::{Engine, Terms};
use crate::error::Error;

const CHECK: &str = "check permit options";

/// How to acquire permits of a semaphore: how many at once, how long to wait, how long to hold.
///
/// `lease`, `renew` and `max_hold` mean what they mean for a [lock](LockOptions), and are for a
/// [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore): the permits of a
/// [`Semaphore`](crate::Semaphore) have no lease, and its acquisition refuses the three as
/// [`BadInput`](crate::ErrorKind::BadInput).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_rt::PermitOptions;
///
/// let options = PermitOptions::new()
///     .permits(2)
///     .wait(Duration::from_secs(1))
///     .lease(Duration::from_secs(10));
/// ```
#[derive(Debug, Clone)]
pub struct PermitOptions {
    permits: u32,
    /// What they have in common with those of a lock.
    shared: LockOptions,
}

impl Default for PermitOptions {
    fn default() -> Self {
        Self::of(1, LockOptions::new())
    }
}

impl PermitOptions {
    /// Makes the default options: one permit, wait for ever, the client's lease, renewed every third
    /// of it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many permits to acquire at once, all or none. Defaults to one.
    #[must_use]
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// Sets how long to wait; zero tries once. It bounds everything: queueing, connecting,
    /// subscribing and trying. Defaults to `None`: as long as it takes.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.shared = self.shared.wait(wait);
        self
    }

    /// Sets the lease: how long the permits outlive a crash of their holder, from 1 ms. Defaults to
    /// the client's, which defaults to 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.shared = self.shared.lease(lease);
        self
    }

    /// Sets how the lease is renewed while the guard lives: `true`, `false`, or how often, which
    /// must be shorter than the lease. Defaults to every third of the lease.
    #[must_use]
    pub fn renew(mut self, renew: impl Into<Renew>) -> Self {
        self.shared = self.shared.renew(renew);
        self
    }

    /// Sets the longest time to hold: renewal ends with it, and the guard is then lost. It may not
    /// be shorter than the lease. Defaults to `None`: as long as the guard lives.
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.shared = self.shared.max_hold(max_hold);
        self
    }

    /// So many permits, acquired as a lock would be.
    pub(crate) fn of(permits: u32, options: LockOptions) -> Self {
        Self {
            permits,
            shared: options.of_permits(),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.permits
    }

    pub(super) fn waiting(&self) -> Option<Duration> {
        self.shared.waiting()
    }

    /// Of permits that have no lease.
    pub(super) fn without_lease(&self) -> Result<Terms, Error> {
        match self.shared.name_a_lease() {
            true => Err(Error::bad_input(
                CHECK,
                "lease, renew and max_hold are for a semaphore whose permits have leases",
            )),
            false => Ok(Terms::WITHOUT_LEASE),
        }
    }

    /// Checks the options and fills in the client's defaults.
    pub(super) fn terms(&self, engine: &Engine) -> Result<Terms, Error> {
        let terms = self.shared.terms(engine);
        terms.map_err(|error| error.trying(CHECK))
    }
}
