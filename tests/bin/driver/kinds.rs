//! The kinds of locks: each a word before the command's dot, a line in two tables, and a handle.

use std::{
    fmt::{self, Debug, Display},
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_rt::{
    Adoptable, Client, ConvertError, Error, Fair, FairLock, Fenced, GuardState, HoldId, Kind, Lock,
    LockGuard, LockOptions, LostReason, MultiLock, MultiLockGuard, Read, RedLock, RedLockGuard,
    Reentrant, Spin, Ticket, Unlocked, Write,
};

use super::{answer::Failure, clients::Connected};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKind {
    Reentrant,
    Fair,
    Fenced,
    Spin,
    /// Of several names, with commas between them.
    Multi,
    Read,
    Write,
    /// Over the servers of a client that was connected to several.
    Red,
}

/// The words of the kinds, before the dot; the commands of RLock have none.
const WORDS: &[(&str, LockKind)] = &[
    ("fair", LockKind::Fair),
    ("fenced", LockKind::Fenced),
    ("spin", LockKind::Spin),
    ("multi", LockKind::Multi),
    ("red", LockKind::Red),
    ("rw.read", LockKind::Read),
    ("rw.write", LockKind::Write),
];

impl LockKind {
    pub(crate) fn named(word: &str) -> Option<Self> {
        let mut words = WORDS.iter();
        words.find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    }

    fn word(self) -> Option<&'static str> {
        let mut words = WORDS.iter();
        words.find(|(_, kind)| *kind == self).map(|(word, _)| *word)
    }
}

/// A lock of a client: those of different kinds may have one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockId {
    kind: LockKind,
    name: String,
}

impl LockId {
    pub(crate) fn new(kind: LockKind, name: &str) -> Self {
        let name = name.to_owned();
        Self { kind, name }
    }

    /// The locks of this name that are meant: those of all kinds, unless one is named.
    pub(crate) fn of_any_kind(&self) -> Vec<Self> {
        let named = WORDS.iter().map(|(_, kind)| Self::new(*kind, &self.name));
        match self.kind {
            LockKind::Reentrant => std::iter::once(self.clone()).chain(named).collect(),
            _ => vec![self.clone()],
        }
    }

    pub(crate) fn open(&self, connected: &Connected) -> Result<Box<dyn Handle>, Failure> {
        let (name, client) = (&self.name, &connected.client);
        Ok(match self.kind {
            LockKind::Reentrant => Box::new(client.rlock(name)),
            LockKind::Fair => Box::new(client.fair_lock(name)),
            LockKind::Fenced => Box::new(client.fenced_lock(name)),
            LockKind::Spin => Box::new(client.spin_lock(name)),
            LockKind::Multi => Box::new(client.multi_lock(name.split(','))),
            LockKind::Read => Box::new(client.read_write_lock(name).read_lock()),
            LockKind::Write => Box::new(client.read_write_lock(name).write_lock()),
            LockKind::Red => match &connected.quorum {
                Some(quorum) => Box::new(quorum.redlock(name)),
                None => {
                    return Err(Failure::usage(
                        "the client is connected to one server: red:",
                    ));
                }
            },
        })
    }

    /// The other mode of a lock that has two, into which its guards are converted.
    pub(crate) fn other_mode(&self) -> Self {
        let kind = match self.kind {
            LockKind::Read => LockKind::Write,
            LockKind::Write => LockKind::Read,
            kind => kind,
        };
        Self::new(kind, &self.name)
    }
}

impl Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.word() {
            Some(word) => write!(f, "{word} {}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A handle to a lock of any kind.
pub(crate) trait Handle: Send + Sync {
    /// Whether `lock` answers the token of the hold.
    fn has_tokens(&self) -> bool {
        false
    }

    /// Of a kind whose waiters have a place in Redis.
    fn queue(&self) -> Option<&FairLock> {
        None
    }

    /// Goes on with the hold of a ticket.
    fn adopt(&self, _: &Client, _: Ticket) -> BoxFuture<'static, Adopted> {
        Box::pin(async { Err(no_tickets()) })
    }
    fn lock(&self, options: LockOptions) -> BoxFuture<'_, Result<Box<dyn Held>, Error>>;
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn is_locked(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn ttl(&self) -> BoxFuture<'_, Result<Option<Duration>, Error>>;
    fn holders(&self) -> BoxFuture<'_, Result<Vec<HoldId>, Error>>;
}

/// A guard of any kind.
pub(crate) trait Held: Debug + Send + Sync {
    fn state(&self) -> GuardState;
    fn lost(&self) -> BoxFuture<'_, LostReason>;
    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>>;
    fn hold_id(&self) -> HoldId;
    fn hold_count(&self) -> u32;
    fn token(&self) -> Option<u64>;
    fn convert(self: Box<Self>) -> BoxFuture<'static, Converted>;
    fn ticket(self: Box<Self>) -> Left;
}

/// A guard that goes on with the hold of a ticket.
pub(crate) type Adopted = Result<Box<dyn Held>, Failure>;
/// The text of a ticket; or the guard that there is, and why.
pub(crate) type Left = Result<String, (Box<dyn Held>, Failure)>;

/// A guard in the other mode; or the one that there was, and why.
pub(crate) type Converted = Result<Box<dyn Held>, (Box<dyn Held>, Failure)>;

/// What the driver must know of a kind besides what all have.
pub(crate) trait Known: Kind + Sized {
    const HAS_TOKENS: bool = false;

    fn token(_guard: &LockGuard<Self>) -> Option<u64> {
        None
    }

    /// Where waiters have a place in Redis.
    fn queue(_lock: &Lock<Self>) -> Option<&FairLock> {
        None
    }

    fn convert(guard: LockGuard<Self>) -> BoxFuture<'static, Converted> {
        let why = Failure::usage("it has one mode only");
        Box::pin(async { Err((Box::new(guard) as Box<dyn Held>, why)) })
    }

    fn ticket(guard: LockGuard<Self>) -> Left {
        Err((Box::new(guard), no_tickets()))
    }

    fn adopt(_: &Client, _: Ticket) -> BoxFuture<'static, Adopted> {
        Box::pin(async { Err(no_tickets()) })
    }
}

fn no_tickets() -> Failure {
    Failure::usage("it has no tickets")
}

fn adopted<K: Known + Adoptable>(client: &Client, ticket: Ticket) -> BoxFuture<'static, Adopted> {
    let client = client.clone();
    Box::pin(async move {
        let guard = client.adopt::<K>(&ticket).await?;
        Ok(Box::new(guard) as Box<dyn Held>)
    })
}

fn left<K: Known + Adoptable>(guard: LockGuard<K>) -> Left {
    let ticket = guard.into_ticket().map_err(|refused| {
        let why = refused.error().into();
        (Box::new(refused.into_guard()) as Box<dyn Held>, why)
    });
    ticket.map(|ticket| ticket.to_string())
}

impl Known for Reentrant {
    fn ticket(guard: LockGuard<Self>) -> Left {
        left(guard)
    }

    fn adopt(client: &Client, ticket: Ticket) -> BoxFuture<'static, Adopted> {
        adopted::<Self>(client, ticket)
    }
}

impl Known for Fair {
    fn queue(lock: &Lock<Self>) -> Option<&FairLock> {
        Some(lock)
    }
}

impl Known for Fenced {
    const HAS_TOKENS: bool = true;

    fn token(guard: &LockGuard<Self>) -> Option<u64> {
        Some(guard.token())
    }

    fn ticket(guard: LockGuard<Self>) -> Left {
        left(guard)
    }

    fn adopt(client: &Client, ticket: Ticket) -> BoxFuture<'static, Adopted> {
        adopted::<Self>(client, ticket)
    }
}

impl Known for Spin {}

impl Known for Read {
    fn convert(guard: LockGuard<Self>) -> BoxFuture<'static, Converted> {
        Box::pin(async { converted(guard.try_upgrade().await) })
    }
}

impl Known for Write {
    fn convert(guard: LockGuard<Self>) -> BoxFuture<'static, Converted> {
        Box::pin(async { converted(guard.downgrade().await) })
    }
}

fn converted<K: Known, L: Known>(outcome: Result<LockGuard<K>, ConvertError<L>>) -> Converted {
    match outcome {
        Ok(guard) => Ok(Box::new(guard)),
        Err(refused) => {
            let why = refused.error().into();
            Err((Box::new(refused.into_guard()), why))
        }
    }
}

/// The methods that all types have by the same names, and no trait in common.
macro_rules! as_the_lock_has_them {
    () => {
        fn lock(&self, options: LockOptions) -> BoxFuture<'_, Result<Box<dyn Held>, Error>> {
            Box::pin(async {
                let guard = self.lock_with(options).await?;
                Ok(Box::new(guard) as Box<dyn Held>)
            })
        }

        fn force_unlock(&self) -> BoxFuture<'_, Result<bool, Error>> {
            Box::pin(self.force_unlock())
        }

        fn is_locked(&self) -> BoxFuture<'_, Result<bool, Error>> {
            Box::pin(self.is_locked())
        }

        fn ttl(&self) -> BoxFuture<'_, Result<Option<Duration>, Error>> {
            Box::pin(self.remaining_ttl())
        }

        fn holders(&self) -> BoxFuture<'_, Result<Vec<HoldId>, Error>> {
            Box::pin(self.holders())
        }
    };
}

macro_rules! as_the_guard_has_them {
    () => {
        fn state(&self) -> GuardState {
            self.state()
        }

        fn lost(&self) -> BoxFuture<'_, LostReason> {
            Box::pin(self.lost())
        }

        fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>> {
            Box::pin((*self).unlock())
        }

        fn hold_count(&self) -> u32 {
            self.hold_count()
        }
    };
}

impl<K: Known> Handle for Lock<K> {
    as_the_lock_has_them!();

    fn has_tokens(&self) -> bool {
        K::HAS_TOKENS
    }

    fn queue(&self) -> Option<&FairLock> {
        K::queue(self)
    }

    fn adopt(&self, client: &Client, ticket: Ticket) -> BoxFuture<'static, Adopted> {
        K::adopt(client, ticket)
    }
}

impl<K: Known> Held for LockGuard<K> {
    as_the_guard_has_them!();

    fn hold_id(&self) -> HoldId {
        self.hold_id().clone()
    }

    fn token(&self) -> Option<u64> {
        K::token(self)
    }

    fn convert(self: Box<Self>) -> BoxFuture<'static, Converted> {
        K::convert(*self)
    }

    fn ticket(self: Box<Self>) -> Left {
        K::ticket(*self)
    }
}

macro_rules! composite {
    ($lock:ty, $guard:ty) => {
        impl Handle for $lock {
            as_the_lock_has_them!();
        }

        impl Held for $guard {
            as_the_guard_has_them!();

            /// That of the first of its holds.
            fn hold_id(&self) -> HoldId {
                let mut owners = self.hold_ids();
                owners.swap_remove(0)
            }

            fn token(&self) -> Option<u64> {
                None
            }

            fn convert(self: Box<Self>) -> BoxFuture<'static, Converted> {
                let why = Failure::usage("it has one mode only");
                Box::pin(async { Err((self as Box<dyn Held>, why)) })
            }

            fn ticket(self: Box<Self>) -> Left {
                Err((self, no_tickets()))
            }
        }
    };
}

composite!(MultiLock, MultiLockGuard);
composite!(RedLock, RedLockGuard);
