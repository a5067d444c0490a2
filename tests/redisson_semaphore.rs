//! Semaphores beside Redisson in one Redis: each takes what the other gives back.
//!
//! The Redisson player shares nothing with this crate. Neither side polls here: a waiter wakes by the
//! other side's message, or at the end of a lease.

use std::time::{Duration, Instant};

use redlock_rt::{Client, LostReason, PermitExpirableSemaphore, PermitOptions, Semaphore};
use tests::{
    DEADLINE, RedissonClient, RedissonPermits, RedissonSemaphore, World, eventually, shared_server,
    within,
};

const LEASE: Duration = Duration::from_millis(300);
/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a lease of 30 s, or never.
const LATE: Duration = Duration::from_secs(5);

/// One semaphore, seen from both sides.
struct Both {
    world: World,
    client: Client,
    plain: Semaphore,
    leased: PermitExpirableSemaphore,
    java: RedissonClient,
    their_plain: RedissonSemaphore,
    their_leased: RedissonPermits,
}

impl Both {
    async fn open(what: &str) -> Self {
        let server = shared_server();
        let world = World::on(&server, what).await;
        let client = world.client();
        let java = RedissonClient::connect(&server.url()).await.unwrap();
        Self {
            plain: client.semaphore(&world.name),
            leased: client.permit_expirable_semaphore(&world.name),
            their_plain: java.semaphore(&*world.name),
            their_leased: java.permits(&*world.name),
            client,
            java,
            world,
        }
    }

    async fn ours_waits(&self) {
        eventually(DEADLINE, async || self.client.stats().waiting == 1).await;
        let channel = self.their_plain.channel();
        self.world.subscribed_to(&channel, 1).await;
    }

    async fn theirs_waits(&self) {
        eventually(DEADLINE, async || !self.java.channels().is_empty()).await;
        // After its subscription it tries once more, which finds earlier releases.
    }

    async fn end(self, permits: i64) {
        assert_eq!(self.plain.available_permits().await.unwrap(), permits);
        self.world.remove_notes().await;
        let _: bool = self.world.redis(&["DEL", &self.world.name]).await;
        self.world.assert_clean().await;
    }
}

#[tokio::test]
async fn a_semaphore_is_one_on_both_sides() {
    let both = Both::open("both").await;
    assert!(both.their_plain.try_set_permits(3).await.unwrap());
    assert!(!both.plain.try_set_permits(9).await.unwrap());
    let guard = both.plain.acquire_many(2).await.unwrap();
    assert!(!both.their_plain.try_acquire(2).await.unwrap());
    assert!(both.their_plain.try_acquire(1).await.unwrap());
    assert!(both.plain.try_acquire().await.unwrap().is_none());
    assert_eq!(both.their_plain.available().await.unwrap(), 0);
    guard.release().await.unwrap();
    both.plain.release(1).await.unwrap();
    both.end(3).await;
}

#[tokio::test]
async fn each_is_woken_by_the_other() {
    let both = Both::open("wakes").await;
    assert!(both.plain.try_set_permits(2).await.unwrap());
    for _ in 0..5 {
        assert!(both.their_plain.try_acquire(2).await.unwrap());
        let waiter = tokio::spawn({
            let plain = both.plain.clone();
            async move { plain.acquire_many(2).await.unwrap() }
        });
        both.ours_waits().await;
        both.their_plain.release(2).await.unwrap();
        let guard = within(DEADLINE, waiter).await.unwrap();
        eventually(DEADLINE, async || both.client.stats().subscriptions == 0).await;

        let waiter = tokio::spawn({
            let theirs = both.their_plain.clone();
            async move { theirs.acquire(2, None).await.unwrap() }
        });
        both.theirs_waits().await;
        guard.release().await.unwrap();
        assert!(within(DEADLINE, waiter).await.unwrap());
        both.their_plain.release(2).await.unwrap();
    }
    both.end(2).await;
}

#[tokio::test]
async fn each_takes_the_permit_that_the_other_gave_back() {
    let both = Both::open("permits").await;
    assert!(both.their_leased.try_set_permits(1).await.unwrap());
    for _ in 0..5 {
        let id = both.their_leased.acquire(None).await.unwrap();
        let waiter = tokio::spawn({
            let leased = both.leased.clone();
            async move { leased.acquire().await.unwrap() }
        });
        both.ours_waits().await;
        assert!(both.their_leased.try_release(&id).await.unwrap());
        let permit = within(DEADLINE, waiter).await.unwrap();
        eventually(DEADLINE, async || both.client.stats().subscriptions == 0).await;

        let waiter = tokio::spawn({
            let theirs = both.their_leased.clone();
            async move { theirs.acquire(Some(DEADLINE)).await.unwrap() }
        });
        both.theirs_waits().await;
        permit.release().await.unwrap();
        let id = within(DEADLINE, waiter).await.unwrap();
        // Either side releases by id what the other acquired.
        both.leased.release(&id).await.unwrap();
        let permit = both.leased.acquire().await.unwrap();
        assert!(both.their_leased.try_release(permit.id()).await.unwrap());
        drop(permit);
    }
    both.end(1).await;
}

#[tokio::test]
async fn each_takes_what_the_other_let_expire() {
    let both = Both::open("expired").await;
    assert!(both.leased.try_set_permits(1).await.unwrap());
    both.their_leased.acquire(Some(LEASE)).await.unwrap();
    let begin = Instant::now();
    let permit = within(
        DEADLINE,
        both.leased.acquire_with(PermitOptions::new().lease(LEASE)),
    );
    let ids = permit.await.unwrap().forget();
    let waited = begin.elapsed();
    assert!(waited <= LEASE + LATE, "{waited:?}");
    let begin = Instant::now();
    let id = within(DEADLINE, both.their_leased.acquire(None))
        .await
        .unwrap();
    assert!(begin.elapsed() <= LEASE + LATE);
    assert!(!both.leased.try_release(&ids[0]).await.unwrap());
    both.leased.release(&id).await.unwrap();
    both.end(1).await;
}

/// Java's thread sleeps until the end that it knows.
#[tokio::test]
async fn theirs_hears_that_a_lease_was_shortened() {
    let both = Both::open("shortened").await;
    assert!(both.leased.try_set_permits(1).await.unwrap());
    let options = PermitOptions::new().lease(Duration::from_secs(3600));
    let ids = both.leased.acquire_with(options).await.unwrap().forget();
    let waiter = tokio::spawn({
        let theirs = both.their_leased.clone();
        async move { theirs.acquire(None).await.unwrap() }
    });
    both.theirs_waits().await;
    assert!(both.leased.update_lease(&ids[0], LEASE).await.unwrap());
    let id = within(DEADLINE, waiter).await.unwrap();
    both.leased.release(&id).await.unwrap();
    both.end(1).await;
}

/// Redisson removes a held permit; the guard notices it.
#[tokio::test]
async fn a_clock_that_is_ahead_sweeps_what_is_held() {
    let both = Both::open("ahead").await;
    assert!(both.leased.try_set_permits(1).await.unwrap());
    let options = PermitOptions::new().renew(Duration::from_millis(50));
    let permit = both.leased.acquire_with(options).await.unwrap();
    let ahead = both
        .java
        .permits_ahead(&*both.world.name, Duration::from_secs(60));
    let id = within(DEADLINE, ahead.acquire(None)).await.unwrap();
    assert_eq!(within(DEADLINE, permit.lost()).await, LostReason::Deleted);
    drop(permit);
    assert!(ahead.try_release(&id).await.unwrap());
    eventually(DEADLINE, async || both.client.stats().releases == 0).await;
    both.end(1).await;
}
