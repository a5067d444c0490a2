//! The number of permits.

use redlock_rt::Client;

use crate::{
    subject::{Subject, with_permits},
    world::*,
};

pub(crate) async fn the_number_is_set_once<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 3).await;
    assert!(!semaphore.set(9).await.unwrap());
    assert!(!S::open(&other, &world.name).set(9).await.unwrap());
    assert_eq!(semaphore.free().await.unwrap(), 3);
    assert_eq!(world.ttl().await, None);
    gone(world, 3).await;
}

pub(crate) async fn permits_are_added_and_taken_away<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = S::open(&client, &world.name);
    semaphore.add(4).await.unwrap();
    let guard = semaphore.take(3).await.unwrap();
    semaphore.add(-2).await.unwrap();
    assert_eq!(semaphore.free().await.unwrap(), -1);
    assert!(semaphore.try_one().await.unwrap().is_none());
    S::give_back(guard).await.unwrap();
    assert_eq!(semaphore.free().await.unwrap(), 2);
    semaphore.add(0).await.unwrap();
    gone(world, 2).await;
}

pub(crate) async fn a_limit_comes_with_the_first_acquisition<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let open = |client: &Client| S::open(client, &world.name).limited(2);
    let (semaphore, elsewhere) = (open(&client), open(&other));
    assert_eq!(
        semaphore.free().await.unwrap(),
        0,
        "only an acquisition sets it"
    );
    let one = semaphore.try_one().await.unwrap().unwrap();
    let two = elsewhere.take(1).await.unwrap();
    assert!(semaphore.try_one().await.unwrap().is_none());
    S::give_back(one).await.unwrap();
    S::give_back(two).await.unwrap();
    gone(world, 2).await;
}

pub(crate) async fn a_limit_changes_no_number_that_is_set<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await.limited(5);
    let guard = semaphore.take(1).await.unwrap();
    assert!(semaphore.try_one().await.unwrap().is_none());
    // A number below zero is not changed either.
    semaphore.add(-2).await.unwrap();
    assert!(semaphore.try_one().await.unwrap().is_none());
    semaphore.add(2).await.unwrap();
    S::give_back(guard).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_namespace_is_part_of_the_name<S: Subject>(world: &World) {
    let client = world.client();
    let space = world.client_with(|builder| builder.namespace(&world.name));
    let semaphore = S::open(&space, "s");
    let whole = format!("{}:s", world.name);
    assert!(semaphore.set(1).await.unwrap());
    let guard = semaphore.take(1).await.unwrap();
    assert_eq!(S::name_of(&guard), whole);
    assert!(S::open(&client, &whole).try_one().await.unwrap().is_none());
    S::give_back(guard).await.unwrap();
    let _: bool = world.redis(&["DEL", &whole]).await;
}
