//! What a kind of lock is to the engine.

use std::time::Duration;

use super::fair::FairQueue;
use super::reply::{AcquireReply, Malformed, Reply};
use super::script::Call;
use crate::name::{LockName, OwnerId};

/// What differs between lock kinds; the engine knows nothing else of them.
///
/// Every state-changing call sets the state that it means, so it may be repeated after a lost
/// reply, and none but [`acquire`](Self::acquire) creates anything.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// Tells kinds apart where holds are looked up by name, for re-entry.
    fn kind(&self) -> &'static str;

    /// The key that is locked.
    fn name(&self) -> &LockName;

    /// Where releases are announced; `None` where waiters can only poll.
    fn channel(&self) -> Option<&str>;

    /// Why a lock with this lease cannot be asked for.
    fn flaw(&self, _lease: Duration) -> Option<&'static str> {
        None
    }

    /// Takes the lock for a new hold. Answered by what [`acquired`](Self::acquired) reads.
    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Reads the answer to [`acquire`](Self::acquire).
    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        AcquireReply::try_from(reply)
    }

    /// Sets the hold count and never shortens the lease. Answered by
    /// [`HoldReply`](super::HoldReply).
    fn update(&self, owner: &OwnerId, lease: Duration, count: u32) -> Call;

    /// Ends the hold, and whatever an attempt of this owner left. Answered by
    /// [`HoldReply`](super::HoldReply), and where waiters were to be woken, what became of that
    /// ([`Reply::split`]).
    fn release(&self, owner: &OwnerId) -> Call;

    /// As [`release`](Self::release), where an attempt of this owner may still be on its way: one
    /// that comes later does nothing, where it would do lasting harm.
    fn withdraw(&self, owner: &OwnerId) -> Call {
        self.release(owner)
    }

    /// Whether [`withdraw`](Self::withdraw) is more than a release.
    fn notes_withdrawals(&self) -> bool {
        false
    }

    /// Ends the hold without giving anything back, where Redis has note of it. Answered by
    /// [`HoldReply`](super::HoldReply). `repeated`: an attempt of this owner may still be on its way.
    fn forget(&self, _owner: &OwnerId, _repeated: bool) -> Option<Call> {
        None
    }

    /// Ends the hold, and leaves the lock locked for `rest`; `None`: not of this kind. Answered by
    /// [`HoldReply`](super::HoldReply).
    fn stay(&self, _owner: &OwnerId, _rest: Duration) -> Option<Call> {
        None
    }

    /// Frees the lock whoever holds it. Answers 1 or 0, as [`release`](Self::release) does.
    fn force_release(&self) -> Call;

    /// Asks who holds it. Answered by [`Holder::decode`](super::Holder::decode).
    fn inspect(&self) -> Call;

    /// The field of the hash `NAME` in which a hold of this owner is counted.
    fn field(&self, owner: &OwnerId) -> String {
        owner.as_str().to_owned()
    }

    /// The start of the names of keys that carry the leases of a hold, where the TTL of `NAME` is
    /// not its own.
    fn lease_keys(&self, _owner: &OwnerId) -> Option<String> {
        None
    }

    /// The ids of the permits of a hold, one behind the other, where permits are held;
    /// [`lease_keys`](Self::lease_keys) then names the sorted set that carries their leases.
    fn permit_ids(&self, _owner: &OwnerId) -> Option<String> {
        None
    }

    /// How many leases the watchdog's call looks at for a hold with so many guards.
    fn weight(&self, _count: u32) -> usize {
        1
    }

    /// How often a hold is to be looked after at least, renewed or not, where others may shorten
    /// its lease.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Whether a hold that nobody gives back stays: it has no lease.
    fn is_lasting(&self) -> bool {
        false
    }

    /// Whether one hold excludes all others of this kind.
    fn is_exclusive(&self) -> bool {
        true
    }

    /// Whether the next may have it as well, after one who got `token` with it.
    fn leaves_more(&self, _token: Option<u64>) -> bool {
        !self.is_exclusive()
    }

    /// Whether who asks for less than this may have it where this was refused.
    fn asks_for_many(&self) -> bool {
        false
    }

    /// The other kinds whose holds of the same lock are over once a fresh one of this kind is held; none
    /// where there is no other kind.
    fn supersedes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether an attempt that goes on waiting leaves something in Redis that
    /// [`release`](Self::release) must take away.
    fn leaves_traces(&self) -> bool {
        false
    }

    /// The queue in Redis, of a kind where every waiter has a place there.
    fn queue(&self) -> Option<&FairQueue> {
        None
    }

    /// What a lock of this kind is to a caller who is under `held`.
    fn relation(&self, held: &dyn Recipe) -> Relation {
        if self.kind() == held.kind() && self.name() == held.name() {
            Relation::Same
        } else {
            Relation::None
        }
    }
}

/// What an attempt to acquire asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a OwnerId,
    pub(crate) lease: Duration,
    /// Whether the caller goes on waiting where it is refused.
    pub(crate) waits: bool,
    /// For how long it waits from now on; `None`: without end.
    pub(crate) rest: Option<Duration>,
    /// The owner of the hold under which this one is taken ([`Relation::Joins`]).
    pub(crate) under: Option<&'a OwnerId>,
}

/// What a lock is to a caller who has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Nothing.
    None,
    /// The very lock: it is re-entered.
    Same,
    /// Another mode of it, which the holder of this one may take besides.
    Joins,
    /// Another mode of it, for which the holder of this one would wait for ever.
    Deadlocks,
}
