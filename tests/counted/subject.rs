//! The methods of a kind of semaphore that the suite uses.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use redlock_rt::{
    Client, Error, LeasedPermit, PermitExpirableSemaphore, PermitOptions, Semaphore,
    SemaphorePermit, Unlocked,
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

/// Both kinds have these methods.
macro_rules! subjects {
    ($($semaphore:ident = $open:ident, $guard:ident;)+) => {$(
        impl Subject for $semaphore {
            type Guard = $guard;

            fn open(client: &Client, name: &str) -> Self {
                client.$open(name)
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
                self.available_permits().await
            }

            async fn take(&self, permits: u32) -> Result<$guard, Error> {
                self.acquire_many(permits).await
            }

            async fn take_within(&self, permits: u32, wait: Duration) -> Result<$guard, Error> {
                let options = PermitOptions::new().permits(permits).wait(wait);
                self.acquire_with(options).await
            }

            async fn try_one(&self) -> Result<Option<$guard>, Error> {
                self.try_acquire().await
            }

            async fn give_back(guard: $guard) -> Result<Unlocked, Error> {
                guard.release().await
            }

            fn name_of(guard: &$guard) -> &str {
                guard.name()
            }

            fn count_of(guard: &$guard) -> usize {
                guard.permits() as usize
            }
        }
    )+};
}

subjects! {
    Semaphore = semaphore, SemaphorePermit;
    PermitExpirableSemaphore = permit_expirable_semaphore, LeasedPermit;
}

/// The semaphore of the test, on this client, with this many permits.
pub(crate) async fn with_permits<S: Subject>(client: &Client, name: &str, permits: u32) -> S {
    let semaphore = S::open(client, name);
    assert!(semaphore.set(permits).await.unwrap());
    semaphore
}
