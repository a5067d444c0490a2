//! The calls of a lock of any kind.

use std::time::Duration;

use super::fair_queue::FairQueue;
use super::keys::Channel;
use super::profile::Profile;
use super::reply::{AcquireReply, HoldReply, Malformed, Reply};
use super::script::Call;
use crate::name::{HoldId, LockName};

/// One lock, as the engine sees it. The [`Profile`] describes its kind; the calls are here.
///
/// Every state-changing call sets a state, so it may be repeated after a lost reply. Only
/// [`acquire`](Self::acquire) creates anything.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// What is particular to the kind.
    fn profile(&self) -> &'static Profile;

    /// The key that is locked.
    fn name(&self) -> &LockName;

    /// The channel of releases; `None` if waiters can only poll.
    fn channel(&self) -> Option<Channel<'_>>;

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

    /// Ends the hold of `from` and takes the lock for the owner that asks, in one call; `None`: not
    /// possible for this kind. Nothing is announced. [`passed`](Self::passed) reads the reply.
    fn pass(&self, _from: &str, _ask: &Ask<'_>) -> Option<Call> {
        None
    }

    /// Reads the reply to [`pass`](Self::pass).
    fn passed(&self, reply: Reply) -> Result<Passed, Malformed> {
        let malformed = || Malformed(reply.clone());
        let Reply::List(items) = &reply else {
            return Err(malformed());
        };
        let [ended, next] = items.as_slice() else {
            return Err(malformed());
        };
        let passed = Passed {
            ended: HoldReply::try_from(ended.clone())?,
            next: self.acquired(next.clone())?,
        };
        match (passed.ended, passed.next) {
            (HoldReply::Done | HoldReply::Gone, AcquireReply::Acquired(_))
            | (HoldReply::Taken, AcquireReply::Held(_)) => Ok(passed),
            _ => Err(malformed()),
        }
    }

    /// Differs between handles of one lock whose acquisitions are not the same. None of them passes
    /// the lock on to another.
    fn variant(&self) -> u64 {
        0
    }

    /// Sets the hold count, and lengthens the lease or cuts what was not asked for; `None`: the kind has
    /// neither. Returns a [`HoldReply`](super::HoldReply).
    fn update(&self, _owner: &str, _wanted: Wanted, _count: u32) -> Option<Call> {
        None
    }

    /// Ends the hold, and removes what an attempt of this owner left. Returns a
    /// [`HoldReply`](super::HoldReply), and the result of the announcement if waiters were to be
    /// woken ([`Reply::split`]).
    fn release(&self, owner: &str) -> Call;

    /// As [`release`](Self::release); if one of these waiters is next, it has the lock then, for the
    /// lease beside it. `None`: the kind has no queue in Redis. The announcement names the waiter
    /// ([`Announcement`](super::Announcement)). A repeat names the same waiters.
    fn grant(&self, _owner: &str, _waiters: &[(HoldId, Duration)]) -> Option<Call> {
        None
    }

    /// As [`release`](Self::release), if an attempt of this owner may still be on its way: a late
    /// attempt then does nothing, for kinds where it would do lasting harm.
    fn withdraw(&self, owner: &str) -> Call {
        self.release(owner)
    }

    /// Ends the hold without giving anything back, if Redis has a record of it. Returns a
    /// [`HoldReply`](super::HoldReply). `repeated`: an attempt of this owner may still be on its
    /// way.
    fn forget(&self, _owner: &str, _repeated: bool) -> Option<Call> {
        None
    }

    /// Ends the hold, and keeps the lock locked for `rest` of its shortest hold; `None`: not
    /// possible for this kind. Returns a [`HoldReply`](super::HoldReply).
    fn min_hold(&self, _owner: &str, _rest: Duration) -> Option<Call> {
        None
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

/// The calls of handles of a lock, whoever holds it. The engine never sends them by itself.
pub(crate) trait LockRecipe: Recipe {
    /// Frees the lock, whoever holds it. Returns 1 or 0, and the result of the announcement as
    /// [`release`](Recipe::release) does.
    fn force_release(&self) -> Call;

    /// Asks for the holders. [`Holder::decode`](super::Holder::decode) reads the reply.
    fn inspect(&self) -> Call;
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
    /// The owner of the hold under which this one is taken ([`Relation::Joins`]).
    pub(crate) under: Option<&'a str>,
}

/// A lease that a command asks for, besides the acquiring one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Zero: it stays as it is.
    pub(crate) lease: Duration,
    /// The longest that any command for the hold has asked for; a longer one is cut.
    pub(crate) most: Duration,
}

/// The reply to [`Recipe::pass`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    /// What became of the hold that was to end.
    pub(crate) ended: HoldReply,
    /// Whether the other owner has the lock.
    pub(crate) next: AcquireReply,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Acquired, FencedWire, RLockWire};

    #[test]
    fn a_pass_has_two_answers_that_agree() {
        let name = || LockName::new(None, "n").unwrap();
        let (plain, fenced) = (RLockWire::new(name()), FencedWire::new(name(), None));
        let list = |ended: i64, next: &Reply| Reply::List(vec![Reply::Int(ended), next.clone()]);
        let (nil, token, ttl) = (Reply::Nil, Reply::Text("70".into()), Reply::Int(5));
        let held = AcquireReply::Held(Some(Duration::from_millis(5)));
        let acquired = |token| {
            AcquireReply::Acquired(Acquired {
                token,
                ..Acquired::default()
            })
        };
        let passed = |ended, next| Ok(Passed { ended, next });
        for (number, ended) in [(1, HoldReply::Done), (0, HoldReply::Gone)] {
            let reply = plain.passed(list(number, &nil));
            assert_eq!(reply, passed(ended, acquired(None)));
            let reply = fenced.passed(list(number, &token));
            assert_eq!(reply, passed(ended, acquired(Some(70))));
            assert!(plain.passed(list(number, &ttl)).is_err());
            assert!(fenced.passed(list(number, &nil)).is_err(), "no token");
        }
        let taken = passed(HoldReply::Taken, held);
        assert_eq!(plain.passed(list(-1, &ttl)), taken);
        assert_eq!(fenced.passed(list(-1, &ttl)), taken);
        assert!(plain.passed(list(-1, &nil)).is_err());
        for odd in [nil, Reply::Int(1), Reply::List(vec![Reply::Int(1)])] {
            assert_eq!(plain.passed(odd.clone()), Err(Malformed(odd)));
        }
    }
}
