//! The calls of a lock of any kind.

use std::time::Duration;

use super::fair_queue::FairQueue;
use super::keys::Channel;
use super::once::Mark;
use super::operation::NOTED;
use super::profile::Profile;
use super::reply::{AcquireReply, Malformed, Reply};
use super::rlock;
use super::script::Call;
use super::steal::Steal;
use crate::name::{HoldId, LockName};

/// One lock, as the engine sees it. The [`Profile`] describes its kind; the calls are here.
///
/// Every state-changing call sets a state, so it may be repeated after a lost reply. Only
/// [`acquire`](Self::acquire) creates anything.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// The properties of the kind.
    fn profile(&self) -> &'static Profile;

    /// The key that is locked.
    fn name(&self) -> &LockName;

    /// The channel of releases; `None` if waiters can only poll.
    fn channel(&self) -> Option<Channel<'_>> {
        Some(self.profile().channel?(self.name()))
    }

    /// Why a lock with this lease is not allowed.
    fn flaw(&self, _lease: Duration) -> Option<&'static str> {
        None
    }

    /// The number of permits of a hold; 1 for kinds without permits.
    fn permits(&self) -> u32 {
        1
    }

    /// The queue in Redis, for a kind where every waiter has a place there.
    fn queue(&self) -> Option<&FairQueue> {
        None
    }

    /// Takes the lock for a new hold. [`acquired`](Self::acquired) reads the reply.
    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Reads the reply to [`acquire`](Self::acquire).
    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        AcquireReply::try_from(reply)
    }

    /// The caller's state of the mark, for a kind whose holder may end all further acquisitions.
    fn mark(&self) -> Option<&Mark> {
        None
    }

    /// How long Redis keeps the last fencing token after an acquisition; `None`: for ever, or the kind has
    /// no tokens.
    fn token_ttl(&self) -> Option<Duration> {
        None
    }

    /// Sets the hold count. Also lengthens the lease, or shortens a longer one than was asked for. `None`: the
    /// kind has neither. Returns a [`HoldReply`](super::HoldReply). By default for a hash with one
    /// [`field`](Self::field) for each hold, whose TTL is the lease.
    fn update(&self, owner: &str, wanted: WantedLease, count: u32) -> Option<Call> {
        Some(rlock::update(self, owner, wanted, count, ""))
    }

    /// Ends the hold, and removes what an attempt of this owner left. Returns a
    /// [`HoldReply`](super::HoldReply), and the result of the announcement if there were waiters to wake
    /// ([`Reply::split`]). `noted`: how long Redis notes that the owner was withdrawn (zero: not at all), for
    /// kinds for which a late attempt would do lasting harm.
    fn end(&self, owner: &str, noted: Duration) -> Call;

    /// Releases the hold.
    fn release(&self, owner: &str) -> Call {
        self.end(owner, Duration::ZERO)
    }

    /// Releases the hold. If one of these waiters is next, it then has the lock, for the lease beside it.
    /// `None`: the kind has no queue in Redis. The announcement names the waiter
    /// ([`Announcement`](super::Announcement)). A repeat names the same waiters.
    fn grant(&self, _owner: &str, _waiters: &[(HoldId, Duration)]) -> Option<Call> {
        None
    }

    /// Releases the hold, if an attempt of this owner may still arrive. A late attempt then does nothing, for
    /// kinds for which it would do lasting harm.
    fn withdraw(&self, owner: &str) -> Call {
        self.end(owner, NOTED)
    }

    /// Ends the hold without releasing anything, if Redis has a record of it. Returns a
    /// [`HoldReply`](super::HoldReply). `repeated`: an attempt of this owner may still arrive.
    fn forget(&self, _owner: &str, _repeated: bool) -> Option<Call> {
        None
    }

    /// Ends the hold, and keeps the lock locked for the `rest` of its `min_hold`. `None`: not possible for
    /// this kind. Returns a [`HoldReply`](super::HoldReply). By default for a hash as for
    /// [`update`](Self::update).
    fn min_hold(&self, owner: &str, rest: Duration) -> Option<Call> {
        let call = || rlock::min_hold(self, owner, rest);
        self.profile().exclusive.then(call)
    }

    /// The hash in which holds are counted, unless they are [permits](Self::permit_ids) with leases.
    fn counted_in(&self) -> &str {
        self.name().as_str()
    }

    /// The field of that hash for a hold of this owner.
    fn field(&self, owner: &str) -> String {
        owner.to_owned()
    }

    /// The start of the names of the keys with the leases of a hold, if the TTL of `NAME` is not
    /// its lease.
    fn lease_keys(&self, _owner: &str) -> Option<String> {
        None
    }

    /// The ids of the permits of a hold, concatenated, for kinds with permits;
    /// [`lease_keys`](Self::lease_keys) is then the sorted set with their leases.
    fn permit_ids(&self, _owner: &str) -> Option<String> {
        None
    }

    /// The key that a renewal names. The set with the leases of [permits](Self::permit_ids) has no TTL if this
    /// key has none.
    fn renewed_key(&self) -> &str {
        self.name().as_str()
    }

    /// The relation of a lock of this kind to a caller under `held`.
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

/// The calls of handles of a lock, for any holder. The engine never sends them on its own.
pub(crate) trait LockRecipe: Recipe {
    /// Frees the lock from any holder. Returns 1 or 0, and the result of the announcement as
    /// [`release`](Recipe::release) does.
    fn force_release(&self) -> Call;

    /// Asks for the holders. [`Holder::decode`](super::Holder::decode) reads the reply. By default for a
    /// hash as for [`update`](Recipe::update).
    fn inspect(&self) -> Call {
        rlock::inspect(self.name())
    }
}

/// The parameters of an attempt to acquire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a str,
    pub(crate) lease: Duration,
    /// Whether the caller continues to wait if it is refused.
    pub(crate) waits: bool,
    /// How long the caller waits from now on; `None`: without a limit.
    pub(crate) rest: Option<Duration>,
    /// How many fencing tokens the process may give to its own holders, for a kind with tokens.
    pub(crate) tokens: u32,
    /// The owner of the hold under which this one is taken ([`Relation::Joins`]).
    pub(crate) under: Option<&'a str>,
    /// The holder from which to take it, for a kind that can be stolen.
    pub(crate) steal: Option<&'a Steal>,
}

/// A lease that a command other than the acquiring one asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedLease {
    /// Zero: the lease does not change.
    pub(crate) lease: Duration,
    /// The longest lease that any command for the hold has asked for; a longer one is shortened.
    pub(crate) most: Duration,
}

/// The relation of a lock to a caller that has another lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The locks are unrelated.
    None,
    /// The same lock: it is re-entered.
    Same,
    /// Another mode of the lock, which its holder may take in addition.
    Joins,
    /// Another mode of the lock, for which its holder would wait for ever.
    Deadlocks,
}
