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
    wait: Option<Duration>,
    lease: Option<Duration>,
    renew: Option<Renew>,
    max_hold: Option<Duration>,
}

impl Default for PermitOptions {
    fn default() -> Self {
        Self {
            permits: 1,
            wait: None,
            lease: None,
            renew: None,
            max_hold: None,
        }
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
        self.wait = wait.into();
        self
    }

    /// Sets the lease: how long the permits outlive a crash of their holder, from 1 ms. Defaults to
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

    pub(super) fn count(&self) -> u32 {
        self.permits
    }

    pub(super) fn waiting(&self) -> Option<Duration> {
        self.wait
    }

    /// Of permits that have no lease.
    pub(super) fn without_lease(&self) -> Result<Terms, Error> {
        match self.lease.is_some() || self.renew.is_some() || self.max_hold.is_some() {
            true => Err(Error::bad_input(
                CHECK,
                "lease, renew and max_hold are for a semaphore whose permits have leases",
            )),
            false => Ok(Terms::WITHOUT_LEASE),
        }
    }

    /// Checks the options and fills in the client's defaults.
    pub(super) fn terms(&self, engine: &Engine) -> Result<Terms, Error> {
        let renew = self.renew.unwrap_or_default();
        let options = LockOptions::new().renew(renew).max_hold(self.max_hold);
        let options = match self.lease {
            Some(lease) => options.lease(lease),
            None => options,
        };
        options.terms(engine).map_err(|error| error.trying(CHECK))
    }
}
