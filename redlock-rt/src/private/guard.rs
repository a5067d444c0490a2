//! The guard of a body, whatever its kind.

use std::sync::Arc;

use crate::engine::{GuardState, LostReason, ReentryScope, Unlocked};
use crate::error::Error;
use crate::sync::{
    FairLockGuard, FencedLockGuard, FireGuard, LeasedPermit, MultiLockGuard, RLockGuard, ReadGuard,
    SpinLockGuard, WriteGuard,
};

/// What a body runs under.
#[derive(Debug)]
pub enum Guard {
    /// A re-entrant lock.
    Reentrant(RLockGuard),
    /// A fair lock.
    Fair(FairLockGuard),
    /// A read lock.
    Read(ReadGuard),
    /// A write lock.
    Write(WriteGuard),
    /// A fenced lock.
    Fenced(FencedLockGuard),
    /// A spin lock.
    Spin(SpinLockGuard),
    /// A fire.
    Once(FireGuard),
    /// Several locks.
    Multi(MultiLockGuard),
    /// Permits.
    Permit(LeasedPermit),
}

/// Does the same with each kind of guard.
macro_rules! each {
    ($guard:expr, $one:ident => $does:expr, $permit:ident => $releases:expr) => {
        match $guard {
            Guard::Reentrant($one) => $does,
            Guard::Fair($one) => $does,
            Guard::Read($one) => $does,
            Guard::Write($one) => $does,
            Guard::Fenced($one) => $does,
            Guard::Spin($one) => $does,
            Guard::Once($one) => $does,
            Guard::Multi($one) => $does,
            Guard::Permit($permit) => $releases,
        }
    };
}

impl Guard {
    pub(super) fn state(&self) -> GuardState {
        each!(self, guard => guard.state(), permit => permit.state())
    }

    pub(super) async fn lost(&self) -> LostReason {
        each!(self, guard => guard.lost().await, permit => permit.lost().await)
    }

    pub(super) fn scope(&self) -> ReentryScope {
        // A permit is no hold that could be re-entered.
        each!(self, guard => guard.scope(), _permit => ReentryScope::default())
    }

    pub(super) fn name(&self) -> &str {
        each!(self, guard => guard.name(), permit => permit.name())
    }

    pub(super) async fn unlock(self) -> Result<Unlocked, Error> {
        each!(self, guard => guard.unlock().await, permit => permit.release().await)
    }
}

/// The guard as the body sees it.
#[derive(Debug, Clone)]
pub struct Held(pub(super) Arc<Guard>);

/// A method for each kind: the expansion knows which it is.
macro_rules! known {
    ($($kind:ident: $variant:ident($guard:ty),)+) => {
        impl Held {
            $(
                /// The guard.
                pub fn $kind(&self) -> &$guard {
                    match &*self.0 {
                        Guard::$variant(guard) => guard,
                        other => unreachable!("{other:?} of another kind"),
                    }
                }
            )+
        }
    };
}

known! {
    reentrant: Reentrant(RLockGuard),
    fair: Fair(FairLockGuard),
    read: Read(ReadGuard),
    write: Write(WriteGuard),
    fenced: Fenced(FencedLockGuard),
    spin: Spin(SpinLockGuard),
    once: Once(FireGuard),
    multi: Multi(MultiLockGuard),
    permit: Permit(LeasedPermit),
}
