//! A lock that disappears under its holder.

use redlock_rt::{GuardState, LockOptions, LostReason, Unlocked};
use tests::{eventually, within};
use tokio::{join, time::Instant};

use crate::{
    locks::{Guard, Held},
    party::Party,
    world::*,
};

/// The guard reports the loss within a renewal interval, and not only at the end of its lease.
async fn is_lost(guard: &dyn Guard, since: Instant, reason: LostReason) {
    assert_eq!(within(DEADLINE, guard.lost()).await, reason);
    let after = since.elapsed();
    assert!(after < OFTEN + LATE, "{after:?}");
    assert_eq!(guard.state(), GuardState::Lost(reason));
    assert!(!guard.is_valid());
}

/// A hold that is verified repeatedly.
async fn hold(world: &World, client: &Party) -> Held {
    let lock = world.open(client);
    let options = LockOptions::new().renew(OFTEN);
    lock.lock_with(options).await.unwrap()
}

pub(crate) async fn a_deleted_lock_is_lost(world: &World) {
    let client = world.client();
    let guard = hold(world, &client).await;
    world.delete().await;
    is_lost(&*guard, Instant::now(), LostReason::Deleted).await;
    assert!(!world.is_there().await, "re-created");
    // A task that waits for the loss learns it first, and each of several keys is found by itself.
    eventually(DEADLINE, async || client.stats().renewals == 0).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
}

pub(crate) async fn a_taken_lock_is_lost(world: &World) {
    let client = world.client();
    let guard = hold(world, &client).await;
    world.occupy(world.kind.rival(), "somebody:1", NEVER).await;
    is_lost(&*guard, Instant::now(), LostReason::Taken).await;
    // The new lock is unchanged.
    assert!(world.ttl().await.unwrap() > NEVER - DEADLINE);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let holder = world.rival(&client).holder().await.unwrap();
    assert_eq!(holder.unwrap().as_str(), "somebody:1");
    world.delete().await;
}

pub(crate) async fn a_force_unlocked_lock_is_lost(world: &World) {
    let (client, other) = (world.client(), world.client());
    let guard = hold(world, &client).await;
    assert!(world.open(&other).force_unlock().await.unwrap());
    is_lost(&*guard, Instant::now(), LostReason::Deleted).await;
}

pub(crate) async fn a_lost_lock_stays_lost(world: &World) {
    let client = world.client();
    let guard = hold(world, &client).await;
    let owners: Vec<_> = guard.hold_ids().iter().map(ToString::to_string).collect();
    world.delete().await;
    let reason = within(DEADLINE, guard.lost()).await;
    // As if it had never disappeared, for instance after a failover back.
    world.occupy_as(world.kind, &owners, NEVER).await;
    // Renewals would come meanwhile.
    tokio::time::sleep(3 * OFTEN).await;
    assert_eq!(guard.state(), GuardState::Lost(reason.clone()));
    assert!(guard.reenter().await.unwrap_err().is_lost());
    assert!(guard.extend(LEASE).await.unwrap_err().is_lost());
    assert_eq!(guard.state(), GuardState::Lost(reason));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    // The guard still removes its leftovers in Redis, unless it has removed them before.
    if world.kind.freed_when_lost {
        let _: Vec<bool> = world.each("DEL", &[]).await;
    }
}

pub(crate) async fn loss_reaches_every_guard(world: &World) {
    let client = world.client();
    let outer = hold(world, &client).await;
    let inner = outer.reenter().await.unwrap();
    let innermost = inner.reenter().await.unwrap();
    let watches = async {
        let lost = async { join!(outer.lost(), inner.lost(), innermost.lost(), inner.lost()) };
        within(DEADLINE, lost).await
    };
    let start = Instant::now();
    let ((a, b, c, d), ()) = join!(watches, world.delete());
    let after = start.elapsed();
    assert!(after < OFTEN + LATE, "{after:?}");
    assert_eq!([a, b, c, d], [const { LostReason::Deleted }; 4]);
    for guard in [outer, inner, innermost] {
        assert!(!guard.is_valid());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }
}

pub(crate) async fn a_key_of_another_type_is_a_lost_lock(world: &World) {
    let client = world.client();
    let guard = hold(world, &client).await;
    let _: Vec<()> = world.each("SET", &["data"]).await;
    is_lost(&*guard, Instant::now(), LostReason::Taken).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    for value in world.each::<String>("GET", &[]).await {
        assert_eq!(value, "data", "not ours to change");
    }
    world.delete().await;
}
