//! Re-entry: by the call tree and by explicit owners, and in no other way.

use std::{cell::Cell, time::Duration};

use futures::future::{FutureExt, LocalBoxFuture};
use redlock_rt::{ErrorKind, GuardState, LockOptions, Owner, Unlocked};
use tests::within;
use tokio::{join, task::yield_now};

use crate::{
    locks::{Guard, Held, Lock, share},
    world::*,
};

pub(crate) async fn a_guard_is_reentered(world: &World) {
    let client = world.client();
    let outer = world.open(&client).lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert!(inner.shares_with(&*outer));
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    assert_eq!(world.count(&*outer).await, Some(2));
    world.assert_one_hold(client.stats().held);
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
    assert_eq!(world.count(&*outer).await, Some(1));
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn a_body_reenters(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let body = async {
        let inner = lock.lock().await.unwrap();
        assert!(inner.shares_with(&*outer));
        assert_eq!(world.count(&*outer).await, Some(2));
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        // Another handle of the name is the same lock.
        let inner = world.open(&client);
        let inner = inner.lock_with(LockOptions::new().wait(Duration::ZERO));
        assert!(inner.await.unwrap().shares_with(&*outer));
    };
    within(DEADLINE, outer.run(body)).await.unwrap();
    outer.unlock().await.unwrap();
}

pub(crate) async fn with_reenters(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let body = async |outer: &dyn Guard| {
        let inner = async |inner: &dyn Guard| {
            assert!(inner.shares_with(outer));
            world.count(inner).await
        };
        assert_eq!(lock.with(inner).await.unwrap(), Some(2));
        assert_eq!(world.count(outer).await, Some(1));
    };
    within(DEADLINE, lock.with(body)).await.unwrap();
    assert!(!world.is_there().await);
}

pub(crate) async fn try_lock_reenters(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let body = async {
        let inner = lock.try_lock().await.unwrap().expect("re-entered");
        assert!(inner.shares_with(&*outer));
        assert_eq!(world.count(&*outer).await, Some(2));
        inner.unlock().await.unwrap()
    };
    assert_eq!(outer.run(body).await.unwrap(), Unlocked::StillHeld);
    outer.unlock().await.unwrap();
}

pub(crate) async fn reentry_goes_deep(world: &World) {
    const DEPTH: u32 = 8;
    fn descend<'a>(world: &'a World, lock: &'a Lock, depth: u32) -> LocalBoxFuture<'a, ()> {
        let body = async move |guard: &dyn Guard| {
            assert_eq!(world.count(guard).await, Some(depth));
            if depth < DEPTH {
                descend(world, lock, depth + 1).await;
            }
            assert_eq!(guard.hold_count(), depth);
            assert_eq!(world.count(guard).await, Some(depth));
        };
        async move { lock.with(body).await.unwrap() }.boxed_local()
    }
    let lock = world.open(&world.client());
    within(DEADLINE, descend(world, &lock, 1)).await;
    assert!(!world.is_there().await);
}

pub(crate) async fn an_owner_reenters(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let (owner, other) = (Owner::new(), Owner::new());
    let of = |owner: &Owner| LockOptions::new().owner(owner);
    let first = lock.lock_with(of(&owner)).await.unwrap();
    // Tasks and threads are no owners, so the guard may be used from anywhere.
    let (handle, options) = (lock.clone(), of(&owner));
    let second = tokio::spawn(async move { handle.lock_with(options).await });
    let second = within(DEADLINE, second).await.unwrap().unwrap();
    assert!(first.shares_with(&*second));
    assert_eq!(world.count(&*first).await, Some(2));

    let rival = world.rival(&client);
    let error = rival.lock_with(of(&other).wait(Duration::ZERO)).await;
    assert!(error.unwrap_err().is_contended());
    assert!(rival.try_lock().await.unwrap().is_none());
    assert_eq!(first.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(rival.try_lock().await.unwrap().is_none());
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn an_owner_holds_afresh_after_its_release(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let owner = Owner::new();
    let options = || LockOptions::new().owner(&owner);
    let first = lock.lock_with(options()).await.unwrap();
    let before = first.hold_ids();
    first.unlock().await.unwrap();
    // Two calls at once, without a hold: one acquires, and the other re-enters that hold.
    let (one, another) = join!(lock.lock_with(options()), lock.lock_with(options()));
    let (one, another) = (one.unwrap(), another.unwrap());
    assert!(one.shares_with(&*another));
    assert!(!share(&one.hold_ids(), &before));
    assert_eq!(world.count(&*one).await, Some(2));
    drop((one, another));
}

pub(crate) async fn a_partial_release_keeps_the_lock(world: &World) {
    let (client, other) = (world.client(), world.client());
    let often = LockOptions::new().renew(OFTEN);
    let lock = world.open(&client);
    let outer = lock.lock_with(often).await.unwrap();
    let elsewhere = world.rival(&other);
    for inner in [
        outer.reenter().await.unwrap(),
        outer.reenter().await.unwrap(),
    ] {
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        assert!(elsewhere.try_lock().await.unwrap().is_none());
    }
    // The hold is still renewed.
    is_renewed(&*outer).await;
    assert!(elsewhere.try_lock().await.unwrap().is_none());
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn guards_may_end_in_any_order(world: &World) {
    let client = world.client();
    let outer = world.open(&client).lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let innermost = inner.reenter().await.unwrap();
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(inner.is_valid() && innermost.is_valid());
    assert_eq!(world.count(&*inner).await, Some(2));
    assert_eq!(innermost.unlock().await.unwrap(), Unlocked::StillHeld);
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    assert!(!world.is_there().await);
}

/// The calls of a `join!` are in one task and under one holder, but they are two callers.
pub(crate) async fn siblings_exclude_each_other_and_nested_calls_reenter(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let caller = world.open_as(&client, &format!("{}:caller", world.name));
    let inside = Cell::new(0);
    let call = || {
        lock.with(async |guard| {
            inside.set(inside.get() + 1);
            assert!(
                world.kind.shared || inside.get() == 1,
                "two siblings at once"
            );
            let nested = async |nested: &dyn Guard| {
                assert!(nested.shares_with(guard));
                nested.hold_count()
            };
            assert_eq!(lock.with(nested).await.unwrap(), 2);
            for _ in 0..5 {
                yield_now().await;
                assert!(
                    world.kind.shared || inside.get() == 1,
                    "two siblings at once"
                );
            }
            inside.set(inside.get() - 1);
            guard.hold_ids()
        })
    };
    let body = async |_: &dyn Guard| join!(call(), call(), call());
    let (one, two, three) = within(DEADLINE, caller.with(body)).await.unwrap();
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    let shared = share(&one, &two) || share(&two, &three) || share(&one, &three);
    assert!(!shared, "a hold each");
}

/// As before, but their caller holds this lock: they re-enter it, one after the other.
pub(crate) async fn siblings_under_a_holder_take_turns(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let inside = Cell::new(0);
    let call = || {
        lock.with(async |guard| {
            inside.set(inside.get() + 1);
            // The holder, this body, and none of its siblings.
            let alone = (inside.get(), guard.hold_count()) == (1, 2);
            assert!(world.kind.shared || alone, "two siblings at once");
            let nested = async |nested: &dyn Guard| nested.hold_count();
            let count = lock.with(nested).await.unwrap();
            assert!(count == 3 || world.kind.shared && count > 3, "{count}");
            for _ in 0..5 {
                yield_now().await;
                assert!(
                    world.kind.shared || inside.get() == 1,
                    "two siblings at once"
                );
            }
            inside.set(inside.get() - 1);
        })
    };
    let body = async |_: &dyn Guard| {
        let (one, two, three) = join!(call(), call(), call());
        one.and(two).and(three).unwrap();
    };
    within(DEADLINE, lock.with(body)).await.unwrap();
    assert!(!world.is_there().await);
}

pub(crate) async fn a_shorter_lease_shortens_nothing(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let long = world.ttl().await.unwrap();
    let before = outer.state();
    // A renewal that a new connection asks for may lengthen the lease between two looks at it.
    let assert_not_shorter = || match (&before, outer.state()) {
        (GuardState::Held { until: before }, GuardState::Held { until }) => {
            assert!(until >= *before)
        }
        other => panic!("{other:?}"),
    };
    let body = async {
        let short = LockOptions::new().lease(LEASE).renew(false);
        let inner = lock.lock_with(short).await.unwrap();
        let ttl = world.ttl().await.unwrap();
        assert!(ttl + LATE > long, "{ttl:?}");
        assert_not_shorter();
        inner.unlock().await.unwrap();
    };
    outer.run(body).await.unwrap();
    let ttl = world.ttl().await.unwrap();
    assert!(ttl + LATE > long, "{ttl:?} after the inner release");
    assert_not_shorter();
    outer.unlock().await.unwrap();
}

pub(crate) async fn a_longer_lease_lengthens(world: &World) {
    const LONG: Duration = Duration::from_secs(60);
    let client = world.client();
    let lock = world.open(&client);
    let short = LockOptions::new().lease(HELD).renew(false);
    let outer = lock.lock_with(short).await.unwrap();
    let body = async {
        let long = LockOptions::new().lease(LONG).renew(false);
        lock.lock_with(long).await.unwrap()
    };
    let inner = outer.run(body).await.unwrap();
    let ttl = world.ttl().await.unwrap();
    assert!(ttl <= LONG && ttl + LATE > LONG, "{ttl:?}");
    inner.unlock().await.unwrap();
    let ttl = world.ttl().await.unwrap();
    assert!(ttl + LATE > LONG, "{ttl:?} after the inner release");
    // Both guards have the hold's deadline.
    let left = until(&*outer).saturating_duration_since(tokio::time::Instant::now().into_std());
    assert!(left + LATE > LONG, "{left:?} of the outer guard");
    outer.unlock().await.unwrap();
}

pub(crate) async fn a_lost_hold_is_not_revived(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    // A hold that was had over the first connection is looked at when that is there.
    lock.lock().await.unwrap().unlock().await.unwrap();
    for taken in [false, true] {
        let outer = lock.lock().await.unwrap();
        if taken {
            world.occupy(world.kind.rival(), "somebody:1", NEVER).await;
        } else {
            world.delete().await;
        }
        assert!(outer.is_valid(), "nobody has looked yet");
        let error = outer.reenter().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(!outer.is_valid(), "now it is known");
        assert!(outer.reenter().await.unwrap_err().is_lost());
        assert_eq!(world.count(&*outer).await, None, "re-created");
        assert_eq!(outer.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        if taken {
            world.delete().await;
        }
    }
    // The same inside the body: a call that would have re-entered must not contend instead.
    let outer = lock.lock().await.unwrap();
    world.delete().await;
    let body = async { lock.lock().await.unwrap_err() };
    match outer.run(body).await {
        Ok(error) | Err(error) => assert!(error.is_lost(), "{error}"),
    }
    assert!(!world.is_there().await);
}

/// A caller outside the holder's call tree is refused or, if the lock is shared, gets another hold.
#[track_caller]
fn assert_not_reentered(world: &World, outer: &dyn Guard, inner: Option<Held>) {
    assert_eq!(inner.is_some(), world.kind.shared);
    assert_eq!(outer.hold_count(), 1);
    assert!(inner.is_none_or(|inner| !inner.shares_with(outer)));
}

pub(crate) async fn spawned_tasks_inherit_nothing(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let handle = lock.clone();
    let body = async {
        let spawned = tokio::spawn(async move { handle.try_lock().await.unwrap() });
        spawned.await.unwrap()
    };
    assert_not_reentered(world, &*outer, outer.run(body).await.unwrap());
    outer.unlock().await.unwrap();
}

pub(crate) async fn another_client_does_not_reenter(world: &World) {
    let (client, other) = (world.client(), world.client());
    let outer = world.open(&client).lock().await.unwrap();
    let elsewhere = world.open(&other);
    let body = async { elsewhere.try_lock().await.unwrap() };
    assert_not_reentered(world, &*outer, outer.run(body).await.unwrap());
    outer.unlock().await.unwrap();
}

pub(crate) async fn another_name_is_not_reentered(world: &World) {
    let client = world.client();
    let outer = world.open(&client).lock().await.unwrap();
    let other = world.open_as(&client, &format!("{}:other", world.name));
    let body = async { other.lock().await.unwrap() };
    let inner = within(DEADLINE, outer.run(body)).await.unwrap();
    assert!(!inner.shares_with(&*outer));
    assert_eq!((outer.hold_count(), inner.hold_count()), (1, 1));
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn a_body_does_not_reenter_after_its_end(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    outer.run(async {}).await.unwrap();
    assert_not_reentered(world, &*outer, lock.try_lock().await.unwrap());
    outer.unlock().await.unwrap();
}

/// A holder must not wait behind its own waiters.
pub(crate) async fn reentry_passes_those_who_wait(world: &World) {
    let (client, other) = (world.client(), world.client());
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let wait = |client| {
        let lock = world.rival(client);
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    };
    let waiters = [wait(&client), wait(&other)];
    waits(&client, 1).await;
    waits(&other, 1).await;
    let body = async {
        let inner = lock.lock().await.unwrap();
        assert_eq!(inner.hold_count(), 2);
        inner.unlock().await.unwrap()
    };
    let body = within(DEADLINE, outer.run(body)).await.unwrap();
    assert_eq!(body, Unlocked::StillHeld);
    outer.unlock().await.unwrap();
    for waiter in waiters {
        let served = within(DEADLINE, waiter).await.unwrap();
        assert_eq!(served, Unlocked::Released);
    }
}
