//! The options of an acquisition of permits, checked before anything is sent.

use std::time::Duration;

use super::options::{LockOptions, Renew};
use crate::engine::{AcquireParams, ClientEngine, Fsync, ReplicaAck, Terms};
use crate::error::Error;
use crate::wire::PermitsWire;

pub(super) const CHECK: &str = "check permit options";

/// The options of an acquisition of permits: how many at once, how long to wait, how long to hold.
///
/// `lease`, `renew` and `max_hold` have the same meaning as for a [lock](LockOptions). They are for
/// a [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore). The permits of a
/// [`Semaphore`](crate::Semaphore) have no lease, so its acquisition refuses these three options
/// with [`BadInput`](crate::ErrorKind::BadInput).
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
    pub(super) permits: u32,
    /// The options that locks have too, and no owner: permits have no re-entry.
    shared: LockOptions,
}

impl Default for PermitOptions {
    fn default() -> Self {
        Self::of(1, LockOptions::new())
    }
}

impl PermitOptions {
    /// Returns the default options: one permit, an unlimited wait, the client's lease, and renewal
    /// every third of the lease.
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

    /// Sets how long to wait; zero tries once. The wait limits everything: queueing, connecting,
    /// subscribing and trying. Defaults to `None`: no limit.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.shared = self.shared.wait(wait);
        self
    }

    /// Sets the lease: the time until the permits of a crashed holder are free, at least 1 ms.
    /// Defaults to the client's lease, which defaults to 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.shared = self.shared.lease(lease);
        self
    }

    /// Sets how the lease is renewed while the guard exists: `true`, `false`, or the interval, as
    /// [`LockOptions::renew`](crate::LockOptions::renew). Defaults to every third of the lease.
    #[must_use]
    pub fn renew(mut self, renew: impl Into<Renew>) -> Self {
        self.shared = self.shared.renew(renew);
        self
    }

    /// Sets the longest hold: renewal ends then, and the guard is lost. It may not be shorter than
    /// the lease. Defaults to `None`: as long as the guard exists.
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.shared = self.shared.max_hold(max_hold);
        self
    }

    /// Sets how many replicas must have the acquisition before the permit is returned, as
    /// [`LockOptions::replica_ack`].
    #[must_use]
    pub fn replica_ack(mut self, ack: ReplicaAck) -> Self {
        self.shared = self.shared.replica_ack(ack);
        self
    }

    /// Sets which servers must have the acquisition on disk before the permit is returned, as
    /// [`LockOptions::fsync`].
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.shared = self.shared.fsync(fsync);
        self
    }

    /// Sets the label under which the permits are counted, as [`LockOptions::label`].
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.shared = self.shared.label(label);
        self
    }

    /// Sets whether the wait continues while a right or the password is missing, as
    /// [`LockOptions::outlast_denial`].
    #[must_use]
    pub fn outlast_denial(mut self, outlasts: bool) -> Self {
        self.shared = self.shared.outlast_denial(outlasts);
        self
    }

    /// How to ask.
    pub(super) fn params(&self, engine: &ClientEngine) -> AcquireParams<'_> {
        self.shared.params(engine, None)
    }

    /// The options for this many permits, from the options of a lock.
    pub(crate) fn of(permits: u32, options: LockOptions) -> Self {
        Self {
            permits,
            shared: options.of_permits(),
        }
    }

    /// The terms of permits without a lease.
    pub(super) fn without_lease(&self) -> Result<Terms, Error> {
        match self.shared.name_a_lease() {
            true => Err(Error::bad_input(
                CHECK,
                "lease, renew and max_hold are for a semaphore whose permits have leases",
            )),
            false => Ok(Terms {
                meter: self.shared.meter,
                ..Terms::WITHOUT_LEASE
            }),
        }
    }

    /// Checks the options and fills in the client's defaults.
    pub(super) fn terms_of(&self, engine: &ClientEngine, of: &PermitsWire) -> Result<Terms, Error> {
        let terms = self.shared.terms_of(engine, of, None);
        terms.map_err(|error| error.trying(CHECK))
    }
}
