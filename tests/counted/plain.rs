//! The behaviour of semaphores without leases.

use redlock_rt::{Semaphore, Unlocked};
use tests::eventually;

use crate::{
    subject::{Subject, with_permits},
    world::*,
};

pub(crate) async fn a_drain_takes_all_that_are_free(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<Semaphore>(&client, &world.name, 5).await;
    let guard = semaphore.take(2).await.unwrap();
    assert_eq!(semaphore.drain().await.unwrap(), 3);
    assert_eq!(semaphore.drain().await.unwrap(), 0);
    assert!(semaphore.try_one().await.unwrap().is_none());
    semaphore.add(-2).await.unwrap();
    assert_eq!(semaphore.drain().await.unwrap(), -2);
    Semaphore::give_back(guard).await.unwrap();
    gone(world, 2).await;
}

pub(crate) async fn a_release_without_a_guard_adds(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::open(&client, &world.name);
    semaphore.release(2).await.unwrap();
    semaphore.release(1).await.unwrap();
    for bad in [0, u32::MAX] {
        let error = semaphore.release(bad).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }
    gone(world, 3).await;
}

pub(crate) async fn what_is_forgotten_stays_taken(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<Semaphore>(&client, &world.name, 3).await;
    semaphore.acquire_many(2).await.unwrap().forget();
    eventually(DEADLINE, async || client.stats().names == 0).await;
    at_rest(world, 1).await;
    semaphore.release(2).await.unwrap();
    gone(world, 3).await;
}

pub(crate) async fn a_deleted_semaphore_is_not_made_by_a_release(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<Semaphore>(&client, &world.name, 2).await;
    let old = semaphore.take(1).await.unwrap();
    let _: bool = world.redis(&["DEL", &world.name]).await;
    assert!(semaphore.set(5).await.unwrap());
    assert_eq!(
        Semaphore::give_back(old).await.unwrap(),
        Unlocked::AlreadyExpired
    );
    gone(world, 5).await;
}
