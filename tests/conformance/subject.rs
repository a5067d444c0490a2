//! What the suite must know of a kind of lock.

use std::time::Duration;

use redlock_rt::{
    Backoff, Client, Fair, FairLock, Fenced, FencedLock, Kind, Lock, LockGuard, OwnerId, RLock,
    Read, ReadLock, Reentrant, Spin, SpinLock, Write, WriteLock,
};

/// A kind of lock.
pub(crate) trait Subject: 'static {
    type Kind: Kind;

    /// A lock of the same name that excludes this one, and is excluded by it.
    type Rival: Subject;

    /// Whether several may hold it at a time.
    const SHARED: bool = false;

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

    /// The hash NAME as it is while this owner alone holds it, so often.
    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        vec![(owner.to_owned(), count.to_string())]
    }

    /// The key that carries the lease of this owner's hold beside NAME.
    fn lease_key(_name: &str, _owner: &str) -> Option<String> {
        None
    }
}

/// The guard of a kind.
pub(crate) type Guard<S> = LockGuard<<S as Subject>::Kind>;

impl Subject for RLock {
    type Kind = Reentrant;
    type Rival = Self;

    fn open(client: &Client, name: &str) -> Self {
        client.rlock(name)
    }
}

impl Subject for FairLock {
    type Kind = Fair;
    type Rival = Self;

    fn open(client: &Client, name: &str) -> Self {
        client.fair_lock(name)
    }
}

/// Readers, that writers exclude.
impl Subject for ReadLock {
    type Kind = Read;
    type Rival = WriteLock;
    const SHARED: bool = true;

    fn open(client: &Client, name: &str) -> Self {
        client.read_write_lock(name).read_lock()
    }

    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        moded("read", (owner.to_owned(), count.to_string()))
    }

    fn lease_key(name: &str, owner: &str) -> Option<String> {
        Some(format!("{{{name}}}:{owner}:rwlock_timeout:1"))
    }
}

/// Writers, that writers exclude.
impl Subject for WriteLock {
    type Kind = Write;
    type Rival = Self;

    fn open(client: &Client, name: &str) -> Self {
        client.read_write_lock(name).write_lock()
    }

    fn field(owner: &OwnerId) -> String {
        format!("{owner}:write")
    }

    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        moded("write", (format!("{owner}:write"), count.to_string()))
    }
}

/// Writers, that readers exclude.
pub(crate) struct WriteAmongReaders;

impl Subject for WriteAmongReaders {
    type Kind = Write;
    type Rival = ReadLock;

    fn open(client: &Client, name: &str) -> WriteLock {
        WriteLock::open(client, name)
    }

    fn field(owner: &OwnerId) -> String {
        WriteLock::field(owner)
    }

    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        WriteLock::fields(owner, count)
    }
}

fn moded(mode: &str, field: (String, String)) -> Vec<(String, String)> {
    vec![("mode".to_owned(), mode.to_owned()), field]
}

impl Subject for FencedLock {
    type Kind = Fenced;
    type Rival = Self;

    const STAYS: Option<&'static str> = Some("redisson_lock_token");

    fn open(client: &Client, name: &str) -> Self {
        client.fenced_lock(name)
    }
}

impl Subject for SpinLock {
    type Kind = Spin;
    type Rival = Self;

    const LOOKS_EVERY: Option<Duration> = Some(Duration::from_millis(20));

    fn open(client: &Client, name: &str) -> Self {
        let pause = Self::LOOKS_EVERY.unwrap();
        client.spin_lock(name).backoff(Backoff::constant(pause))
    }
}
