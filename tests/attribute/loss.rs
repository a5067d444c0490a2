//! Locks that are lost while a body runs.

use std::{rc::Rc, time::Duration};

use futures::FutureExt as _;
use redlock_rt::{Client, Error, LostReason, RLock, distributed_lock};
use tests::within;
use tokio::time::Instant;

use crate::world::*;

#[distributed_lock(key = "<world.name>", renew = OFTEN, client = client)]
async fn loses(client: &Client, world: &World, log: &Log<String>) -> Done {
    let _outer = Witness(|| log.add("outer dropped".to_owned()));
    let _inner = Witness(|| log.add("inner dropped".to_owned()));
    world.delete().await;
    std::future::pending().await
}

pub(crate) async fn a_lost_lock_cancels(world: &World) {
    let (client, told) = world.telling();
    let log = Log::default();
    let start = Instant::now();
    let error = within(DEADLINE, loses(&client, world, &log))
        .await
        .unwrap_err();
    assert!(start.elapsed() < OFTEN + LATE);
    assert!(error.is_lost());
    let text = error.to_string();
    for told in ["outcome is unknown", &world.name, "gone from redis"] {
        assert!(text.contains(told), "{text}");
    }
    assert_eq!(log.all(), ["inner dropped", "outer dropped"]);
    // The body did not complete.
    assert_eq!(client.stats().late_losses, 0);
    assert!(told.all().is_empty());
}

/// Records, when it is dropped, whether that happens in the scope of the lock: there a lost lock is
/// refused at once, elsewhere the call would ask Redis.
struct Last<'a> {
    lock: RLock,
    log: &'a Log<bool>,
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let again = self.lock.lock().now_or_never();
        let refused = again.is_some_and(|again| again.is_err_and(|error| error.is_lost()));
        self.log.add(refused);
    }
}

#[distributed_lock(key = "<world.name>", renew = OFTEN, client = client)]
async fn ends(client: &Client, world: &World, log: &Log<bool>) -> Done {
    let lock = client.rlock(&world.name);
    let _last = Last { lock, log };
    world.delete().await;
    std::future::pending().await
}

#[distributed_lock(key = "<world.name>", renew = OFTEN, guard = held, client = client)]
async fn ends_with_guard(client: &Client, world: &World, log: &Log<bool>) -> Done {
    let lock = client.rlock(&world.name);
    let _last = Last { lock, log };
    world.delete().await;
    assert!(held.lost().await == LostReason::Deleted);
    std::future::pending().await
}

#[distributed_lock(key = "<world.name>", client = client)]
async fn is_dropped(client: &Client, world: &World, log: &Log<usize>) -> Done {
    let _last = Witness(|| log.add(client.stats().held));
    std::future::pending().await
}

pub(crate) async fn the_body_ends_in_its_frame_before_the_guard(world: &World) {
    let client = world.client();
    let log = Log::default();
    within(DEADLINE, ends(&client, world, &log))
        .await
        .unwrap_err();
    within(DEADLINE, ends_with_guard(&client, world, &log))
        .await
        .unwrap_err();
    assert_eq!(log.all(), [true, true]);

    let log = Log::default();
    let mut call = Box::pin(is_dropped(&client, world, &log));
    let begun = async {
        while client.stats().held == 0 {
            assert!(futures::poll!(call.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    };
    within(DEADLINE, begun).await;
    assert!(futures::poll!(call.as_mut()).is_pending());
    drop(call);
    assert_eq!(log.all(), [1], "the hold outlives the body");
}

/// Completes in the same poll that would find the lock lost.
#[distributed_lock(key = "<world.name>", renew = OFTEN, guard = held, client = client)]
async fn completes(client: &Client, world: &World) -> Result<u8, Error> {
    world.delete().await;
    held.lost().await;
    Ok(7)
}

#[distributed_lock(
    key = "<world.name>", renew = OFTEN, guard = held, map_err = |_| "ours", client = client
)]
async fn completes_with_error(client: &Client, world: &World) -> Result<u8, &'static str> {
    world.delete().await;
    held.lost().await;
    Err("its own")
}

pub(crate) async fn a_body_that_completes_as_it_is_lost_keeps_its_value(world: &World) {
    let (client, told) = world.telling();
    let value = within(DEADLINE, completes(&client, world)).await;
    assert_eq!(value.unwrap(), 7);
    assert_eq!(client.stats().late_losses, 1);
    let value = within(DEADLINE, completes_with_error(&client, world)).await;
    assert_eq!(value, Err("its own"));
    assert_eq!(client.stats().late_losses, 2);
    let told = told.all();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].reason, Some(LostReason::Deleted));
    assert_eq!(&*told[0].lock, world.name);
    assert_eq!(told[0].function, "attribute::loss::completes");
}

#[distributed_lock(
    key = "<world.name>", renew = OFTEN, on_lost = finish, guard = held, client = client
)]
async fn finishes(client: &Client, world: &World) -> Result<LostReason, Error> {
    world.delete().await;
    let reason = held.lost().await;
    // The body continues after that.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(reason)
}

pub(crate) async fn finish_lets_it_end(world: &World) {
    let (client, told) = world.telling();
    let value = within(DEADLINE, finishes(&client, world)).await;
    assert_eq!(value.unwrap(), LostReason::Deleted);
    assert_eq!(client.stats().late_losses, 1);
    assert_eq!(told.all().len(), 1);
}

#[distributed_lock(
    key = "<world.name>", renew = OFTEN, on_lost = error_after, guard = held, client = client
)]
async fn tells_afterwards(client: &Client, world: &World, log: &Log<&str>) -> Done {
    world.delete().await;
    held.lost().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    log.add("completed");
    Ok(())
}

#[distributed_lock(key = "<name>", on_lost = error_after, client = client)]
async fn keeps(client: &Client, name: &str) -> Result<u8, Error> {
    Ok(3)
}

pub(crate) async fn error_after_tells_it_afterwards(world: &World) {
    let (client, told) = world.telling();
    let log = Log::default();
    let outcome = within(DEADLINE, tells_afterwards(&client, world, &log)).await;
    let error = outcome.unwrap_err();
    assert!(error.is_lost());
    assert!(error.to_string().contains("had completed"), "{error}");
    assert_eq!(log.all(), ["completed"]);
    assert_eq!(client.stats().late_losses, 1);
    assert_eq!(told.all().len(), 1);
    assert_eq!(keeps(&client, &world.name).await.unwrap(), 3);
    assert_eq!(client.stats().late_losses, 1);
}

#[distributed_lock(key = "<world.name>", client = client)]
async fn ends_unknowing(client: &Client, world: &World) -> Result<u8, Error> {
    world.delete().await;
    Ok(5)
}

#[distributed_lock(key = "<world.name>", on_lost = error_after, client = client)]
async fn errs_unknowing(client: &Client, world: &World) -> Result<u8, Error> {
    world.delete().await;
    Ok(5)
}

pub(crate) async fn what_only_the_release_finds_is_told(world: &World) {
    let (client, told) = world.telling();
    assert_eq!(ends_unknowing(&client, world).await.unwrap(), 5);
    let all = told.all();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].reason, None);
    assert_eq!(client.stats().late_losses, 1);
    let error = errs_unknowing(&client, world).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(told.all().len(), 2);
    assert_eq!(client.stats().late_losses, 2);
}

#[distributed_lock(key = "<world.name>", renew = OFTEN, guard = held, client = client)]
async fn not_send(client: &Client, world: &World) -> Result<Rc<u8>, Error> {
    world.delete().await;
    held.lost().await;
    Ok(Rc::new(4))
}

#[distributed_lock(
    key = "<world.name>", renew = OFTEN, guard = held, on_lost = error_after, client = client
)]
async fn not_send_after(client: &Client, world: &World) -> Result<Rc<u8>, Error> {
    world.delete().await;
    held.lost().await;
    Ok(Rc::new(4))
}

pub(crate) async fn values_that_cannot_wait_are_told_too(world: &World) {
    let (client, told) = world.telling();
    let value = within(DEADLINE, not_send(&client, world)).await;
    assert_eq!(*value.unwrap(), 4);
    assert_eq!(told.all().len(), 1);
    let error = within(DEADLINE, not_send_after(&client, world)).await;
    assert!(error.unwrap_err().is_lost());
    assert_eq!(told.all().len(), 2);
    assert_eq!(client.stats().late_losses, 2);
}

/// The process may be suspended between the acquisition and the first poll of the body. The expansion
/// has no await there, so this test plays an expansion that has one.
pub(crate) async fn a_lost_lock_runs_no_body(world: &World) {
    use redlock_rt::__private::{
        AttributeCall, LockKind, LockOptions, Output, Primitive, Sendable as _, client, key_of,
    };
    let (own, told) = world.telling();
    let key = key_of(format_args!("{}", world.name));
    let options = LockOptions::new().renew(OFTEN);
    let call = AttributeCall::new("played", key, client(Some(&own)), options);
    let session = call
        .enter(Primitive::Lock(LockKind::Reentrant))
        .await
        .unwrap();
    world.delete().await;
    within(DEADLINE, session.held().reentrant().lost()).await;
    let body = async { unreachable!("the body runs only under the lock") };
    let (output, body) = Output::<Done>::of(body);
    let place = output.place();
    let error = session.run(place, Err, body).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(error.to_string().contains("not run"), "{error}");
    assert!(told.all().is_empty());
}
