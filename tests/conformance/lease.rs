//! The length of a hold: lease, renewal, extension, `max_hold`.

use std::time::Duration;

use redlock_rt::{GuardState, LockOptions, LostReason, Unlocked};
use tests::{eventually, within};
use tokio::time::{Instant, sleep};

use crate::world::*;

/// Asserts that the TTL is the requested one, less the time since then.
#[track_caller]
fn assert_fresh(ttl: Option<Duration>, lease: Duration) {
    let ttl = ttl.expect("the lock has a TTL");
    assert!(ttl <= lease && ttl + LATE > lease, "{ttl:?}, not {lease:?}");
}

pub(crate) async fn the_client_sets_the_default(world: &World) {
    let standard = world.client();
    let guard = world.open(&standard).lock().await.unwrap();
    assert_fresh(world.ttl().await, Duration::from_secs(30));
    guard.unlock().await.unwrap();

    let client = world.client_with(|builder| builder.lease(Duration::from_secs(7)));
    let lock = world.open(&client);
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    assert_fresh(world.ttl().await, Duration::from_secs(7));
    guard.unlock().await.unwrap();
    let options = LockOptions::new().lease(Duration::from_secs(70));
    let guard = lock.lock_with(options).await.unwrap();
    assert_fresh(world.ttl().await, Duration::from_secs(70));
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_fixed_lease_ends(world: &World) {
    let (client, other) = (world.client(), world.client());
    let options = LockOptions::new().lease(LEASE).renew(false);
    let before = Instant::now();
    let guard = world.open(&client).lock_with(options).await.unwrap();
    let held = before.elapsed();
    assert_eq!(client.stats().renewals, 0);
    assert!(guard.is_valid() || before.elapsed() + MARGIN >= LEASE);

    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Expired);
    let lost = before.elapsed();
    assert!(
        lost + MARGIN + Duration::from_millis(1) >= LEASE,
        "{lost:?}"
    );
    assert!(lost < LEASE + LATE, "{lost:?}");
    assert!(!guard.is_valid());
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));

    // The next caller gets the lock by the clock of Redis, which is not before our local deadline.
    let next = within(DEADLINE, world.rival(&other).lock()).await;
    let next = next.unwrap();
    let free = before.elapsed();
    let earliest = match world.kind.freed_when_lost {
        true => LEASE - MARGIN,
        false => LEASE,
    };
    assert!(free >= earliest && free < held + LEASE + LATE, "{free:?}");
    next.unlock().await.unwrap();
}

pub(crate) async fn a_lease_is_renewed(world: &World) {
    let client = world.client_with(|builder| builder.lease(HELD));
    let other = world.client();
    let guard = world.open(&client).lock().await.unwrap();
    let first = until(&*guard);
    let elsewhere = world.rival(&other);
    world.assert_one_hold(client.stats().renewals);
    let mut last = first;
    while Instant::now().into_std() < first {
        let until = until(&*guard);
        assert!(last <= until, "moved back");
        last = until;
        assert!(world.is_there().await);
        assert!(elsewhere.try_lock().await.unwrap().is_none());
        sleep(OFTEN / 4).await;
    }
    assert!(guard.is_valid() && world.is_there().await);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn renewal_may_be_more_frequent(world: &World) {
    // By default its first renewal would come after a third of the lease, later than this test waits.
    const LONG: Duration = NEVER;
    let client = world.client();
    let options = LockOptions::new().lease(LONG).renew(OFTEN);
    let guard = world.open(&client).lock_with(options).await.unwrap();
    for _ in 0..3 {
        is_renewed(&*guard).await;
    }
    let ttl = world.ttl().await.unwrap();
    assert!(ttl + OFTEN + LATE > LONG, "{ttl:?}");
    guard.unlock().await.unwrap();
}

pub(crate) async fn extend_lengthens(world: &World) {
    const FIRST: Duration = Duration::from_secs(2);
    let client = world.client();
    let options = LockOptions::new().lease(FIRST).renew(false);
    let guard = world.open(&client).lock_with(options).await.unwrap();
    guard.extend(100 * FIRST).await.unwrap();
    assert_fresh(world.ttl().await, 100 * FIRST);
    sleep(FIRST).await;
    assert!(guard.is_valid());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn extend_never_shortens(world: &World) {
    let client = world.client();
    let guard = world.open(&client).lock().await.unwrap();
    let before = until(&*guard);
    guard.extend(LEASE).await.unwrap();
    assert_fresh(world.ttl().await, Duration::from_secs(30));
    // A renewal in between, which a connection made anew asks for, may lengthen the lease.
    assert!(until(&*guard) >= before);
    guard.unlock().await.unwrap();
}

pub(crate) async fn extend_of_a_lost_lock_fails(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let guard = lock.lock().await.unwrap();
    world.delete().await;
    // The first call finds the loss, and the second knows it.
    for _ in 0..2 {
        let error = guard.extend(LEASE).await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(!guard.is_valid());
        assert!(!world.is_there().await, "re-created");
    }
    world.occupy(world.kind.rival(), "somebody:1", NEVER).await;
    assert!(guard.extend(LEASE).await.unwrap_err().is_lost());
    assert_fresh(world.ttl().await, NEVER);
    world.delete().await;
}

pub(crate) async fn max_hold_ends_a_stuck_holder(world: &World) {
    const MOST: Duration = Duration::from_millis(3500);
    // The local deadline is 1 % and 2 ms before that of Redis, here twice.
    const END: Duration = Duration::from_millis(64);
    let (client, other) = (world.client(), world.client());
    let options = LockOptions::new().lease(HELD).max_hold(MOST);
    let before = Instant::now();
    let guard = world.open(&client).lock_with(options).await.unwrap();
    let held = before.elapsed();
    // The lock is renewed until then, since this is longer than the lease.
    let stuck = world.rival(&other);
    let next = tokio::spawn(async move { (stuck.lock().await.unwrap(), Instant::now()) });
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::MaxHold);
    let lost = before.elapsed();
    assert!(lost + END >= MOST && lost < MOST + LATE, "{lost:?}");
    assert!(!guard.is_valid());
    // The key ends then too, so a stuck holder blocks no other client for longer.
    let (next, free) = within(DEADLINE, next).await.unwrap();
    let free = free - before;
    assert!(free + END >= MOST, "{free:?} is too early");
    assert!(free < held + MOST + LATE, "{free:?} is too late");
    eventually(DEADLINE, async || client.stats().renewals == 0).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
}

/// The guard of a re-entry was renewed for ever.
pub(crate) async fn a_reentry_outlasted_the_max_hold_of_its_guard(world: &World) {
    let (client, other) = (world.client(), world.client());
    let options = LockOptions::new().lease(HELD).max_hold(HELD);
    let outer = world.open(&client).lock_with(options).await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let innermost = inner.reenter().await.unwrap();
    let stuck = world.rival(&other);
    let next = tokio::spawn(async move { stuck.lock().await.unwrap() });
    for guard in [&innermost, &inner, &outer] {
        assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::MaxHold);
        assert!(!guard.is_valid());
    }
    let next = within(DEADLINE, next).await.unwrap();
    for guard in [innermost, inner, outer] {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }
    next.unlock().await.unwrap();
}
