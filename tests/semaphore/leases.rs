//! Permits whose leases end, and guards that notice it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use redlock_rt::{GuardState, LostReason, PermitOptions, Shutdown, Unlocked};
use tests::{calls, eventually, shared_server, within};

use crate::stage::{DEADLINE, Stage};

/// A lease whose end a test waits for. Too short for events that must come before its end, since
/// threads may have to wait for a processor.
const LEASE: Duration = Duration::from_millis(400);

/// The end of the lease is not announced, and no client polls. A waiter that did not know the end would
/// wait for longer than the deadline, and one that asked repeatedly would be counted.
#[tokio::test]
async fn a_permit_of_the_dead_is_taken_when_its_lease_is_over() {
    let stage = Stage::open("dead").await;
    let semaphore = stage.permits(2).await;
    let other = stage.other();
    let dead = other.permit_expirable_semaphore(&stage.name);
    let options = PermitOptions::new().lease(LEASE);
    // Before the lease begins, so that a delay here does not make it seem short.
    let begin = Instant::now();
    let held = dead.acquire_with(options.permits(2)).await.unwrap();
    other.shutdown(Shutdown::Abandon).await.unwrap();
    stage.proxy.mark();
    let permit = within(DEADLINE, semaphore.acquire()).await.unwrap();
    // Redis counts in whole milliseconds.
    let waited = begin.elapsed() + Duration::from_millis(2);
    assert!(waited >= LEASE, "{waited:?}");
    let tries = stage.proxy.count(calls("permits_acquire"));
    assert!(
        tries <= 4,
        "the first (the script may be unknown), subscribed, the lease over: {tries}"
    );
    drop((held, permit));
    stage.end(2).await;
}

#[tokio::test]
async fn a_guard_knows_that_its_permit_is_gone() {
    let stage = Stage::open("gone").await;
    let semaphore = stage.permits(3).await;
    let options = || {
        PermitOptions::new()
            .lease(Duration::from_secs(30))
            .renew(Duration::from_millis(50))
    };
    let released = semaphore.acquire_with(options().permits(2)).await.unwrap();
    semaphore.release(&released.ids()[1]).await.unwrap();
    assert_eq!(within(DEADLINE, released.lost()).await, LostReason::Deleted);
    // The remaining permit is released too.
    assert_eq!(released.release().await.unwrap(), Unlocked::AlreadyExpired);
    stage.free_is(3).await;
    let deleted = semaphore.acquire_with(options()).await.unwrap();
    let _: () = stage.redis(&["DEL", &stage.leases_key()]).await;
    assert_eq!(within(DEADLINE, deleted.lost()).await, LostReason::Deleted);
    assert!(deleted.extend(LEASE).await.unwrap_err().is_lost());
    drop(deleted);
    let exists: bool = stage.redis(&["EXISTS", &stage.leases_key()]).await;
    assert!(!exists);
    semaphore.set_permits(3).await.unwrap();
    stage.end(3).await;
}

#[tokio::test]
async fn the_leases_of_a_semaphore_with_a_ttl_go_with_it() {
    let stage = Stage::open("ttl").await;
    let semaphore = stage.permits(1).await;
    let _: () = stage.redis(&["PEXPIRE", &stage.name, "60000"]).await;
    let permit = semaphore.acquire().await.unwrap();
    let ttl: i64 = stage.redis(&["PTTL", &stage.leases_key()]).await;
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    permit.release().await.unwrap();
    stage.end(1).await;
}

/// The semaphore lost its TTL, the set of leases had it: the permits were taken, and nobody's.
#[tokio::test]
async fn permits_were_gone_for_good_when_a_semaphore_lost_its_ttl() {
    let stage = Stage::open("persist").await;
    let semaphore = stage.permits(3).await;
    let options = || PermitOptions::new().lease(DEADLINE).renew(false);
    let first = semaphore.acquire_with(options()).await.unwrap();
    let ttl = async || -> i64 { stage.redis(&["PTTL", &stage.leases_key()]).await };
    let given_and_taken = async || {
        let _: () = stage.redis(&["PEXPIRE", &stage.name, "600000"]).await;
        let second = semaphore.acquire_with(options()).await.unwrap();
        assert!(ttl().await > 0);
        let _: () = stage.redis(&["PERSIST", &stage.name]).await;
        second
    };

    let second = given_and_taken().await;
    let third = semaphore.acquire_with(options()).await.unwrap();
    assert_eq!(ttl().await, -1, "after an acquisition");
    third.release().await.unwrap();
    second.release().await.unwrap();

    let second = given_and_taken().await;
    semaphore.set_permits(3).await.unwrap();
    assert_eq!(ttl().await, -1, "after a number");
    second.release().await.unwrap();

    let second = given_and_taken().await;
    second.extend(DEADLINE).await.unwrap();
    assert_eq!(ttl().await, -1, "after a lease");
    second.release().await.unwrap();

    let second = given_and_taken().await;
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    assert!(semaphore.try_set_permits(3).await.unwrap());
    assert_eq!(ttl().await, -1, "after a new semaphore");
    second.release().await.unwrap();

    let second = given_and_taken().await;
    let often = PermitOptions::new().renew(Duration::from_millis(50));
    let renewed = semaphore.acquire_with(often).await.unwrap();
    let _: () = stage
        .redis(&["PEXPIRE", &stage.leases_key(), "600000"])
        .await;
    eventually(DEADLINE, async || ttl().await == -1).await;
    for permit in [first, second, renewed] {
        permit.release().await.unwrap();
    }
    stage.end(3).await;
}

/// The call was refused, but had set the number. That has no TTL, and the set of leases had it still.
#[tokio::test]
async fn permits_were_gone_for_good_when_a_refused_call_had_set_their_number() {
    let stage = Stage::open("refused").await;
    let semaphore = stage.permits(3).await.limit(3);
    let _: () = stage.redis(&["PEXPIRE", &stage.name, "600000"]).await;
    let options = PermitOptions::new().lease(DEADLINE).renew(false);
    let held = semaphore.acquire_with(options).await.unwrap();
    let ttl = async || -> i64 { stage.redis(&["PTTL", &stage.leases_key()]).await };
    assert!(ttl().await > 0);
    let _: () = stage.redis(&["DEL", &stage.name]).await;
    assert!(semaphore.try_acquire_many(3).await.unwrap().is_none());
    stage.free_is(2).await;
    assert_eq!(ttl().await, -1);
    held.release().await.unwrap();
    stage.end(3).await;
}

/// A call sweeps at most a hundred expired permits.
#[tokio::test]
async fn a_lease_that_is_over_is_not_lengthened_however_many_are() {
    const MANY: u32 = 250;
    let stage = Stage::open("many-over").await;
    let semaphore = stage.permits(MANY).await;
    let options = PermitOptions::new().lease(LEASE).renew(false);
    let permits = semaphore.acquire_with(options.permits(MANY)).await.unwrap();
    assert_eq!(within(DEADLINE, permits.lost()).await, LostReason::Expired);
    let last: Vec<Vec<u8>> = stage
        .redis(&["ZRANGE", &stage.leases_key(), "-1", "-1"])
        .await;
    let last: String = last[0].iter().map(|byte| format!("{byte:02x}")).collect();
    let _ = permits.forget();
    // Redis has it for a little longer than the guard.
    eventually(DEADLINE, async || {
        let (seconds, micros): (u64, u64) = stage.redis(&["TIME"]).await;
        let now = (seconds * 1000 + micros / 1000).to_string();
        let over: u32 = stage
            .redis(&["ZCOUNT", &stage.leases_key(), "-inf", &now])
            .await;
        over == MANY
    })
    .await;
    assert!(!semaphore.update_lease(&last, DEADLINE).await.unwrap());
    // Acquiring calls and waiters find it too.
    let begin = Instant::now();
    let all = within(DEADLINE, semaphore.acquire_many(MANY));
    let all = all.await.unwrap();
    assert!(begin.elapsed() < DEADLINE / 2, "{:?}", begin.elapsed());
    all.release().await.unwrap();
    stage.end(MANY.into()).await;
}

/// As by Redisson, whose clients may wait for it.
#[tokio::test]
async fn who_listens_is_told_of_permits_that_lapsed_together() {
    let stage = Stage::open("together").await;
    let semaphore = stage.permits(3).await;
    let options = PermitOptions::new().lease(LEASE).renew(false);
    let lapsing = semaphore.acquire_with(options.permits(2)).await.unwrap();
    let _ = lapsing.forget();
    let client = redis::Client::open(shared_server().url()).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    heard.subscribe(stage.channel()).await.unwrap();
    // The first call that finds them over.
    eventually(DEADLINE, async || {
        semaphore.available_permits().await.unwrap() == 3
    })
    .await;
    let told = within(DEADLINE, heard.on_message().next()).await.unwrap();
    assert_eq!(told.get_payload::<i64>().unwrap(), 3);
    drop(heard);
    stage.end(3).await;
}

/// A waiter that sleeps until the old end learns the new one.
#[tokio::test]
async fn a_waiter_gets_a_permit_when_its_lease_is_shortened() {
    let stage = Stage::open("shortened").await;
    let semaphore = stage.permits(1).await;
    let options = PermitOptions::new().lease(Duration::from_secs(3600));
    let ids = semaphore.acquire_with(options).await.unwrap().forget();
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    stage.listening(1).await;
    assert!(semaphore.update_lease(&ids[0], LEASE).await.unwrap());
    let permit = within(DEADLINE, waiter).await.unwrap();
    permit.release().await.unwrap();
    stage.end(1).await;
}

/// Without Redis, the body ends at the local deadline.
#[tokio::test]
async fn a_body_ends_with_the_lease_where_redis_is_out_of_reach() {
    let stage = Stage::open("body-cut-off").await;
    let semaphore = stage.permits(1).await;
    let options = PermitOptions::new().lease(LEASE);
    let permit = semaphore.acquire_with(options).await.unwrap();
    stage.proxy.refuse();
    stage.proxy.cut_all();
    // Not after the end in Redis, since the lease began before this.
    let end = Instant::now() + LEASE;
    if let GuardState::Held { until } | GuardState::Suspect { until } = permit.state() {
        assert!(until < end, "{:?} after the end", until - end);
    }
    let stopped = within(DEADLINE, permit.run(std::future::pending::<()>())).await;
    assert!(stopped.unwrap_err().is_lost());
    stage.proxy.accept();
    drop(permit);
    // The permit ended with its lease, or by the late release.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    stage.end(1).await;
}

/// A body that completes at the moment of the loss is not reported as lost.
#[tokio::test]
async fn a_body_that_completed_is_not_called_lost() {
    let stage = Stage::open("body-done").await;
    let semaphore = stage.permits(1).await;
    // It soon notices the loss.
    let options = PermitOptions::new().renew(Duration::from_millis(20));
    let permit = semaphore.acquire_with(options).await.unwrap();
    let body = async {
        semaphore.release(permit.id()).await.unwrap();
        permit.lost().await
    };
    let reason = within(DEADLINE, permit.run(body)).await.unwrap();
    assert_eq!(reason, LostReason::Deleted);
    drop(permit);
    stage.end(1).await;
}
