//! The methods of a lock and of its guard that the suite uses, for all types.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt, LocalBoxFuture};
use redlock_rt::{
    Error, GuardState, HoldId, Kind, LockGuard, LockOptions, LostReason, MultiLock, MultiLockGuard,
    RedLock, RedLockGuard, Unlocked,
};

/// A lock of any type.
pub(crate) type Lock = Arc<dyn Locks>;
/// The guard of a lock of any type.
pub(crate) type Held = Box<dyn Guard>;

pub(crate) trait Locks: fmt::Debug + Send + Sync {
    fn lock(&self) -> BoxFuture<'_, Result<Held, Error>>;
    fn try_lock(&self) -> BoxFuture<'_, Result<Option<Held>, Error>>;
    fn lock_with(&self, options: LockOptions) -> BoxFuture<'_, Result<Held, Error>>;
    fn runs<'a>(&'a self, body: Box<dyn Body + 'a>) -> LocalBoxFuture<'a, Result<(), Error>>;
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn is_locked(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn holder(&self) -> BoxFuture<'_, Result<Option<HoldId>, Error>>;
    fn holders(&self) -> BoxFuture<'_, Result<Vec<HoldId>, Error>>;
    fn hold_count(&self) -> BoxFuture<'_, Result<u64, Error>>;
    fn remaining_ttl(&self) -> BoxFuture<'_, Result<Option<Duration>, Error>>;
}

impl dyn Locks {
    /// The body may be any future, also one that is not `Send`.
    pub(crate) async fn with<T>(
        &self,
        body: impl AsyncFnOnce(&dyn Guard) -> T,
    ) -> Result<T, Error> {
        let mut output = None;
        let kept = Kept(body, &mut output);
        self.runs(Box::new(kept)).await?;
        Ok(output.expect("the body has ended"))
    }
}

/// What runs under a lock.
pub(crate) trait Body {
    fn run<'b>(self: Box<Self>, guard: &'b dyn Guard) -> LocalBoxFuture<'b, ()>
    where
        Self: 'b;
}

/// A body, and where its output goes.
struct Kept<'a, F, T>(F, &'a mut Option<T>);

impl<F: AsyncFnOnce(&dyn Guard) -> T, T> Body for Kept<'_, F, T> {
    fn run<'b>(self: Box<Self>, guard: &'b dyn Guard) -> LocalBoxFuture<'b, ()>
    where
        Self: 'b,
    {
        let Self(body, output) = *self;
        async move { *output = Some(body(guard).await) }.boxed_local()
    }
}

pub(crate) trait Guard: fmt::Debug + Send + Sync {
    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>>;
    fn state(&self) -> GuardState;
    fn is_valid(&self) -> bool;
    fn lost(&self) -> BoxFuture<'_, LostReason>;
    fn extend(&self, lease: Duration) -> BoxFuture<'_, Result<(), Error>>;
    fn reenter(&self) -> BoxFuture<'_, Result<Held, Error>>;
    fn runs<'a>(&'a self, body: LocalBoxFuture<'a, ()>) -> LocalBoxFuture<'a, Result<(), Error>>;
    fn hold_count(&self) -> u32;

    /// The name with which the lock was opened.
    fn name(&self) -> String;

    /// The ids of its holds: one, or several for a lock made of several.
    fn hold_ids(&self) -> Vec<HoldId>;

    /// Whether both guards share their holds.
    fn shares_with(&self, other: &dyn Guard) -> bool {
        self.hold_ids() == other.hold_ids()
    }
}

impl dyn Guard {
    pub(crate) async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, Error> {
        let mut output = None;
        let body = async { output = Some(body.await) };
        self.runs(body.boxed_local()).await?;
        Ok(output.expect("the body has ended"))
    }
}

/// Implements [`Locks`] by the methods of the types.
macro_rules! as_the_type_has_them {
    () => {
        fn lock(&self) -> BoxFuture<'_, Result<Held, Error>> {
            async { Ok(Box::new(Self::lock(self).await?) as Held) }.boxed()
        }
        fn try_lock(&self) -> BoxFuture<'_, Result<Option<Held>, Error>> {
            let boxed = |guard| Box::new(guard) as Held;
            async move { Ok(Self::try_lock(self).await?.map(boxed)) }.boxed()
        }
        fn lock_with(&self, options: LockOptions) -> BoxFuture<'_, Result<Held, Error>> {
            async { Ok(Box::new(Self::lock_with(self, options).await?) as Held) }.boxed()
        }
        fn runs<'a>(&'a self, body: Box<dyn Body + 'a>) -> LocalBoxFuture<'a, Result<(), Error>> {
            Self::with(self, async |guard| body.run(guard).await).boxed_local()
        }
        fn force_unlock(&self) -> BoxFuture<'_, Result<bool, Error>> {
            Self::force_unlock(self).boxed()
        }
        fn is_locked(&self) -> BoxFuture<'_, Result<bool, Error>> {
            Self::is_locked(self).boxed()
        }
        fn holder(&self) -> BoxFuture<'_, Result<Option<HoldId>, Error>> {
            Self::holder(self).boxed()
        }
        fn holders(&self) -> BoxFuture<'_, Result<Vec<HoldId>, Error>> {
            Self::holders(self).boxed()
        }
        fn hold_count(&self) -> BoxFuture<'_, Result<u64, Error>> {
            Self::hold_count(self).boxed()
        }
        fn remaining_ttl(&self) -> BoxFuture<'_, Result<Option<Duration>, Error>> {
            Self::remaining_ttl(self).boxed()
        }
    };
}

/// Implements [`Guard`] likewise.
macro_rules! as_the_guard_has_them {
    () => {
        fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>> {
            Self::unlock(*self).boxed()
        }
        fn state(&self) -> GuardState {
            Self::state(self)
        }
        fn is_valid(&self) -> bool {
            Self::is_valid(self)
        }
        fn lost(&self) -> BoxFuture<'_, LostReason> {
            Self::lost(self).boxed()
        }
        fn extend(&self, lease: Duration) -> BoxFuture<'_, Result<(), Error>> {
            Self::extend(self, lease).boxed()
        }
        fn reenter(&self) -> BoxFuture<'_, Result<Held, Error>> {
            async { Ok(Box::new(Self::reenter(self).await?) as Held) }.boxed()
        }
        fn runs<'a>(
            &'a self,
            body: LocalBoxFuture<'a, ()>,
        ) -> LocalBoxFuture<'a, Result<(), Error>> {
            Self::run(self, body).boxed_local()
        }
        fn hold_count(&self) -> u32 {
            Self::hold_count(self)
        }
    };
}

impl<K: Kind> Locks for redlock_rt::Lock<K> {
    as_the_type_has_them!();
}

impl<K: Kind> Guard for LockGuard<K> {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        vec![Self::hold_id(self).clone()]
    }
}

impl Locks for MultiLock {
    as_the_type_has_them!();
}

impl Guard for MultiLockGuard {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::names(self)[0].to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        Self::hold_ids(self)
    }
}

impl Locks for RedLock {
    as_the_type_has_them!();
}

impl Guard for RedLockGuard {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        Self::hold_ids(self)
    }

    /// Either guard may lack a server that was late.
    fn shares_with(&self, other: &dyn Guard) -> bool {
        share(&self.hold_ids(), &other.hold_ids())
    }
}

/// Whether any hold is in both.
pub(crate) fn share(these: &[HoldId], those: &[HoldId]) -> bool {
    these.iter().any(|owner| those.contains(owner))
}
