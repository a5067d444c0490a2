//! The properties of each kind of lock, in one table.

use std::time::Duration;

use super::keys::{self, Channel};
use crate::name::LockName;

/// One kind of lock. Statements about other kinds refer to their holds of the same name.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Identifies the kind in look-ups of waiters and holds.
    pub(crate) kind: &'static str,
    /// One hold excludes all others of this kind.
    pub(crate) exclusive: bool,
    /// A task of the client may take over the hold of another one.
    pub(crate) hands_over: bool,
    /// Each hold has a fencing token.
    pub(crate) fenced: bool,
    pub(crate) leases: Leases,
    /// The channel of releases; `None` if waiters can only poll.
    pub(super) channel: Option<fn(&LockName) -> Channel<'_>>,
    /// How often a hold is checked at least, renewed or not, if other clients may shorten its
    /// lease.
    pub(crate) look_every: Option<Duration>,
    /// A refused attempt that continues to wait leaves something in Redis, which a release must remove.
    pub(crate) leaves_traces: bool,
    /// Redis ends a hold together with other holds, so a missing hold need not be lost: its caller looks.
    pub(crate) ends_with_others: bool,
    /// [`Recipe::withdraw`](super::Recipe::withdraw) is more than a release.
    pub(crate) notes_withdrawals: bool,
    /// The kinds whose holder re-enters its hold when it asks for this kind.
    pub(crate) reenters: &'static [&'static str],
    /// The kinds whose holder may also have a hold of this kind.
    pub(crate) joins: &'static [&'static str],
    /// The kinds whose holder would wait for this kind for ever.
    pub(crate) deadlocks_under: &'static [&'static str],
    /// The other kinds whose holds have ended when a new hold of this kind exists.
    pub(crate) supersedes: &'static [&'static str],
}

/// Where the lease of a hold is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leases {
    /// Nowhere: an unreleased hold lasts for ever.
    None,
    /// One key, or one field.
    One,
    /// A key for each guard of the hold.
    EachGuard,
    /// An id for each permit of the hold.
    EachPermit,
}

impl Profile {
    /// Whether an unreleased hold lasts for ever.
    pub(crate) fn is_lasting(&self) -> bool {
        self.leases == Leases::None
    }
}

impl Leases {
    /// The number of leases that the watchdog's call reads for a hold with this many guards and
    /// permits.
    pub(crate) fn weight(self, guards: u32, permits: u32) -> usize {
        let leases = match self {
            Self::None | Self::One => 1,
            Self::EachGuard => guards,
            Self::EachPermit => permits,
        };
        usize::try_from(leases).unwrap_or(usize::MAX).max(1)
    }
}

/// Whether a client that wants this kind lets others try first. Readers and parties exclude no others.
pub(crate) fn yields(kind: &str) -> bool {
    ![READ.kind, BARRIER.kind, DOUBLE_BARRIER.kind].contains(&kind)
}

/// The defaults of a row.
const PLAIN: Profile = Profile {
    kind: "",
    exclusive: true,
    hands_over: false,
    fenced: false,
    leases: Leases::One,
    channel: Some(keys::lock_channel),
    look_every: None,
    leaves_traces: false,
    ends_with_others: false,
    notes_withdrawals: false,
    reenters: &[],
    joins: &[],
    deadlocks_under: &[],
    supersedes: &[],
};

pub(super) const RLOCK: Profile = Profile {
    kind: "rlock",
    hands_over: true,
    reenters: &["rlock"],
    ..PLAIN
};

pub(super) const SPIN: Profile = Profile {
    kind: "spin",
    channel: None,
    reenters: &["spin"],
    ..PLAIN
};

pub(super) const FENCED: Profile = Profile {
    kind: "fenced",
    hands_over: true,
    fenced: true,
    reenters: &["fenced"],
    ..PLAIN
};

/// A caller under such a hold would wait for itself.
pub(super) const ONCE: Profile = Profile {
    kind: "once",
    fenced: true,
    deadlocks_under: &["once"],
    ..PLAIN
};

/// A leader's term is the token of its own call.
pub(super) const LEADER: Profile = Profile {
    kind: "leader",
    hands_over: false,
    reenters: &["leader"],
    ..FENCED
};

/// Every waiter has a place in Redis, and is notified by itself, through the [`queue`](super::Recipe::queue).
pub(super) const FAIR: Profile = Profile {
    kind: "fair",
    channel: None,
    leaves_traces: true,
    reenters: &["fair"],
    ..PLAIN
};

/// Another client's renewal may cut the TTL of the lock to its own lease (Redisson's does). With
/// this interval, a read lease survives a cut to 2 s or more, even if the other client dies.
const LOOK_EVERY: Duration = Duration::from_millis(1500);

pub(super) const READ: Profile = Profile {
    kind: "rw.read",
    exclusive: false,
    leases: Leases::EachGuard,
    channel: Some(keys::rw_channel),
    look_every: Some(LOOK_EVERY),
    reenters: &["rw.read"],
    joins: &["rw.write", "rw.write.preferred"],
    supersedes: &["rw.write", "rw.write.preferred"],
    ..PLAIN
};

pub(super) const WRITE: Profile = Profile {
    kind: "rw.write",
    channel: Some(keys::rw_channel),
    reenters: &["rw.write", "rw.write.preferred"],
    deadlocks_under: &["rw.read"],
    supersedes: &["rw.write.preferred", "rw.read"],
    ..PLAIN
};

/// The same lock as [`WRITE`]. A separate kind, so that in the local queue no waiter without a preference in
/// Redis is in front of a waiter with one.
pub(super) const WRITE_PREFERRED: Profile = Profile {
    kind: "rw.write.preferred",
    leaves_traces: true,
    supersedes: &["rw.write", "rw.read"],
    ..WRITE
};

/// A holder that asks for another permit takes another one: there is no re-entry.
pub(super) const SEMAPHORE: Profile = Profile {
    kind: "semaphore",
    exclusive: false,
    leases: Leases::None,
    channel: Some(keys::semaphore_channel),
    notes_withdrawals: true,
    ..PLAIN
};

/// A semaphore whose permits have leases.
pub(super) const PERMITS: Profile = Profile {
    kind: "permits",
    leases: Leases::EachPermit,
    ..SEMAPHORE
};

/// A hold is a party that has arrived.
pub(super) const BARRIER: Profile = Profile {
    kind: "barrier",
    channel: Some(keys::barrier_channel),
    ends_with_others: true,
    ..PERMITS
};

pub(super) const DOUBLE_BARRIER: Profile = Profile {
    kind: "double_barrier",
    channel: BARRIER.channel,
    ..PERMITS
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_speaks_of_kinds_that_there_are() {
        let all = [
            &RLOCK,
            &SPIN,
            &FENCED,
            &ONCE,
            &LEADER,
            &FAIR,
            &READ,
            &WRITE,
            &WRITE_PREFERRED,
            &SEMAPHORE,
            &PERMITS,
            &BARRIER,
            &DOUBLE_BARRIER,
        ];
        let kinds: Vec<_> = all.iter().map(|profile| profile.kind).collect();
        let mut apart = kinds.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), kinds.len(), "{kinds:?}");
        for profile in all {
            let relations = [profile.reenters, profile.joins, profile.deadlocks_under];
            let related = relations.concat();
            let known = |kind: &&&str| kinds.contains(*kind);
            assert_eq!(related.iter().filter(known).count(), related.len());
            assert!(profile.supersedes.iter().all(|kind| kinds.contains(kind)));
            assert!(!profile.supersedes.contains(&profile.kind));
        }
    }

    #[test]
    fn a_hold_weighs_as_much_as_it_has_leases() {
        assert_eq!(Leases::One.weight(3, 1), 1);
        assert_eq!(Leases::EachGuard.weight(3, 1), 3);
        assert_eq!(Leases::EachGuard.weight(0, 1), 1);
        assert_eq!(Leases::EachPermit.weight(1, 5), 5);
    }
}
