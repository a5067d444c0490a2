//! The properties of a kind of lock that the suite needs.

use std::{sync::Arc, time::Duration};

use redlock_rt::{Backoff, HoldId, MultiLock, Part};

use crate::{locks::Lock, party::Party};

/// A kind of lock: a value, so that a behaviour is compiled once, and not for each kind.
pub(crate) struct Kind {
    /// The lock of this name.
    pub(crate) open: fn(&Party, &str) -> Lock,

    /// Whose locks of the same name exclude these, and are excluded by them; `None`: its own.
    rival: Option<&'static Self>,

    /// Whether several owners may hold it at the same time.
    pub(crate) shared: bool,

    /// The longest pause between tries if releases are not announced; `None`: they are announced, and
    /// waiters are subscribed.
    pub(crate) looks_every: Option<Duration>,

    /// The prefix of keys that stay for ever after a lock is gone.
    pub(crate) stays: Option<&'static str>,

    /// Whether the rest of a lost lock is released as soon as the loss is known, while its guard still
    /// exists: for other callers that need a majority, such a rest is one server less.
    pub(crate) freed_when_lost: bool,

    /// The number of its servers.
    pub(crate) servers: usize,

    /// The list in Redis in which waiters have their places, if they have any there.
    pub(crate) queue: fn(&str) -> Option<String>,

    /// The keys of the lock of this name, each with its server.
    pub(crate) places: fn(&str) -> Vec<(usize, String)>,

    /// The number of places that make an owner the holder.
    pub(crate) need: fn(usize) -> usize,

    /// The field of the hash NAME in which a hold of this owner is counted.
    pub(crate) field: fn(&HoldId) -> String,

    /// The fields of the hash NAME while only this owner holds it, with this count.
    pub(crate) fields: fn(&str, u32) -> Vec<(String, String)>,

    /// The key that carries the lease of this owner's hold beside NAME.
    pub(crate) lease_key: fn(&str, &str) -> Option<String>,
}

impl Kind {
    pub(crate) fn rival(&self) -> &Self {
        self.rival.unwrap_or(self)
    }
}

/// What most kinds are.
const fn plain(open: fn(&Party, &str) -> Lock) -> Kind {
    Kind {
        open,
        rival: None,
        shared: false,
        looks_every: None,
        stays: None,
        freed_when_lost: false,
        servers: 1,
        queue: |_| None,
        places: |name| vec![(0, name.to_owned())],
        need: |places| places,
        field: HoldId::to_string,
        fields: |owner, count| vec![(owner.to_owned(), count.to_string())],
        lease_key: |_, _| None,
    }
}

pub(crate) static RLOCK: Kind = plain(|client, name| Arc::new(client.rlock(name)));

pub(crate) static FAIR: Kind = Kind {
    queue: |name| Some(format!("redisson_lock_queue:{{{name}}}")),
    ..plain(|client, name| Arc::new(client.fair_lock(name)))
};

/// Readers; writers exclude them.
pub(crate) static READ: Kind = Kind {
    rival: Some(&WRITE),
    shared: true,
    fields: |owner, count| moded("read", (owner.to_owned(), count.to_string())),
    lease_key: |name, owner| Some(format!("{{{name}}}:{owner}:rwlock_timeout:1")),
    ..plain(|client, name| Arc::new(client.read_write_lock(name).read_lock()))
};

/// Writers; other writers exclude them.
pub(crate) static WRITE: Kind = WRITERS;

/// Writers; readers exclude them.
pub(crate) static WRITE_AMONG_READERS: Kind = Kind {
    rival: Some(&READ),
    ..WRITERS
};

const WRITERS: Kind = Kind {
    field: |owner| format!("{owner}:write"),
    fields: |owner, count| moded("write", (format!("{owner}:write"), count.to_string())),
    ..plain(|client, name| Arc::new(client.read_write_lock(name).write_lock()))
};

fn moded(mode: &str, field: (String, String)) -> Vec<(String, String)> {
    vec![("mode".to_owned(), mode.to_owned()), field]
}

pub(crate) static FENCED: Kind = Kind {
    stays: Some("redisson_lock_token"),
    ..plain(|client, name| Arc::new(client.fenced_lock(name)))
};

const PAUSE: Duration = Duration::from_millis(20);

pub(crate) static SPIN: Kind = Kind {
    looks_every: Some(PAUSE),
    ..plain(|client, name| Arc::new(client.spin_lock(name).backoff(Backoff::constant(PAUSE))))
};

/// Two locks of one client as one lock, which one script takes.
pub(crate) static MULTI: Kind = Kind {
    places: both,
    ..plain(|client, name| Arc::new(client.multi_lock([name, &second(name)])))
};

/// Two locks as one lock, which no single script takes.
pub(crate) static MULTI_ONE_BY_ONE: Kind = Kind {
    places: both,
    ..plain(|client, name| {
        let parts = [
            Part::from(client.fair_lock(second(name))),
            Part::from(client.rlock(name)),
        ];
        Arc::new(MultiLock::new(parts))
    })
};

fn both(name: &str) -> Vec<(usize, String)> {
    vec![(0, name.to_owned()), (0, second(name))]
}

/// Sorts after the name in a MultiLock, and is no name of another test.
fn second(name: &str) -> String {
    format!("{name}~")
}

const SERVERS: usize = 3;

/// A majority of three servers. Every behaviour applies. As for a spin lock, no waiter is woken, and
/// the checks look at a majority of the servers. One behaviour differs: see
/// [`freed_when_lost`](Kind::freed_when_lost).
pub(crate) static RED: Kind = Kind {
    servers: SERVERS,
    freed_when_lost: true,
    // The longest pause between rounds.
    looks_every: Some(Duration::from_millis(100)),
    places: |name| {
        (0..SERVERS)
            .map(|server| (server, name.to_owned()))
            .collect()
    },
    need: |places| places / 2 + 1,
    ..plain(|client, name| Arc::new(client.quorum().redlock(name)))
};
