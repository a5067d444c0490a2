//! The questions about a lock and a guard.

use std::time::Duration;

use redlock_rt::{GuardState, HoldId};
use tokio::time::Instant;

use crate::{
    locks::{Guard, Lock, share},
    world::*,
};

pub(crate) async fn a_free_lock_has_no_holder(world: &World) {
    let lock = world.open(&world.client());
    for _ in 0..2 {
        assert!(!lock.is_locked().await.unwrap());
        assert_eq!(lock.holder().await.unwrap(), None);
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        assert_eq!(lock.remaining_ttl().await.unwrap(), None);
        // It has no holder after a hold either.
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
}

/// Asserts that exactly the guard's owners hold the lock.
async fn assert_is_holder(lock: &Lock, guard: &dyn Guard) {
    let owners = guard.hold_ids();
    let holder = lock.holder().await.unwrap();
    assert!(
        share(&owners, holder.as_slice()),
        "{holder:?} is none of {owners:?}"
    );
    let holders = lock.holders().await.unwrap();
    // In their order; either list may lack a server that was late.
    let of = |these: &[HoldId], those: &[HoldId]| -> Vec<_> {
        let both = these.iter().filter(|owner| those.contains(owner));
        both.cloned().collect()
    };
    assert_eq!(of(&holders, &owners), of(&owners, &holders));
    assert!(share(&owners, &holders));
}

pub(crate) async fn a_held_lock_tells_its_holder(world: &World) {
    let (client, other) = (world.client(), world.client());
    let guard = world.open(&client).lock().await.unwrap();
    // The same answers for the holder and for others.
    for asking in [&client, &other] {
        let lock = world.open(asking);
        assert!(lock.is_locked().await.unwrap());
        assert_is_holder(&lock, &*guard).await;
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        let ttl = lock.remaining_ttl().await.unwrap().unwrap();
        assert!(ttl <= STANDARD && ttl + LATE > STANDARD, "{ttl:?}");
    }
    let inner = guard.reenter().await.unwrap();
    let lock = world.open(&other);
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    assert_is_holder(&lock, &*guard).await;
    inner.unlock().await.unwrap();
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn what_another_client_put_there_is_told(world: &World) {
    let lock = world.open(&world.client());
    world.occupy(world.kind, "somebody:1", NEVER).await;
    for (field, value) in (world.kind.fields)("somebody:1", 3) {
        let _: Vec<u8> = world.each("HSET", &[&field, &value]).await;
    }
    let _: Vec<u8> = world.each("PERSIST", &[]).await;
    if let Some(lease) = (world.kind.lease_key)(&world.name, "somebody:1") {
        let _: u8 = world.redis(&["PERSIST", &lease]).await;
    }
    assert!(lock.is_locked().await.unwrap());
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!(
        (holder.as_str(), holder.client()),
        ("somebody:1", "somebody")
    );
    assert_eq!(lock.hold_count().await.unwrap(), 3);
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);
    world.delete().await;
}

pub(crate) async fn a_guard_knows_its_lock(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let before = Instant::now().into_std();
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.name(), world.name);
    assert_eq!(guard.hold_count(), 1);
    let owners = guard.hold_ids();
    assert_eq!(world.count(&*guard).await, Some(1));
    let GuardState::Held { until } = guard.state() else {
        panic!("{guard:?}");
    };
    // A renewal may have come meanwhile.
    let after = Instant::now().into_std();
    let held: Duration = until.saturating_duration_since(before);
    let margin = STANDARD / 100 + Duration::from_millis(2);
    assert!(held >= STANDARD - margin, "{held:?}");
    assert!(until <= after + STANDARD - margin, "{held:?}");
    let shown = format!("{guard:?} {lock:?}");
    assert!(
        shown.contains(&world.name) && owners.iter().all(|owner| shown.contains(owner.as_str()))
    );
    guard.unlock().await.unwrap();
}
