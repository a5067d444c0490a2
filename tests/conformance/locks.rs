//! The methods of a lock and of its guard that the suite uses, for all types.

use std::{fmt, time::Duration};

use redlock_rt::{
    Error, GuardState, HoldId, Kind, Lock, LockGuard, LockOptions, LostReason, MultiLock,
    MultiLockGuard, RedLock, RedLockGuard, Unlocked,
};

pub(crate) trait Locks: Clone + fmt::Debug + Send + Sync + 'static {
    type Guard: Guards;

    fn lock(&self) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    fn try_lock(&self) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;
    fn lock_with(
        &self,
        options: LockOptions,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// The body may be any future, also one that is not `Send`.
    fn with<T>(
        &self,
        body: impl AsyncFnOnce(&Self::Guard) -> T,
    ) -> impl Future<Output = Result<T, Error>>;
    fn force_unlock(&self) -> impl Future<Output = Result<bool, Error>> + Send;
    fn is_locked(&self) -> impl Future<Output = Result<bool, Error>> + Send;
    fn holder(&self) -> impl Future<Output = Result<Option<HoldId>, Error>> + Send;
    fn holders(&self) -> impl Future<Output = Result<Vec<HoldId>, Error>> + Send;
    fn hold_count(&self) -> impl Future<Output = Result<u64, Error>> + Send;
    fn remaining_ttl(&self) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;
}

pub(crate) trait Guards: fmt::Debug + Send + Sync + Sized + 'static {
    fn unlock(self) -> impl Future<Output = Result<Unlocked, Error>> + Send;
    fn state(&self) -> GuardState;
    fn is_valid(&self) -> bool;
    fn lost(&self) -> impl Future<Output = LostReason> + Send;
    fn extend(&self, lease: Duration) -> impl Future<Output = Result<(), Error>> + Send;
    fn reenter(&self) -> impl Future<Output = Result<Self, Error>> + Send;
    fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>>;
    fn hold_count(&self) -> u32;

    /// The name with which the lock was opened.
    fn name(&self) -> String;

    /// The ids of its holds: one, or several for a lock made of several.
    fn hold_ids(&self) -> Vec<HoldId>;

    /// Whether both guards share their holds.
    fn shares_with(&self, other: &Self) -> bool {
        self.hold_ids() == other.hold_ids()
    }
}

/// Implements [`Locks`] by the methods of the types.
macro_rules! as_the_type_has_them {
    ($guard:ty) => {
        type Guard = $guard;

        fn lock(&self) -> impl Future<Output = Result<$guard, Error>> + Send {
            Self::lock(self)
        }
        fn try_lock(&self) -> impl Future<Output = Result<Option<$guard>, Error>> + Send {
            Self::try_lock(self)
        }
        fn lock_with(
            &self,
            options: LockOptions,
        ) -> impl Future<Output = Result<$guard, Error>> + Send {
            Self::lock_with(self, options)
        }
        fn with<T>(
            &self,
            body: impl AsyncFnOnce(&$guard) -> T,
        ) -> impl Future<Output = Result<T, Error>> {
            Self::with(self, body)
        }
        fn force_unlock(&self) -> impl Future<Output = Result<bool, Error>> + Send {
            Self::force_unlock(self)
        }
        fn is_locked(&self) -> impl Future<Output = Result<bool, Error>> + Send {
            Self::is_locked(self)
        }
        fn holder(&self) -> impl Future<Output = Result<Option<HoldId>, Error>> + Send {
            Self::holder(self)
        }
        fn holders(&self) -> impl Future<Output = Result<Vec<HoldId>, Error>> + Send {
            Self::holders(self)
        }
        fn hold_count(&self) -> impl Future<Output = Result<u64, Error>> + Send {
            Self::hold_count(self)
        }
        fn remaining_ttl(&self) -> impl Future<Output = Result<Option<Duration>, Error>> + Send {
            Self::remaining_ttl(self)
        }
    };
}

/// Implements [`Guards`] likewise.
macro_rules! as_the_guard_has_them {
    () => {
        fn unlock(self) -> impl Future<Output = Result<Unlocked, Error>> + Send {
            Self::unlock(self)
        }
        fn state(&self) -> GuardState {
            Self::state(self)
        }
        fn is_valid(&self) -> bool {
            Self::is_valid(self)
        }
        fn lost(&self) -> impl Future<Output = LostReason> + Send {
            Self::lost(self)
        }
        fn extend(&self, lease: Duration) -> impl Future<Output = Result<(), Error>> + Send {
            Self::extend(self, lease)
        }
        fn reenter(&self) -> impl Future<Output = Result<Self, Error>> + Send {
            Self::reenter(self)
        }
        fn run<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = Result<T, Error>> {
            Self::run(self, body)
        }
        fn hold_count(&self) -> u32 {
            Self::hold_count(self)
        }
    };
}

impl<K: Kind> Locks for Lock<K> {
    as_the_type_has_them!(LockGuard<K>);
}

impl<K: Kind> Guards for LockGuard<K> {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        vec![Self::hold_id(self).clone()]
    }
}

impl Locks for MultiLock {
    as_the_type_has_them!(MultiLockGuard);
}

impl Guards for MultiLockGuard {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::names(self)[0].to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        Self::hold_ids(self)
    }
}

impl Locks for RedLock {
    as_the_type_has_them!(RedLockGuard);
}

impl Guards for RedLockGuard {
    as_the_guard_has_them!();

    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    fn hold_ids(&self) -> Vec<HoldId> {
        Self::hold_ids(self)
    }

    /// Either guard may lack a server that was late.
    fn shares_with(&self, other: &Self) -> bool {
        share(&self.hold_ids(), &other.hold_ids())
    }
}

/// Whether any hold is in both.
pub(crate) fn share(these: &[HoldId], those: &[HoldId]) -> bool {
    these.iter().any(|owner| those.contains(owner))
}
