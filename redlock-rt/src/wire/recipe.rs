//! The calls of a lock, of whatever kind.

use std::time::Duration;

use super::fair::FairQueue;
use super::profile::Profile;
use super::reply::{AcquireReply, Malformed, Reply};
use super::script::Call;
use crate::name::{HoldId, LockName};

/// One lock to the engine, which knows nothing else of its kind. What a kind is stands in its
/// [`Profile`]; what it sends is here.
///
/// Every state-changing call sets the state that it means, so it may be repeated after a lost
/// reply, and none but [`acquire`](Self::acquire) creates anything.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// What is particular to the kind.
    fn profile(&self) -> &'static Profile;

    /// The key that is locked.
    fn name(&self) -> &LockName;

    /// Where releases are announced; `None` where waiters can only poll.
    fn channel(&self) -> Option<&str>;

    /// Why a lock with this lease cannot be asked for.
    fn flaw(&self, _lease: Duration) -> Option<&'static str> {
        None
    }

    /// How many permits a hold takes; 1 where there are none.
    fn permits(&self) -> u32 {
        1
    }

    /// The queue in Redis, of a kind where every waiter has a place there.
    fn queue(&self) -> Option<&FairQueue> {
        None
    }

    /// Takes the lock for a new hold. [`acquired`](Self::acquired) reads the reply.
    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Reads the reply to [`acquire`](Self::acquire).
    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        AcquireReply::try_from(reply)
    }

    /// Sets the hold count and never shortens the lease; `None`: the kind has neither. Returns a
    /// [`HoldReply`](super::HoldReply).
    fn update(&self, _owner: &HoldId, _lease: Duration, _count: u32) -> Option<Call> {
        None
    }

    /// Ends the hold, and whatever an attempt of this owner left. Returns a
    /// [`HoldReply`](super::HoldReply), and where waiters were to be woken, what became of that
    /// ([`Reply::split`]).
    fn release(&self, owner: &HoldId) -> Call;

    /// As [`release`](Self::release), where an attempt of this owner may still be on its way: one
    /// that comes later does nothing, where it would do lasting harm.
    fn withdraw(&self, owner: &HoldId) -> Call {
        self.release(owner)
    }

    /// Ends the hold without giving anything back, where Redis has note of it. Returns a
    /// [`HoldReply`](super::HoldReply). `repeated`: an attempt of this owner may still be on its way.
    fn forget(&self, _owner: &HoldId, _repeated: bool) -> Option<Call> {
        None
    }

    /// Ends the hold, and leaves the lock locked for `rest` of its shortest time; `None`: not of this
    /// kind. Returns a [`HoldReply`](super::HoldReply).
    fn min_hold(&self, _owner: &HoldId, _rest: Duration) -> Option<Call> {
        None
    }

    /// The field of the hash `NAME` in which a hold of this owner is counted.
    fn field(&self, owner: &HoldId) -> String {
        owner.as_str().to_owned()
    }

    /// The start of the names of keys that carry the leases of a hold, where the TTL of `NAME` is
    /// not its own.
    fn lease_keys(&self, _owner: &HoldId) -> Option<String> {
        None
    }

    /// The ids of the permits of a hold, one behind the other, where permits are held;
    /// [`lease_keys`](Self::lease_keys) then names the sorted set that carries their leases.
    fn permit_ids(&self, _owner: &HoldId) -> Option<String> {
        None
    }

    /// What a lock of this kind is to a caller who is under `held`.
    fn relation(&self, held: &dyn Recipe) -> Relation {
        let (profile, kind) = (self.profile(), held.profile().kind);
        if self.name() != held.name() {
            Relation::None
        } else if profile.reenters.contains(&kind) {
            Relation::Same
        } else if profile.joins.contains(&kind) {
            Relation::Joins
        } else if profile.deadlocks_under.contains(&kind) {
            Relation::Deadlocks
        } else {
            Relation::None
        }
    }
}

/// What the handles of a lock ask and do, whoever holds it: the engine never does so by itself.
pub(crate) trait LockRecipe: Recipe {
    /// Frees the lock whoever holds it. Returns 1 or 0, and what became of the announcement as
    /// [`release`](Recipe::release) does.
    fn force_release(&self) -> Call;

    /// Asks who holds it. [`Holder::decode`](super::Holder::decode) reads the reply.
    fn inspect(&self) -> Call;
}

/// What an attempt to acquire asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a HoldId,
    pub(crate) lease: Duration,
    /// Whether the caller goes on waiting where it is refused.
    pub(crate) waits: bool,
    /// For how long it waits from now on; `None`: without end.
    pub(crate) rest: Option<Duration>,
    /// The owner of the hold under which this one is taken ([`Relation::Joins`]).
    pub(crate) under: Option<&'a HoldId>,
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
