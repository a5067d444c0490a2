//! The properties of a kind of lock that the suite needs.

use std::{sync::Arc, time::Duration};

use redlock_rt::{
    Backoff, FairLock, FencedLock, HoldId, MultiLock, Part, RLock, ReadLock, RedLock, SpinLock,
    WriteLock,
};

use crate::{
    locks::{Lock, Locks},
    party::Party,
};

/// A kind of lock.
pub(crate) trait Subject: 'static {
    type Lock: Locks + 'static;

    /// A lock of the same name that excludes this one, and is excluded by it.
    type Rival: Subject;

    /// Whether several owners may hold it at the same time.
    const SHARED: bool = false;

    /// The longest pause between tries if releases are not announced; `None`: they are announced, and
    /// waiters are subscribed.
    const LOOKS_EVERY: Option<Duration> = None;

    /// The prefix of keys that stay for ever after a lock is gone.
    const STAYS: Option<&'static str> = None;

    /// Whether the rest of a lost lock is released as soon as the loss is known, while its guard still
    /// exists: for other callers that need a majority, such a rest is one server less.
    const FREED_WHEN_LOST: bool = false;

    /// The number of its servers.
    const SERVERS: usize = 1;

    /// The list in Redis in which waiters have their places, if they have any there.
    fn queue(_name: &str) -> Option<String> {
        None
    }

    /// The lock of this name.
    fn open(client: &Party, name: &str) -> Self::Lock;

    /// The keys of the lock of this name, each with its server.
    fn places(name: &str) -> Vec<(usize, String)> {
        vec![(0, name.to_owned())]
    }

    /// The number of places that make an owner the holder.
    fn need(places: usize) -> usize {
        places
    }

    /// The field of the hash NAME in which a hold of this owner is counted.
    fn field(owner: &HoldId) -> String {
        owner.to_string()
    }

    /// The fields of the hash NAME while only this owner holds it, with this count.
    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        vec![(owner.to_owned(), count.to_string())]
    }

    /// The key that carries the lease of this owner's hold beside NAME.
    fn lease_key(_name: &str, _owner: &str) -> Option<String> {
        None
    }
}

/// A kind of lock as a value: so a behaviour is compiled once, and not for each kind.
pub(crate) struct Kind {
    pub(crate) shared: bool,
    pub(crate) looks_every: Option<Duration>,
    pub(crate) stays: Option<&'static str>,
    pub(crate) freed_when_lost: bool,
    pub(crate) servers: usize,
    pub(crate) queue: fn(&str) -> Option<String>,
    pub(crate) open: fn(&Party, &str) -> Lock,
    pub(crate) places: fn(&str) -> Vec<(usize, String)>,
    pub(crate) need: fn(usize) -> usize,
    pub(crate) field: fn(&HoldId) -> String,
    pub(crate) fields: fn(&str, u32) -> Vec<(String, String)>,
    pub(crate) lease_key: fn(&str, &str) -> Option<String>,
    rival: fn() -> Self,
}

impl Kind {
    pub(crate) fn of<S: Subject>() -> Self {
        Self {
            shared: S::SHARED,
            looks_every: S::LOOKS_EVERY,
            stays: S::STAYS,
            freed_when_lost: S::FREED_WHEN_LOST,
            servers: S::SERVERS,
            queue: S::queue,
            open: |client, name| Arc::new(S::open(client, name)),
            places: S::places,
            need: S::need,
            field: S::field,
            fields: S::fields,
            lease_key: S::lease_key,
            rival: Self::of::<S::Rival>,
        }
    }

    /// That of [`Subject::Rival`].
    pub(crate) fn rival(&self) -> Self {
        (self.rival)()
    }
}

impl Subject for RLock {
    type Lock = Self;
    type Rival = Self;

    fn open(client: &Party, name: &str) -> Self {
        client.rlock(name)
    }
}

impl Subject for FairLock {
    type Lock = Self;
    type Rival = Self;

    fn queue(name: &str) -> Option<String> {
        Some(format!("redisson_lock_queue:{{{name}}}"))
    }

    fn open(client: &Party, name: &str) -> Self {
        client.fair_lock(name)
    }
}

/// Readers; writers exclude them.
impl Subject for ReadLock {
    type Lock = Self;
    type Rival = WriteLock;
    const SHARED: bool = true;

    fn open(client: &Party, name: &str) -> Self {
        client.read_write_lock(name).read_lock()
    }

    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        moded("read", (owner.to_owned(), count.to_string()))
    }

    fn lease_key(name: &str, owner: &str) -> Option<String> {
        Some(format!("{{{name}}}:{owner}:rwlock_timeout:1"))
    }
}

/// Writers; other writers exclude them.
impl Subject for WriteLock {
    type Lock = Self;
    type Rival = Self;

    fn open(client: &Party, name: &str) -> Self {
        client.read_write_lock(name).write_lock()
    }

    fn field(owner: &HoldId) -> String {
        format!("{owner}:write")
    }

    fn fields(owner: &str, count: u32) -> Vec<(String, String)> {
        moded("write", (format!("{owner}:write"), count.to_string()))
    }
}

/// Writers; readers exclude them.
pub(crate) struct WriteAmongReaders;

impl Subject for WriteAmongReaders {
    type Lock = WriteLock;
    type Rival = ReadLock;

    fn open(client: &Party, name: &str) -> WriteLock {
        WriteLock::open(client, name)
    }

    fn field(owner: &HoldId) -> String {
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
    type Lock = Self;
    type Rival = Self;

    const STAYS: Option<&'static str> = Some("redisson_lock_token");

    fn open(client: &Party, name: &str) -> Self {
        client.fenced_lock(name)
    }
}

impl Subject for SpinLock {
    type Lock = Self;
    type Rival = Self;

    const LOOKS_EVERY: Option<Duration> = Some(Duration::from_millis(20));

    fn open(client: &Party, name: &str) -> Self {
        let pause = Self::LOOKS_EVERY.unwrap();
        client.spin_lock(name).backoff(Backoff::constant(pause))
    }
}

/// Two locks of one client as one lock, which one script takes.
impl Subject for MultiLock {
    type Lock = Self;
    type Rival = Self;

    fn open(client: &Party, name: &str) -> Self {
        client.multi_lock([name, &second(name)])
    }

    fn places(name: &str) -> Vec<(usize, String)> {
        vec![(0, name.to_owned()), (0, second(name))]
    }
}

/// Two locks as one lock, which no single script takes.
pub(crate) struct OneByOne;

impl Subject for OneByOne {
    type Lock = MultiLock;
    type Rival = Self;

    fn open(client: &Party, name: &str) -> MultiLock {
        let parts = [
            Part::from(client.fair_lock(second(name))),
            Part::from(client.rlock(name)),
        ];
        MultiLock::new(parts)
    }

    fn places(name: &str) -> Vec<(usize, String)> {
        MultiLock::places(name)
    }
}

/// Sorts after the name in a MultiLock, and is no name of another test.
fn second(name: &str) -> String {
    format!("{name}~")
}

/// A majority of three servers. Every behaviour applies. As for a spin lock, no waiter is woken, and
/// the checks look at a majority of the servers. One behaviour differs: see
/// [`FREED_WHEN_LOST`](Subject::FREED_WHEN_LOST).
impl Subject for RedLock {
    type Lock = Self;
    type Rival = Self;

    const SERVERS: usize = 3;
    const FREED_WHEN_LOST: bool = true;
    /// The longest pause between rounds.
    const LOOKS_EVERY: Option<Duration> = Some(Duration::from_millis(100));

    fn open(client: &Party, name: &str) -> Self {
        client.quorum().redlock(name)
    }

    fn places(name: &str) -> Vec<(usize, String)> {
        (0..Self::SERVERS)
            .map(|server| (server, name.to_owned()))
            .collect()
    }

    fn need(places: usize) -> usize {
        places / 2 + 1
    }
}
