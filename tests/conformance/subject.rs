//! What the suite must know of a kind of lock.

use redlock_rt::{Client, Kind, Lock, LockGuard, OwnerId, RLock, Reentrant};

/// A kind of lock.
pub(crate) trait Subject: 'static {
    type Kind: Kind;

    /// The lock of this name.
    fn open(client: &Client, name: &str) -> Lock<Self::Kind>;

    /// The field of the hash NAME in which a hold of this owner is counted.
    fn field(owner: &OwnerId) -> String {
        owner.to_string()
    }
}

/// The guard of a kind.
pub(crate) type Guard<S> = LockGuard<<S as Subject>::Kind>;

impl Subject for RLock {
    type Kind = Reentrant;

    fn open(client: &Client, name: &str) -> Self {
        client.rlock(name)
    }
}
