//! Locks of a few kinds, and their guards.

use std::time::Duration;

use futures::{FutureExt, future::LocalBoxFuture};
use redlock_rt::{Client, Kind, Lock, LockGuard, LockOptions};
use tests::Random;

/// What tasks of one client do with a lock that one of them gives up and another one wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// An `RLock`: they hand it over without a call.
    HandOver,
    /// A `FencedLock`: they hand it over, each with a token of its own.
    Fenced,
    /// A `FairLock`: the release gives it to whoever is next in the queue in Redis.
    Grant,
}

/// A guard of any kind.
pub(crate) type Guard = Box<dyn Held>;

pub(crate) trait Held {
    fn owner(&self) -> String;

    fn unlock(self: Box<Self>) -> LocalBoxFuture<'static, ()>;

    fn reenter(&self) -> LocalBoxFuture<'_, Option<Guard>>;

    fn extend(&self, lease: Duration) -> LocalBoxFuture<'_, ()>;
}

impl Way {
    pub(crate) fn any(random: &mut Random) -> Self {
        // Most grants follow on each other.
        let ways = [
            &Self::HandOver,
            &Self::HandOver,
            &Self::Fenced,
            &Self::Fenced,
            &Self::Grant,
        ];
        *random.pick(&ways)
    }

    /// Waits for the lock of this name.
    pub(crate) fn lock(
        self,
        client: &Client,
        name: &str,
        options: LockOptions,
    ) -> LocalBoxFuture<'static, Option<Guard>> {
        match self {
            Self::HandOver => lock(client.rlock(name), options),
            Self::Fenced => lock(client.fenced_lock(name), options),
            Self::Grant => lock(client.fair_lock(name), options),
        }
    }
}

fn lock<K: Kind>(lock: Lock<K>, options: LockOptions) -> LocalBoxFuture<'static, Option<Guard>> {
    async move {
        let guard = lock.lock_with(options).await.ok()?;
        Some(Box::new(guard) as Guard)
    }
    .boxed_local()
}

impl<K: Kind> Held for LockGuard<K> {
    fn owner(&self) -> String {
        self.hold_id().to_string()
    }

    fn unlock(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        (*self).unlock().map(drop).boxed_local()
    }

    fn reenter(&self) -> LocalBoxFuture<'_, Option<Guard>> {
        async {
            let inner = Self::reenter(self).await.ok()?;
            Some(Box::new(inner) as Guard)
        }
        .boxed_local()
    }

    fn extend(&self, lease: Duration) -> LocalBoxFuture<'_, ()> {
        Self::extend(self, lease).map(drop).boxed_local()
    }
}
