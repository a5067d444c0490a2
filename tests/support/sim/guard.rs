//! What the guards of all kinds have in common, for whoever holds one.

use std::future::Future;
use std::time::{Duration, Instant};

use redlock_rt::{
    Error, GuardState, Kind, LeasedPermit, Lock, LockGuard, MultiLockGuard, SemaphorePermit,
    Unlocked,
};

/// What came of something that not all guards can do.
pub(super) type Maybe = Option<Result<(), Error>>;

/// A hold of any kind.
pub(super) trait Hold: Sized + Send + Sync + 'static {
    /// What taking it once more gives.
    type Again: Send;

    /// What the guard says; `None`: it has no lease that could end.
    fn state(&self) -> Option<GuardState>;

    /// Whether the guard says that it is held.
    fn is_valid(&self) -> bool {
        self.state().is_none_or(|state| state.is_valid())
    }

    /// Until when the guard says that it is held, unless something happens.
    fn until(&self) -> Option<Instant> {
        match self.state()? {
            GuardState::Held { until } | GuardState::Suspect { until } => Some(until),
            _ => None,
        }
    }

    /// Who holds it, as Redis knows it.
    fn owner(&self) -> String;
    /// All that it is, as Redis knows it, where it is a hold on several servers.
    fn parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Releases it.
    fn end(self) -> impl Future<Output = Result<Unlocked, Error>> + Send;

    /// Lengthens the lease.
    fn extend(&self, _: Duration) -> impl Future<Output = Maybe> + Send {
        async { None }
    }

    /// Takes it once more.
    fn again(&self) -> impl Future<Output = Option<Result<Self::Again, Error>>> + Send {
        async { None }
    }

    /// Runs a body that takes it once more for as long as this takes.
    fn nest(&self, _: impl Future<Output = ()> + Send) -> impl Future<Output = Maybe> + Send {
        async { None }
    }
}

/// Takes a lock, and keeps it for as long as this takes.
pub(super) async fn nested<G>(
    lock: impl Future<Output = Result<G, Error>>,
    stay: impl Future<Output = ()>,
) -> Result<(), Error> {
    let guard = lock.await?;
    stay.await;
    drop(guard);
    Ok(())
}

/// A lock's guard, with the lock.
pub(super) struct Locked<K: Kind>(pub(super) LockGuard<K>, pub(super) Lock<K>);

impl<K: Kind + Send + Sync> Hold for Locked<K> {
    type Again = LockGuard<K>;

    fn state(&self) -> Option<GuardState> {
        Some(self.0.state())
    }

    fn owner(&self) -> String {
        self.0.hold_id().as_str().to_owned()
    }

    async fn extend(&self, lease: Duration) -> Maybe {
        Some(self.0.extend(lease).await)
    }

    async fn again(&self) -> Option<Result<LockGuard<K>, Error>> {
        Some(self.0.reenter().await)
    }

    async fn nest(&self, stay: impl Future<Output = ()> + Send) -> Maybe {
        let body = nested(self.1.lock(), stay);
        Some(self.0.run(body).await.and_then(|inner| inner))
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.0.unlock().await
    }
}

impl Hold for MultiLockGuard {
    type Again = Self;

    fn state(&self) -> Option<GuardState> {
        Some(self.state())
    }

    fn owner(&self) -> String {
        let owners = self.hold_ids();
        owners
            .first()
            .map(|owner| owner.as_str().to_owned())
            .unwrap_or_default()
    }

    async fn extend(&self, lease: Duration) -> Maybe {
        Some(self.extend(lease).await)
    }

    async fn again(&self) -> Option<Result<Self, Error>> {
        Some(self.reenter().await)
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.unlock().await
    }
}

impl Hold for LeasedPermit {
    type Again = ();

    fn state(&self) -> Option<GuardState> {
        Some(self.state())
    }

    fn owner(&self) -> String {
        self.id().to_owned()
    }

    async fn extend(&self, lease: Duration) -> Maybe {
        Some(self.extend(lease).await)
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.release().await
    }
}

impl Hold for SemaphorePermit {
    type Again = ();

    fn state(&self) -> Option<GuardState> {
        None
    }

    fn owner(&self) -> String {
        String::new()
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.release().await
    }
}
