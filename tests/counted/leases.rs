//! The behaviour of permits with leases.

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use redlock_rt::{
    Client, ErrorKind, GuardState, LeasedPermit, LostReason, PermitExpirableSemaphore,
    PermitOptions, Shutdown, Unlocked,
};
use tests::{assert_held, eventually, within};
use tokio::time::Instant;

use crate::world::*;

const UNKNOWN: &str = "00112233445566778899aabbccddeeff";

/// The semaphore of the test, with this many permits.
async fn semaphore(world: &World, client: &Client, permits: u32) -> PermitExpirableSemaphore {
    let semaphore = client.permit_expirable_semaphore(&world.name);
    assert!(semaphore.try_set_permits(permits).await.unwrap());
    semaphore
}

/// A permit that soon notices its loss.
async fn watchful(semaphore: &PermitExpirableSemaphore) -> LeasedPermit {
    let options = PermitOptions::new().renew(Duration::from_millis(20));
    semaphore.acquire_with(options).await.unwrap()
}

/// The remaining lease of a permit, by the clock of Redis.
async fn lease_left(world: &World, id: &str) -> Duration {
    let raw = (0..id.len()).step_by(2);
    let raw: Vec<u8> = raw
        .map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap())
        .collect();
    let script = "local now = redis.call('TIME') \
                  local id = string.gsub(ARGV[1], '%x%x', function(byte) \
                  return string.char(tonumber(byte, 16)) end) \
                  local till = redis.call('ZSCORE', KEYS[1], id) \
                  return till - (now[1] * 1000 + math.floor(now[2] / 1000))";
    assert_eq!(raw.len(), 16);
    let leases = format!("{{{}}}:timeout", world.name);
    let left: u64 = world.redis(&["EVAL", script, "1", &leases, id]).await;
    Duration::from_millis(left)
}

#[track_caller]
fn assert_near(left: Duration, lease: Duration) {
    assert!(
        left <= lease && left + LATE > lease,
        "{left:?} of {lease:?}"
    );
}

pub(crate) async fn a_fixed_lease_ends(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 1).await;
    let options = PermitOptions::new().lease(HELD).renew(false);
    let start = Instant::now();
    let permit = semaphore.acquire_with(options).await.unwrap();
    let until = assert_held(&permit.state());
    // Not after the end in Redis, which is at this time or earlier.
    let left = lease_left(world, permit.id()).await;
    let over = Instant::now().into_std() + left;
    assert!(until < over, "{:?} too late", until - over);
    assert_eq!(within(DEADLINE, permit.lost()).await, LostReason::Expired);
    assert!(start.elapsed() < HELD + LATE);
    assert_eq!(permit.state(), GuardState::Lost(LostReason::Expired));
    let elsewhere = other.permit_expirable_semaphore(&world.name);
    let next = within(DEADLINE, elsewhere.acquire()).await.unwrap();
    assert_passed(start, HELD);
    assert_eq!(permit.release().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(elsewhere.acquired().await.unwrap(), 1, "that of the next");
    next.release().await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_lease_is_renewed(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 3).await;
    let options = PermitOptions::new().lease(HELD);
    let fixed = options.clone().renew(false);
    let both = semaphore.acquire_with(options.permits(2)).await.unwrap();
    let fixed = semaphore.acquire_with(fixed).await.unwrap();
    let end = Instant::now() + HELD + HELD / 3;
    while Instant::now() < end {
        assert!(both.is_valid());
        assert!(semaphore.acquired().await.unwrap() >= 2);
        tokio::time::sleep(HELD / 50).await;
    }
    assert_eq!(within(DEADLINE, fixed.lost()).await, LostReason::Expired);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    assert_eq!(fixed.release().await.unwrap(), Unlocked::AlreadyExpired);
    for id in both.ids() {
        // Fails if the lease is over.
        assert!(lease_left(world, id).await <= HELD);
    }
    assert_eq!(both.release().await.unwrap(), Unlocked::Released);
    gone(world, 3).await;
}

pub(crate) async fn the_client_sets_the_default(world: &World) {
    const DEFAULT: Duration = Duration::from_secs(20);
    let client = world.client_with(|builder| builder.lease(DEFAULT));
    let semaphore = semaphore(world, &client, 2).await;
    let permit = semaphore.acquire().await.unwrap();
    assert_near(lease_left(world, permit.id()).await, DEFAULT);
    let other = PermitOptions::new().lease(2 * DEFAULT);
    let other = semaphore.acquire_with(other).await.unwrap();
    assert_near(lease_left(world, other.id()).await, 2 * DEFAULT);
    drop((permit, other));
    gone(world, 2).await;
}

/// The waiter wakes at the end of the earliest of several leases, without an announcement.
pub(crate) async fn a_waiter_takes_what_expires_at_once(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 2).await;
    let fixed = |lease| PermitOptions::new().lease(lease).renew(false);
    let long = semaphore.acquire_with(fixed(100 * LEASE)).await.unwrap();
    let start = Instant::now();
    let short = semaphore.acquire_with(fixed(LEASE)).await.unwrap();
    let elsewhere = other.permit_expirable_semaphore(&world.name);
    let permit = within(DEADLINE, elsewhere.acquire()).await.unwrap();
    assert_passed(start, LEASE);
    assert!(long.is_valid());
    drop((long, short, permit));
    gone(world, 2).await;
}

pub(crate) async fn a_permit_of_a_dead_client_comes_back(world: &World) {
    let (client, dead) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 1).await;
    let theirs = dead.permit_expirable_semaphore(&world.name);
    let options = PermitOptions::new().lease(LEASE);
    let start = Instant::now();
    let permit = theirs.acquire_with(options).await.unwrap();
    dead.shutdown(Shutdown::Abandon).await.unwrap();
    let next = within(DEADLINE, semaphore.acquire()).await.unwrap();
    assert_passed(start, LEASE);
    next.release().await.unwrap();
    drop(permit);
    gone(world, 1).await;
}

pub(crate) async fn a_released_permit_is_lost(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 1).await;
    let permit = watchful(&semaphore).await;
    let elsewhere = other.permit_expirable_semaphore(&world.name);
    elsewhere.release(permit.id()).await.unwrap();
    // Before the end of the lease, which would be the reason `Expired`.
    assert_eq!(within(DEADLINE, permit.lost()).await, LostReason::Deleted);
    assert!(!permit.is_valid());
    // Its release does not free the other's permit.
    let next = elsewhere.acquire().await.unwrap();
    assert_eq!(permit.release().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(elsewhere.available_permits().await.unwrap(), 0);
    next.release().await.unwrap();
    gone(world, 1).await;
}

/// The permit stays valid while its lease exists, and is not granted to another caller.
pub(crate) async fn a_permit_of_a_deleted_semaphore_stays_its_own(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 2).await.limit(2);
    let permit = watchful(&semaphore).await;
    let _: bool = world.redis(&["DEL", &world.name]).await;
    let next = semaphore.acquire().await.unwrap();
    assert!(
        semaphore.try_acquire().await.unwrap().is_none(),
        "two of two"
    );
    assert!(permit.is_valid());
    drop((permit, next));
    gone(world, 2).await;
}

pub(crate) async fn max_hold_ends_a_stuck_holder(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    const MOST: Duration = Duration::from_millis(3500);
    let options = PermitOptions::new().lease(HELD).max_hold(MOST);
    let start = Instant::now();
    let permit = semaphore.acquire_with(options).await.unwrap();
    assert_eq!(within(DEADLINE, permit.lost()).await, LostReason::MaxHold);
    let held = start.elapsed();
    let least = MOST - MOST / 20;
    assert!(held >= least && held <= MOST + LATE, "{held:?}");
    let next = within(DEADLINE, semaphore.acquire()).await.unwrap();
    assert_eq!(permit.release().await.unwrap(), Unlocked::AlreadyExpired);
    next.release().await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn extend_lengthens_and_never_shortens(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    let options = PermitOptions::new().lease(HELD).renew(false);
    let permit = semaphore.acquire_with(options).await.unwrap();
    permit.extend(20 * HELD).await.unwrap();
    assert_near(lease_left(world, permit.id()).await, 20 * HELD);
    permit.extend(HELD).await.unwrap();
    assert_near(lease_left(world, permit.id()).await, 20 * HELD);
    for bad in [Duration::ZERO, Duration::from_millis(900_000_000_000_000)] {
        let error = permit.extend(bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
    permit.release().await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn extend_of_a_lost_permit_fails(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    let permit = semaphore.acquire().await.unwrap();
    semaphore.release(permit.id()).await.unwrap();
    for _ in 0..2 {
        let error = permit.extend(20 * LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    assert_eq!(
        semaphore.available_permits().await.unwrap(),
        1,
        "nothing re-creates it"
    );
    drop(permit);
    gone(world, 1).await;
}

pub(crate) async fn a_lease_is_updated_by_the_id(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 1).await;
    let options = PermitOptions::new().lease(20 * LEASE);
    let ids = semaphore.acquire_with(options).await.unwrap().forget();
    let elsewhere = other.permit_expirable_semaphore(&world.name);
    assert!(elsewhere.update_lease(&ids[0], 40 * LEASE).await.unwrap());
    assert_near(lease_left(world, &ids[0]).await, 40 * LEASE);
    let start = Instant::now();
    assert!(elsewhere.update_lease(&ids[0], LEASE).await.unwrap());
    let next = within(DEADLINE, elsewhere.acquire()).await.unwrap();
    assert_passed(start, LEASE);
    assert!(!semaphore.update_lease(&ids[0], LEASE).await.unwrap());
    next.release().await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn any_client_releases_by_the_id(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = semaphore(world, &client, 2).await;
    let ids = semaphore.acquire_many(2).await.unwrap().forget();
    let elsewhere = other.permit_expirable_semaphore(&world.name);
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    waits(&client, 1).await;
    settles(world, &client).await;
    elsewhere.release(&ids[0]).await.unwrap();
    let next = within(DEADLINE, waiter).await.unwrap();
    let error = elsewhere.release(&ids[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotOwner, "{error}");
    assert!(elsewhere.try_release(&ids[1]).await.unwrap());
    assert!(!elsewhere.try_release(&ids[1]).await.unwrap());
    next.release().await.unwrap();
    gone(world, 2).await;
}

pub(crate) async fn an_unknown_id_is_no_permit(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    let error = semaphore.release(UNKNOWN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotOwner, "{error}");
    assert!(!semaphore.try_release(UNKNOWN).await.unwrap());
    assert!(!semaphore.update_lease(UNKNOWN, LEASE).await.unwrap());
    for bad in ["", "xyz", &UNKNOWN[1..], "00112233445566778899aabbccddeefg"] {
        for error in [
            semaphore.release(bad).await.unwrap_err(),
            semaphore.try_release(bad).await.unwrap_err(),
            semaphore.update_lease(bad, LEASE).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        }
    }
    gone(world, 1).await;
}

pub(crate) async fn a_forgotten_permit_ends(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    let options = PermitOptions::new().lease(LEASE);
    let start = Instant::now();
    semaphore.acquire_with(options).await.unwrap().forget();
    eventually(DEADLINE, async || client.stats().renewals == 0).await;
    let next = within(DEADLINE, semaphore.acquire()).await.unwrap();
    assert_passed(start, LEASE);
    next.release().await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn the_number_is_set_whoever_has_some(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 3).await;
    let two = semaphore.acquire_many(2).await.unwrap();
    semaphore.set_permits(1).await.unwrap();
    let counts = async || {
        let free = semaphore.available_permits().await.unwrap();
        (
            free,
            semaphore.acquired().await.unwrap(),
            semaphore.permits().await.unwrap(),
        )
    };
    assert_eq!(counts().await, (-1, 2, 1));
    assert!(two.is_valid());
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    semaphore.set_permits(4).await.unwrap();
    assert_eq!(counts().await, (2, 2, 4));
    two.release().await.unwrap();
    assert_eq!(counts().await, (4, 0, 4));
    let error = semaphore.set_permits(u32::MAX).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    gone(world, 4).await;
}

pub(crate) async fn a_body_is_dropped_with_its_permit(world: &World) {
    let client = world.client();
    let semaphore = semaphore(world, &client, 1).await;
    let permit = watchful(&semaphore).await;
    let borrowed = String::from("output");
    let body = async {
        assert_eq!(semaphore.available_permits().await.unwrap(), 0);
        borrowed.as_str()
    };
    assert_eq!(within(DEADLINE, permit.run(body)).await.unwrap(), "output");
    assert!(permit.is_valid());
    let (alive, dropped) = std::sync::mpsc::channel::<()>();
    let body = async {
        let _alive = alive;
        semaphore.release(permit.id()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let error = within(DEADLINE, permit.run(body)).await.unwrap_err();
    let gone_before = dropped.try_recv() == Err(TryRecvError::Disconnected);
    assert!(gone_before, "dropped before run returns");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(error.name(), Some(&*world.name));
    assert!(
        error.to_string().contains("the body was dropped"),
        "{error}"
    );
    let body = async { panic!("under a permit that is lost") };
    let error = within(DEADLINE, permit.run(body)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(permit.release().await.unwrap(), Unlocked::AlreadyExpired);
    gone(world, 1).await;
}
