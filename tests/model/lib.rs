//! Models of the protocols, small enough to read: `docs/model.md` says what they show, and what not.

#![cfg(test)]

mod fair;
mod fair_trace;
mod redlock;
mod redlock_trace;
mod rlock;
mod trace;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use self::{
    Bug::*,
    fair::Fair,
    redlock::{LEASE, RedLock},
    rlock::RLock,
};

/// What could be wrong in a model. Each breaks a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    CancelledCallIsForgotten,
    ConnectionIsNotKilled,
    DeadStayQueued,
    FreeLockGoesToWhoeverAsks,
    KeyHasNoLease,
    LeaseCountsFromReply,
    LivingAreDropped,
    LockIsGivenToWhoIsNotNext,
    LossIsNotFinal,
    LossIsNotTold,
    MajorityIsOneLess,
    MajorityIsRestored,
    ReleaseDoesNotLook,
    RenewalDoesNotLook,
    RenewalRecreates,
    RepeatQueuesAgain,
    WhoLeavesStaysQueued,
}

/// Looks at every state that can be reached, or until something fails; names what does not hold.
fn broken<M>(model: M, first: bool) -> BTreeSet<&'static str>
where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync,
            Action: Clone + Debug + PartialEq,
        > + Send
        + Sync
        + 'static,
{
    let until = match first {
        true => HasDiscoveries::AnyFailures,
        false => HasDiscoveries::All,
    };
    let found = model
        .checker()
        .threads(2)
        .finish_when(until)
        .spawn_bfs()
        .join();
    let discovered = found.discoveries();
    let all = found.model().properties().into_iter();
    let all = all.filter(|one| match one.expectation {
        Expectation::Sometimes => !first && !discovered.contains_key(one.name),
        _ => discovered.contains_key(one.name),
    });
    all.map(|one| one.name).collect()
}

#[test]
fn in_every_order_the_models_are_right() {
    assert_eq!(broken(RLock(None), false), [].into());
    assert_eq!(broken(Fair::new(None), false), [].into());
    assert_eq!(broken(REDLOCK, false), [].into());
}

const REDLOCK: RedLock = RedLock {
    silence: LEASE,
    restarts: 2,
    bug: None,
};

/// One such server is enough, where the first guard has no part of the third.
#[test]
fn a_server_that_forgot_and_answers_within_a_lease_gives_a_redlock_to_two() {
    let (silence, restarts) = (LEASE - 1, 1);
    let broken = broken(
        RedLock {
            silence,
            restarts,
            ..REDLOCK
        },
        true,
    );
    assert_eq!(broken, ["who is valid has won last"].into());
}

#[test]
fn each_bug_breaks_a_property() {
    let left = "nothing is left of what has ended";
    for (bug, property) in [
        (CancelledCallIsForgotten, left),
        (ConnectionIsNotKilled, left),
        (KeyHasNoLease, "all comes to rest"),
        (LeaseCountsFromReply, "one is valid"),
        (LossIsNotFinal, "a loss is final"),
        (LossIsNotTold, "a loss is final"),
        (ReleaseDoesNotLook, "one is valid"),
        (RenewalDoesNotLook, "only its owner lengthens it"),
        (RenewalRecreates, left),
    ] {
        assert_eq!(broken(RLock(Some(bug)), true), [property].into(), "{bug:?}");
    }
    let passed = "nobody is passed by who came later";
    for (bug, property) in [
        (DeadStayQueued, "all comes to rest"),
        (FreeLockGoesToWhoeverAsks, passed),
        (LivingAreDropped, passed),
        (LockIsGivenToWhoIsNotNext, passed),
        (ReleaseDoesNotLook, "one is valid"),
        (RepeatQueuesAgain, passed),
        (WhoLeavesStaysQueued, "all comes to rest"),
    ] {
        let broken = broken(Fair::new(Some(bug)), true);
        assert_eq!(broken, [property].into(), "{bug:?}");
    }
    for bug in [MajorityIsOneLess, MajorityIsRestored] {
        let bug = Some(bug);
        let broken = broken(RedLock { bug, ..REDLOCK }, true);
        assert_eq!(broken, ["who is valid has won last"].into(), "{bug:?}");
    }
}
