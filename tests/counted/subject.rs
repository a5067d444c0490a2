//! What the suite must know of a kind of semaphore.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use redlock_rt::{
    Client, Error, LockOptions, Permit, PermitExpirableSemaphore, Semaphore, SemaphoreGuard,
    Unlocked,
};

/// A kind of semaphore.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    type Guard: Debug + Send + 'static;

    fn open(client: &Client, name: &str) -> Self;
    fn limited(self, permits: u32) -> Self;
    fn set(&self, permits: u32) -> impl Future<Output = Result<bool, Error>> + Send;
    fn add(&self, permits: i32) -> impl Future<Output = Result<(), Error>> + Send;
    fn free(&self) -> impl Future<Output = Result<i64, Error>> + Send;
    fn take(&self, permits: u32) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// With a wait.
    fn take_within(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// One, without waiting.
    fn try_one(&self) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;
    fn give_back(guard: Self::Guard) -> impl Future<Output = Result<Unlocked, Error>> + Send;
    fn name_of(guard: &Self::Guard) -> &str;
    fn count_of(guard: &Self::Guard) -> usize;
}

impl Subject for Semaphore {
    type Guard = SemaphoreGuard;

    fn open(client: &Client, name: &str) -> Self {
        client.semaphore(name)
    }

    fn limited(self, permits: u32) -> Self {
        self.limit(permits)
    }

    async fn set(&self, permits: u32) -> Result<bool, Error> {
        self.try_set_permits(permits).await
    }

    async fn add(&self, permits: i32) -> Result<(), Error> {
        self.add_permits(permits).await
    }

    async fn free(&self) -> Result<i64, Error> {
        self.available().await
    }

    async fn take(&self, permits: u32) -> Result<SemaphoreGuard, Error> {
        self.acquire(permits).await
    }

    async fn take_within(&self, permits: u32, wait: Duration) -> Result<SemaphoreGuard, Error> {
        self.acquire_with(permits, wait).await
    }

    async fn try_one(&self) -> Result<Option<SemaphoreGuard>, Error> {
        self.try_acquire(1).await
    }

    async fn give_back(guard: SemaphoreGuard) -> Result<Unlocked, Error> {
        guard.release().await
    }

    fn name_of(guard: &SemaphoreGuard) -> &str {
        guard.name()
    }

    fn count_of(guard: &SemaphoreGuard) -> usize {
        guard.permits() as usize
    }
}

impl Subject for PermitExpirableSemaphore {
    type Guard = Permit;

    fn open(client: &Client, name: &str) -> Self {
        client.permit_expirable_semaphore(name)
    }

    fn limited(self, permits: u32) -> Self {
        self.limit(permits)
    }

    async fn set(&self, permits: u32) -> Result<bool, Error> {
        self.try_set_permits(permits).await
    }

    async fn add(&self, permits: i32) -> Result<(), Error> {
        self.add_permits(permits).await
    }

    async fn free(&self) -> Result<i64, Error> {
        self.available().await
    }

    async fn take(&self, permits: u32) -> Result<Permit, Error> {
        self.acquire_many(permits, LockOptions::new()).await
    }

    async fn take_within(&self, permits: u32, wait: Duration) -> Result<Permit, Error> {
        let options = LockOptions::new().wait(wait);
        self.acquire_many(permits, options).await
    }

    async fn try_one(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire().await
    }

    async fn give_back(permit: Permit) -> Result<Unlocked, Error> {
        permit.release().await
    }

    fn name_of(permit: &Permit) -> &str {
        permit.name()
    }

    fn count_of(permit: &Permit) -> usize {
        permit.ids().len()
    }
}

/// The semaphore of the test, on this client, with so many permits.
pub(crate) async fn with_permits<S: Subject>(client: &Client, name: &str, permits: u32) -> S {
    let semaphore = S::open(client, name);
    assert!(semaphore.set(permits).await.unwrap());
    semaphore
}
