//! The longest and the shortest time for which the lock is held.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LockOptions, Shutdown, distributed_lock};
use tests::within;
use tokio::{
    join,
    time::{Instant, sleep},
};

use crate::world::*;

#[distributed_lock(key = "<name>", lease = "1500ms", max_hold = "2s", client = client)]
async fn stuck(client: &Client, name: &str) -> Done {
    std::future::pending().await
}

#[distributed_lock(key = "<name>", lease = limit * 3 / 4, max_hold = limit, client = client)]
async fn stuck_by_expression(client: &Client, name: &str, limit: Duration) -> Done {
    std::future::pending().await
}

pub(crate) async fn max_hold_ends_the_body(world: &World) {
    let client = world.client();
    let start = Instant::now();
    let error = stuck(&client, &world.name).await.unwrap_err();
    assert_passed(start, SPAN);
    assert!(error.is_lost());
    assert!(error.to_string().contains("longest hold time"), "{error}");
    let start = Instant::now();
    let error = stuck_by_expression(&client, &world.name, SPAN)
        .await
        .unwrap_err();
    assert_passed(start, SPAN);
    assert!(error.to_string().contains("longest hold time"), "{error}");
}

macro_rules! at_least {
    ($($function:ident($($kind:tt)+);)+) => {
        $(#[distributed_lock(
            key = "<name>", kind = $($kind)+, min_hold = "2s", wait = "0s", client = client
        )]
        async fn $function(client: &Client, name: &str) -> Done {
            Ok(())
        })+
    };
}

at_least! {
    reentrant(reentrant);
    fair(fair);
    write(write);
    fenced(fenced);
    spin(spin);
}

#[distributed_lock(key = "<name>", min_hold = least, wait = "0s", client = client)]
async fn by_expression(client: &Client, name: &str, least: Duration) -> Done {
    Ok(())
}

#[distributed_lock(key = "<name>", min_hold = "2s", wait = "10s", client = client)]
async fn outer(client: &Client, name: &str) -> Done {
    reentrant(client, name).await
}

/// Takes the lock as soon as it is free.
async fn takes(client: &Client, name: &str) {
    let options = LockOptions::new().wait(DEADLINE);
    let guard = client.rlock(name).lock_with(options).await.unwrap();
    guard.unlock().await.unwrap();
}

pub(crate) async fn min_hold_keeps_the_lock(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &world.name);
    macro_rules! keeps {
        ($($call:expr, $again:expr;)+) => {
            $(let start = Instant::now();
            $call.await.unwrap();
            let took = start.elapsed();
            assert!(took < LATE, "the call does not wait for that: {took:?}");
            // No hold exists, so there is no re-entry.
            assert_eq!(client.stats().held, 0);
            let error = $again.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
            let left = world.ttl().await.unwrap();
            assert!(left <= SPAN && left + LATE > SPAN, "{left:?}");
            takes(&other, name).await;
            assert_passed(start, SPAN);)+
        };
    }
    keeps! {
        reentrant(&client, name), reentrant(&client, name);
        fair(&client, name), fair(&other, name);
        write(&client, name), write(&client, name);
        fenced(&client, name), fenced(&other, name);
        spin(&client, name), spin(&other, name);
        by_expression(&client, name, SPAN), by_expression(&client, name, SPAN);
        outer(&client, name), reentrant(&client, name);
    }
    world.forget(&format!("redisson_lock_token:*{name}*")).await;
}

#[distributed_lock(key = "<name>", min_hold = "1s", client = client)]
async fn longer(client: &Client, name: &str) -> Done {
    sleep(Duration::from_millis(1200)).await;
    Ok(())
}

#[distributed_lock(key = "<name>", min_hold = "1s", lease = "500ms", client = client)]
async fn fails(client: &Client, name: &str) -> Result<(), redlock_rt::Error> {
    client.rlock("").is_locked().await.map(|_| ())
}

pub(crate) async fn min_hold_of_a_longer_body_keeps_nothing(world: &World) {
    let client = world.client();
    longer(&client, &world.name).await.unwrap();
    assert!(!world.is_there(&world.name).await);
    // A body that fails also keeps the lock, since its effects are unknown.
    let start = Instant::now();
    fails(&client, &world.name).await.unwrap_err();
    assert!(world.is_there(&world.name).await);
    takes(&client, &world.name).await;
    assert_passed(start, Duration::from_secs(1));
}

pub(crate) async fn min_hold_outlives_its_client(world: &World) {
    let (client, other) = (world.client(), world.client());
    let start = Instant::now();
    reentrant(&client, &world.name).await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    drop(client);
    let error = reentrant(&other, &world.name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    takes(&other, &world.name).await;
    assert_passed(start, SPAN);
}

#[distributed_lock(key = "<name>", min_hold = "30s", lease = "2s", client = client)]
async fn abandoned(client: &Client, name: &str) -> Done {
    // For Redis, a crash.
    client.shutdown(Shutdown::Abandon).await?;
    std::future::pending().await
}

/// As documented: after a crash, no client sets the rest of the shortest hold.
pub(crate) async fn min_hold_does_not_outlive_a_crash(world: &World) {
    let (client, other) = (world.client(), world.client());
    let start = Instant::now();
    let error = abandoned(&client, &world.name).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    takes(&other, &world.name).await;
    assert_passed(start, SPAN);
}

#[distributed_lock(key = "<name>", min_hold = "2s", client = client)]
async fn waited_for(client: &Client, name: &str, waiter: &Client) -> Done {
    // The waiter knows a lease of 30 s.
    tests::eventually(DEADLINE, async || waiter.stats().waiting == 1).await;
    Ok(())
}

#[distributed_lock(key = "<name>", kind = fair, min_hold = "2s", client = client)]
async fn waited_for_in_line(client: &Client, name: &str, waiter: &Client) -> Done {
    tests::eventually(DEADLINE, async || waiter.stats().waiting == 1).await;
    Ok(())
}

pub(crate) async fn waiters_hear_of_min_hold(world: &World) {
    let (client, waiter, name) = (world.client(), world.client(), &world.name);
    let start = Instant::now();
    let (done, ()) = join!(waited_for(&client, name, &waiter), async {
        tests::eventually(DEADLINE, async || client.stats().held == 1).await;
        within(DEADLINE, takes(&waiter, name)).await;
    });
    done.unwrap();
    assert_passed(start, SPAN);
    let start = Instant::now();
    let (done, ()) = join!(waited_for_in_line(&client, name, &waiter), async {
        tests::eventually(DEADLINE, async || client.stats().held == 1).await;
        let guard = within(DEADLINE, waiter.fair_lock(name).lock())
            .await
            .unwrap();
        guard.unlock().await.unwrap();
    });
    done.unwrap();
    assert_passed(start, SPAN);
}
