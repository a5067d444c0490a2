//! The kinds of locks: each a word before the command's dot, a line in two tables, and a handle.

use std::{
    fmt::{self, Debug, Display},
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_rt::{
    Error, GuardState, Kind, Lock, LockGuard, LockOptions, LostReason, MultiLock, MultiLockGuard,
    OwnerId, RedLock, RedLockGuard, Reentrant, Unlocked,
};

use super::{answer::Failure, clients::Connected};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKind {
    Reentrant,
    /// Of several names, with commas between them.
    Multi,
    /// Over the servers of a client that was connected to several.
    Red,
}

/// The words of the kinds, before the dot; the commands of RLock have none.
const WORDS: &[(&str, LockKind)] = &[("multi", LockKind::Multi), ("red", LockKind::Red)];

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

    pub(crate) fn open(&self, connected: &Connected) -> Result<Box<dyn Handle>, Failure> {
        let (name, client) = (&self.name, &connected.client);
        Ok(match self.kind {
            LockKind::Reentrant => Box::new(client.rlock(name)),
            LockKind::Multi => Box::new(client.multi_lock(name.split(','))),
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

    fn lock(&self, options: LockOptions) -> BoxFuture<'_, Result<Box<dyn Held>, Error>>;
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn is_locked(&self) -> BoxFuture<'_, Result<bool, Error>>;
    fn ttl(&self) -> BoxFuture<'_, Result<Option<Duration>, Error>>;
    fn holders(&self) -> BoxFuture<'_, Result<Vec<OwnerId>, Error>>;
}

/// A guard of any kind.
pub(crate) trait Held: Debug + Send + Sync {
    fn state(&self) -> GuardState;
    fn lost(&self) -> BoxFuture<'_, LostReason>;
    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>>;
    fn owner(&self) -> OwnerId;
    fn hold_count(&self) -> u32;
    fn token(&self) -> Option<u64>;
}

/// What the driver must know of a kind besides what all have.
pub(crate) trait Known: Kind + Sized {
    const HAS_TOKENS: bool = false;

    fn token(_guard: &LockGuard<Self>) -> Option<u64> {
        None
    }
}

impl Known for Reentrant {}

impl<K: Known> Handle for Lock<K> {
    fn has_tokens(&self) -> bool {
        K::HAS_TOKENS
    }

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

    fn holders(&self) -> BoxFuture<'_, Result<Vec<OwnerId>, Error>> {
        Box::pin(self.holders())
    }
}

impl<K: Known> Held for LockGuard<K> {
    fn state(&self) -> GuardState {
        self.state()
    }

    fn lost(&self) -> BoxFuture<'_, LostReason> {
        Box::pin(self.lost())
    }

    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>> {
        Box::pin((*self).unlock())
    }

    fn owner(&self) -> OwnerId {
        self.owner().clone()
    }

    fn hold_count(&self) -> u32 {
        self.hold_count()
    }

    fn token(&self) -> Option<u64> {
        K::token(self)
    }
}

impl Handle for MultiLock {
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

    fn holders(&self) -> BoxFuture<'_, Result<Vec<OwnerId>, Error>> {
        Box::pin(self.holders())
    }
}

impl Held for MultiLockGuard {
    fn state(&self) -> GuardState {
        self.state()
    }

    fn lost(&self) -> BoxFuture<'_, LostReason> {
        Box::pin(self.lost())
    }

    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>> {
        Box::pin((*self).unlock())
    }

    /// That of the first of its holds.
    fn owner(&self) -> OwnerId {
        let mut owners = self.owners();
        owners.swap_remove(0)
    }

    fn hold_count(&self) -> u32 {
        self.hold_count()
    }

    fn token(&self) -> Option<u64> {
        None
    }
}

impl Handle for RedLock {
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

    fn holders(&self) -> BoxFuture<'_, Result<Vec<OwnerId>, Error>> {
        Box::pin(self.holders())
    }
}

impl Held for RedLockGuard {
    fn state(&self) -> GuardState {
        self.state()
    }

    fn lost(&self) -> BoxFuture<'_, LostReason> {
        Box::pin(self.lost())
    }

    fn unlock(self: Box<Self>) -> BoxFuture<'static, Result<Unlocked, Error>> {
        Box::pin((*self).unlock())
    }

    /// That of the first of its holds.
    fn owner(&self) -> OwnerId {
        let mut owners = self.owners();
        owners.swap_remove(0)
    }

    fn hold_count(&self) -> u32 {
        self.hold_count()
    }

    fn token(&self) -> Option<u64> {
        None
    }
}
