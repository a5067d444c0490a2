//! The bindings of the guard in the body.

use redlock_rt::{
    Client, Error, FairLockGuard, FencedLockGuard, LeasedPermit, MultiLockGuard, RLockGuard,
    ReadGuard, SpinLockGuard, WriteGuard, distributed_lock,
};

use crate::world::{Done, World};

/// A function of each kind that uses its guard, whose type is that of the kind.
macro_rules! with_guards {
    ($($function:ident($($kind:tt)+) -> $guard:ty;)+) => {
        $(#[distributed_lock(key = "<name>", kind = $($kind)+, guard = held, client = client)]
        async fn $function(client: &Client, name: &str) -> Done {
            let held: &$guard = held;
            assert!(held.is_valid());
            assert_eq!(held.name(), name);
            held.extend(std::time::Duration::from_secs(60)).await?;
            Ok(())
        })+
    };
}

with_guards! {
    reentrant(reentrant) -> RLockGuard;
    fair(fair) -> FairLockGuard;
    read(read) -> ReadGuard;
    write(write) -> WriteGuard;
    fenced(fenced) -> FencedLockGuard;
    spin(spin) -> SpinLockGuard;
    permit(semaphore(limit = 2, take = 2)) -> LeasedPermit;
}

pub(crate) async fn the_guard_of_each_kind(world: &World) {
    let (client, name) = (world.client(), &world.name);
    reentrant(&client, name).await.unwrap();
    fair(&client, name).await.unwrap();
    read(&client, name).await.unwrap();
    write(&client, name).await.unwrap();
    fenced(&client, name).await.unwrap();
    spin(&client, name).await.unwrap();
    assert!(!world.is_there(name).await, "released when they return");
    permit(&client, name).await.unwrap();
    let permits = client.permit_expirable_semaphore(name);
    assert_eq!(permits.available_permits().await.unwrap(), 2);
    world.forget(&format!("*{name}*")).await;
}

#[distributed_lock(keys = ["<name>:1", "<name>:2"], kind = write, guard = all, client = client)]
async fn several(client: &Client, name: &str) -> Result<usize, Error> {
    let all: &MultiLockGuard = all;
    let inner = client
        .read_write_lock(format!("{name}:1"))
        .read_lock()
        .lock()
        .await?;
    inner.unlock().await?;
    Ok(all.hold_ids().len())
}

pub(crate) async fn the_guard_of_several(world: &World) {
    assert_eq!(several(&world.client(), &world.name).await.unwrap(), 2);
}

#[distributed_lock(key = "<name>", kind = fenced, token = fence, client = client)]
async fn fenced_once(client: &Client, name: &str) -> Result<u64, Error> {
    let inner: u64 = fenced_again(client, name).await?;
    assert_eq!(inner, fence, "it is the same hold");
    Ok(fence)
}

#[distributed_lock(key = "<name>", kind = fenced, guard = held, token = fence, client = client)]
async fn fenced_again(client: &Client, name: &str) -> Result<u64, Error> {
    assert_eq!(held.token(), fence);
    Ok(fence)
}

pub(crate) async fn tokens_increase(world: &World) {
    let clients = [world.client(), world.client()];
    let mut last = 0;
    for turn in 0..4 {
        let token = fenced_once(&clients[turn % 2], &world.name).await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    world.forget(&format!("*{}*", world.name)).await;
}

#[distributed_lock(key = "<name>", guard = held, client = client)]
async fn inner_guard(client: &Client, name: &str) -> Done {
    let inner = held.reenter().await?;
    assert_eq!(client.rlock(name).hold_count().await?, 2);
    // The body drops its guard instead of unlocking it; the call awaits the release nevertheless.
    drop(inner);
    Ok(())
}

pub(crate) async fn a_guard_in_the_body_does_not_hold_up_the_release(world: &World) {
    let client = world.client();
    for _ in 0..3 {
        inner_guard(&client, &world.name).await.unwrap();
        assert!(!world.is_there(&world.name).await);
    }
}
