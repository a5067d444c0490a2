//! What the workers contend for: a handle and a guard of each kind, by a word.

use std::time::Duration;

use futures::future::BoxFuture;
use redlock_rt::{
    Client, Error, Fair, Fenced, Kind, LeaderElection, Leadership, LeasedPermit, Lock, LockGuard,
    LockOptions, MultiLock, MultiLockGuard, PermitExpirableSemaphore, PermitOptions, Quorum, Read,
    RedLock, RedLockGuard, Reentrant, Semaphore, SemaphorePermit, Spin, Write,
};

/// The permits of each semaphore.
pub(crate) const PERMITS: usize = 2;

/// The kinds on one server, and in a cluster.
pub(crate) const KINDS: &str = "rlock fair spin fenced read write multi permits semaphore leader";

/// The lock around the counter whose lost updates are counted; `off`: none.
pub(crate) const COUNTERS: &[&str] = &["off", "rlock", "fenced", IN_POSTGRES];
/// The one whose store is PostgreSQL.
pub(crate) const IN_POSTGRES: &str = "fenced-postgres";

pub(crate) trait Handle: Send + Sync {
    fn acquire(&self, wait: Duration) -> BoxFuture<'_, Result<Box<dyn Guard>, Error>>;
}

pub(crate) trait Guard: Send + Sync {
    fn is_valid(&self) -> bool;
    fn token(&self) -> Option<u64> {
        None
    }
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>>;
}

pub(crate) enum Clients {
    One(Client),
    Five(Quorum),
}

impl Clients {
    /// The client, where there is one server, or a cluster.
    pub(crate) fn one(&self) -> Option<&Client> {
        match self {
            Self::One(client) => Some(client),
            Self::Five(_) => None,
        }
    }

    /// The handle of a kind, as a word, under a name that starts with this.
    pub(crate) fn handle(&self, kind: &str, start: &str) -> Option<Box<dyn Handle>> {
        let name = format!("{start}:{kind}");
        let client = match self {
            Self::Five(quorum) => {
                return (kind == "redlock").then(|| Box::new(quorum.redlock(&name)) as _);
            }
            Self::One(client) => client,
        };
        let limit = u32::try_from(PERMITS).expect("a few");
        let modes = || client.read_write_lock(format!("{start}:modes"));
        Some(match kind {
            "rlock" => Box::new(client.rlock(name)),
            "fair" => Box::new(client.fair_lock(name)),
            "spin" => Box::new(client.spin_lock(name)),
            "fenced" => Box::new(client.fenced_lock(name)),
            "read" => Box::new(modes().read_lock()),
            "write" => Box::new(modes().write_lock()),
            // In a cluster, at two servers.
            "multi" => Box::new(client.multi_lock([format!("{name}:a"), format!("{name}:b")])),
            "permits" => Box::new(client.permit_expirable_semaphore(name).limit(limit)),
            "semaphore" => Box::new(client.semaphore(name).limit(limit)),
            "leader" => Box::new(client.leader_election(name)),
            _ => return None,
        })
    }
}

/// The token of a guard, of the kind that has one.
trait Tokens: Kind + Sized {
    fn token(_guard: &LockGuard<Self>) -> Option<u64> {
        None
    }
}

impl Tokens for Reentrant {}
impl Tokens for Fair {}
impl Tokens for Spin {}
impl Tokens for Read {}
impl Tokens for Write {}
impl Tokens for Fenced {
    fn token(guard: &LockGuard<Self>) -> Option<u64> {
        Some(guard.token())
    }
}

/// The methods that all types have by the same names, and no trait in common.
macro_rules! kind {
    ({$($of:tt)*} $lock:ty, $guard:ty, $acquire:ident, $options:ident, $end:ident, $token:expr, $valid:expr) => {
        impl $($of)* Handle for $lock {
            fn acquire(&self, wait: Duration) -> BoxFuture<'_, Result<Box<dyn Guard>, Error>> {
                Box::pin(async move {
                    let guard = self.$acquire($options::new().wait(wait)).await?;
                    Ok(Box::new(guard) as Box<dyn Guard>)
                })
            }
        }

        impl $($of)* Guard for $guard {
            fn is_valid(&self) -> bool {
                let valid: fn(&Self) -> bool = $valid;
                valid(self)
            }

            fn token(&self) -> Option<u64> {
                let token: fn(&Self) -> Option<u64> = $token;
                token(self)
            }

            fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
                Box::pin(async move { (*self).$end().await.map(drop) })
            }
        }
    };
}

kind!({<K: Tokens>} Lock<K>, LockGuard<K>, lock_with, LockOptions, unlock, K::token, Self::is_valid);
kind!(
    {} MultiLock,
    MultiLockGuard,
    lock_with,
    LockOptions,
    unlock,
    |_| None,
    Self::is_valid
);
kind!(
    {} RedLock,
    RedLockGuard,
    lock_with,
    LockOptions,
    unlock,
    |_| None,
    Self::is_valid
);
kind!(
    {} PermitExpirableSemaphore,
    LeasedPermit,
    acquire_with,
    PermitOptions,
    release,
    |_| None,
    Self::is_valid
);

kind!(
    {} Semaphore,
    SemaphorePermit,
    acquire_with,
    PermitOptions,
    release,
    |_| None,
    // It has no lease.
    |_| true
);

impl Handle for LeaderElection {
    /// Until it is dropped.
    fn acquire(&self, _: Duration) -> BoxFuture<'_, Result<Box<dyn Guard>, Error>> {
        Box::pin(async move { Ok(Box::new(self.campaign().await?) as Box<dyn Guard>) })
    }
}

impl Guard for Leadership {
    fn is_valid(&self) -> bool {
        self.is_leader()
    }

    fn token(&self) -> Option<u64> {
        Some(self.term())
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move { self.resign().await.map(drop) })
    }
}
