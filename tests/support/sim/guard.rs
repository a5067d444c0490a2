//! What the guards of all kinds have in common, for whoever holds one.

use std::future::Future;
use std::time::Duration;

use redlock_rt::{
    Error, Kind, LeasedPermit, Lock, LockGuard, MultiLockGuard, SemaphorePermit, Unlocked,
};

/// What came of something that not all guards can do.
pub(super) type Maybe = Option<Result<(), Error>>;

/// A hold of any kind.
pub(super) trait Hold: Sized + Send + Sync + 'static {
    /// Whether the guard says that it is held.
    fn is_valid(&self) -> bool;
    /// Who holds it, as Redis knows it.
    fn owner(&self) -> String;
    /// Releases it.
    fn end(self) -> impl Future<Output = Result<Unlocked, Error>> + Send;

    /// Lengthens the lease.
    fn extend(&self, _: Duration) -> impl Future<Output = Maybe> + Send {
        async { None }
    }

    /// Takes it once more, and lets that go.
    fn again(&self) -> impl Future<Output = Maybe> + Send {
        async { None }
    }

    /// Runs a body that takes it once more.
    fn nest(&self) -> impl Future<Output = Maybe> + Send {
        async { None }
    }
}

/// A lock's guard, with the lock.
pub(super) struct Locked<K: Kind>(pub(super) LockGuard<K>, pub(super) Lock<K>);

impl<K: Kind + Send + Sync> Hold for Locked<K> {
    fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    fn owner(&self) -> String {
        self.0.hold_id().as_str().to_owned()
    }

    async fn extend(&self, lease: Duration) -> Maybe {
        Some(self.0.extend(lease).await)
    }

    async fn again(&self) -> Maybe {
        Some(self.0.reenter().await.map(drop))
    }

    async fn nest(&self) -> Maybe {
        let body = async { self.1.lock().await.map(drop) };
        Some(self.0.run(body).await.and_then(|inner| inner))
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.0.unlock().await
    }
}

impl Hold for MultiLockGuard {
    fn is_valid(&self) -> bool {
        self.is_valid()
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

    async fn again(&self) -> Maybe {
        Some(self.reenter().await.map(drop))
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.unlock().await
    }
}

impl Hold for LeasedPermit {
    fn is_valid(&self) -> bool {
        self.is_valid()
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
    /// It has no lease that could end.
    fn is_valid(&self) -> bool {
        true
    }

    fn owner(&self) -> String {
        String::new()
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.release().await
    }
}
