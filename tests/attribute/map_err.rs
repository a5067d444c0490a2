//! Errors that the user's code makes from ours.

use redlock_rt::{Client, Error, ErrorKind, distributed_lock};
use tests::within;

use crate::world::*;

/// Has no `From` for our error.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Locked(ErrorKind),
    Text(String),
}

fn locked(error: Error) -> Failure {
    Failure::Locked(error.kind())
}

#[distributed_lock(key = "<name>", wait = "0s", map_err = locked, client = client)]
async fn by_path(client: &Client, name: &str) -> Result<u8, Failure> {
    Ok(1)
}

#[distributed_lock(
    key = "<name>", wait = "0s", map_err = |error| Failure::Locked(error.kind()), client = client
)]
async fn by_closure(client: &Client, name: &str) -> Result<u8, Failure> {
    Ok(1)
}

#[distributed_lock(
    key = "<name>",
    wait = "0s",
    map_err = |error: Error| Failure::Text(format!("{name}: {}", error.is_contended())),
    client = client
)]
async fn by_closure_of_parameters(client: &Client, name: &str) -> Result<u8, Failure> {
    Ok(1)
}

#[distributed_lock(key = "<name>", wait = "0s", map_err = Some, client = client)]
async fn by_constructor(client: &Client, name: &str) -> Result<u8, Option<Error>> {
    Ok(1)
}

#[distributed_lock(key = "<name>", wait = "0s", map_err = |_| (), client = client)]
async fn to_nothing(client: &Client, name: &str) -> Result<u8, ()> {
    Ok(1)
}

pub(crate) async fn by_path_and_closure(world: &World) {
    let (client, name) = (world.client(), &world.name);
    assert_eq!(by_path(&client, name).await, Ok(1));
    assert_eq!(by_closure(&client, name).await, Ok(1));
    assert_eq!(to_nothing(&client, name).await, Ok(1));
    let held = client.rlock(name).lock().await.unwrap();
    let contended = Err(Failure::Locked(ErrorKind::Contended));
    assert_eq!(by_path(&client, name).await, contended);
    assert_eq!(by_closure(&client, name).await, contended);
    let text = Failure::Text(format!("{name}: true"));
    assert_eq!(by_closure_of_parameters(&client, name).await, Err(text));
    let error = by_constructor(&client, name).await.unwrap_err();
    assert!(error.unwrap().is_contended());
    assert_eq!(to_nothing(&client, name).await, Err(()));
    held.unlock().await.unwrap();
    let bad_input = Err(Failure::Locked(ErrorKind::BadInput));
    assert_eq!(by_path(&client, "").await, bad_input);
}

#[distributed_lock(key = "<world.name>", renew = OFTEN, map_err = locked, client = client)]
async fn loses(client: &Client, world: &World) -> Result<(), Failure> {
    world.delete().await;
    std::future::pending().await
}

#[distributed_lock(
    key = "<world.name>", on_lost = error_after, map_err = locked, client = client
)]
async fn loses_late(client: &Client, world: &World) -> Result<(), Failure> {
    world.delete().await;
    Ok(())
}

pub(crate) async fn of_losses(world: &World) {
    let client = world.client();
    let lost = Err(Failure::Locked(ErrorKind::Lost));
    assert_eq!(within(DEADLINE, loses(&client, world)).await, lost);
    assert_eq!(loses_late(&client, world).await, lost);
}

#[distributed_lock(
    key = "<name>",
    wait = "0s",
    on_timeout = skip,
    guard = held,
    map_err = |error| Failure::Text(error.to_string()),
    client = client
)]
async fn skips(client: &Client, name: &str) -> Result<bool, Failure> {
    Ok(held.is_valid())
}

pub(crate) async fn beside_fallbacks(world: &World) {
    let (client, name) = (world.client(), &world.name);
    assert_eq!(skips(&client, name).await, Ok(true));
    let held = client.rlock(name).lock().await.unwrap();
    assert_eq!(skips(&client, name).await, Ok(false));
    held.unlock().await.unwrap();
    let Err(Failure::Text(text)) = skips(&client, "").await else {
        panic!("a bad name is no reason to skip")
    };
    assert!(text.contains("blank"), "{text}");
}
