//! What the suite must know of a kind of lock.

use std::time::Duration;

use redlock_rt::{
    Backoff, Client, Fenced, FencedLock, Kind, Lock, LockGuard, OwnerId, RLock, Reentrant, Spin,
    SpinLock,
};

/// A kind of lock.
pub(crate) trait Subject: 'static {
    type Kind: Kind;

    /// How long a waiter goes without looking where nothing is announced; `None`: releases are,
    /// and waiters are subscribed.
    const LOOKS_EVERY: Option<Duration> = None;

    /// The prefix of what stays of a lock for good, beside no lock.
    const STAYS: Option<&'static str> = None;

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

impl Subject for FencedLock {
    type Kind = Fenced;

    const STAYS: Option<&'static str> = Some("redisson_lock_token");

    fn open(client: &Client, name: &str) -> Self {
        client.fenced_lock(name)
    }
}

impl Subject for SpinLock {
    type Kind = Spin;

    const LOOKS_EVERY: Option<Duration> = Some(Duration::from_millis(20));

    fn open(client: &Client, name: &str) -> Self {
        let pause = Self::LOOKS_EVERY.unwrap();
        client.spin_lock(name).backoff(Backoff::constant(pause))
    }
}
