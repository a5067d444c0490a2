//! How a hold ends.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use redlock_rt::{LockOptions, Unlocked};
use tests::{eventually, within};

use crate::{locks::Guard, world::*};

pub(crate) async fn unlock_tells_what_became_of_it(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
    assert!(world.is_there().await);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(!world.is_there().await);

    let guard = lock.lock().await.unwrap();
    world.delete().await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let guard = lock.lock().await.unwrap();
    world.occupy(world.kind.rival(), "somebody:1", NEVER).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let holder = world.rival(&client).holder().await.unwrap();
    assert_eq!(
        holder.unwrap().as_str(),
        "somebody:1",
        "another's lock stays"
    );
    world.delete().await;
}

pub(crate) async fn an_expired_lock_is_not_released(world: &World) {
    let client = world.client();
    let options = LockOptions::new().lease(LEASE / 4).renew(false);
    let guard = world.open(&client).lock_with(options).await.unwrap();
    within(DEADLINE, guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
}

pub(crate) async fn a_drop_releases(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let guard = lock.lock().await.unwrap();
    drop(guard);
    assert_eq!(client.stats().renewals, 0, "it is not renewed from now on");
    eventually(DEADLINE, async || !world.is_there().await).await;

    // During other work: the guard of a call whose output is dropped.
    drop(lock.try_lock().await.unwrap().expect("it is free"));
    let again = within(DEADLINE, lock.lock()).await.unwrap();
    again.unlock().await.unwrap();
}

pub(crate) async fn a_drop_of_an_inner_guard_keeps_the_lock(world: &World) {
    let (client, other) = (world.client(), world.client());
    let outer = world.open(&client).lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(world.count(&*outer).await, Some(2));
    drop(inner);
    eventually(DEADLINE, async || world.count(&*outer).await == Some(1)).await;
    let elsewhere = world.rival(&other);
    assert!(elsewhere.try_lock().await.unwrap().is_none());
    assert!(outer.is_valid());
    drop(outer);
    let guard = within(DEADLINE, elsewhere.lock()).await.unwrap();
    guard.unlock().await.unwrap();
}

pub(crate) async fn a_late_release_frees_no_newer_hold(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let options = LockOptions::new().lease(LEASE / 4).renew(false);
    let (late, dropped) = (
        lock.lock_with(options.clone()).await.unwrap(),
        world
            .open_as(&client, &format!("{}:dropped", world.name))
            .lock_with(options)
            .await
            .unwrap(),
    );
    within(DEADLINE, late.lost()).await;
    // The newer holds are of the same client: only the number distinguishes them.
    let newer = within(DEADLINE, lock.lock()).await.unwrap();
    let newer_too = world
        .open_as(&client, &dropped.name())
        .lock()
        .await
        .unwrap();
    assert_eq!(late.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    drop(dropped);
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(world.count(&*newer).await, Some(1));
    assert_eq!(world.count(&*newer_too).await, Some(1));
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(newer_too.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn a_guard_moves_to_another_task(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let guard = lock.lock().await.unwrap();
    let unlocked = tokio::spawn(async move {
        assert!(guard.is_valid());
        let inner = guard.reenter().await.unwrap();
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        guard.unlock().await.unwrap()
    });
    assert_eq!(
        within(DEADLINE, unlocked).await.unwrap(),
        Unlocked::Released
    );
    assert!(!world.is_there().await);
}

pub(crate) async fn a_guard_moves_to_another_thread(world: &World) {
    let client = world.client();
    let guard = world.open(&client).lock().await.unwrap();
    // A thread of a pool, and a separate thread without a runtime.
    let guard = tokio::task::spawn_blocking(move || {
        let thread = std::thread::spawn(move || {
            assert!(guard.is_valid());
            guard
        });
        let guard = thread.join().unwrap();
        std::thread::spawn(move || drop(guard)).join().unwrap();
    });
    guard.await.unwrap();
    eventually(DEADLINE, async || !world.is_there().await).await;
}

pub(crate) async fn force_unlock_frees_it(world: &World) {
    let (client, other) = (world.client(), world.client());
    let (lock, elsewhere) = (world.open(&client), world.open(&other));
    assert!(!elsewhere.force_unlock().await.unwrap(), "it is free");
    let guard = lock.lock().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    assert!(elsewhere.force_unlock().await.unwrap());
    assert!(!world.is_there().await);
    let newer = elsewhere.try_lock().await.unwrap().expect("it is free");
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(newer.is_valid());
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
}

pub(crate) async fn a_panic_in_a_body_releases(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let body = async |guard: &dyn Guard| {
        tokio::task::yield_now().await;
        assert!(!guard.is_valid(), "this panic is part of the test");
    };
    // As when a task panics and its future is dropped.
    let call = AssertUnwindSafe(lock.with(body)).catch_unwind();
    assert!(within(DEADLINE, call).await.is_err());
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
}
