//! How guards release their permits.

use redlock_rt::{Shutdown, Unlocked};

use crate::{
    subject::{Subject, with_permits},
    world::*,
};

pub(crate) async fn a_drop_gives_back<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 3).await;
    let (one, two) = (
        semaphore.take(1).await.unwrap(),
        semaphore.take(2).await.unwrap(),
    );
    drop(two);
    at_rest(world, 2).await;
    drop(one);
    gone(world, 3).await;
}

pub(crate) async fn a_release_tells_what_became_of_it<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    assert_eq!(S::give_back(guard).await.unwrap(), Unlocked::Released);
    assert_eq!(semaphore.free().await.unwrap(), 1);
    let guard = semaphore.take(1).await.unwrap();
    let _: redis::Value = world.redis(&["DEL", &world.name]).await;
    let leases = format!("{{{}}}:timeout", world.name);
    let _: redis::Value = world.redis(&["DEL", &leases]).await;
    assert_eq!(S::give_back(guard).await.unwrap(), Unlocked::AlreadyExpired);
    assert!(!world.is_there().await, "it is not made anew");
}

pub(crate) async fn a_guard_moves_to_another_thread<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_panic_gives_back<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    task.await.unwrap_err();
    gone(world, 1).await;
}

pub(crate) async fn a_guard_knows_its_semaphore<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 3).await;
    let guard = semaphore.take(2).await.unwrap();
    assert_eq!((S::name_of(&guard), S::count_of(&guard)), (&*world.name, 2));
    assert_eq!(client.stats().held, 1);
    drop(guard);
    gone(world, 3).await;
}

pub(crate) async fn a_shut_down_gives_back<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 2).await;
    let guard = semaphore.take(1).await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert_eq!(S::open(&other, &world.name).free().await.unwrap(), 2);
    drop(guard);
    gone(world, 2).await;
}
