//! Semaphores beside Redisson's: each takes what the other gives back, also at the end of a lease.

use std::time::{Duration, Instant};

use redlock_rt::{LostReason, PermitExpirableSemaphore, PermitOptions, Semaphore};
use tests::{DEADLINE, RedissonPermits, RedissonSemaphore, eventually, within};

use crate::{LATE, LEASE};

/// A semaphore, whose permits have leases or not.
struct Permits<P, L> {
    plain: P,
    leased: L,
}

type Both = crate::Both<
    Permits<Semaphore, PermitExpirableSemaphore>,
    Permits<RedissonSemaphore, RedissonPermits>,
>;

impl Both {
    async fn open(what: &str) -> Self {
        Self::of(
            what,
            |client, name| Permits {
                plain: client.semaphore(name),
                leased: client.permit_expirable_semaphore(name),
            },
            |java, name| Permits {
                plain: java.semaphore(name),
                leased: java.permits(name),
            },
        )
        .await
    }

    async fn ours_waits(&self) {
        eventually(DEADLINE, async || self.client.stats().waiting == 1).await;
        let channel = self.theirs.plain.channel();
        self.subscribed_to(&channel, 1).await;
    }

    async fn theirs_waits(&self) {
        eventually(DEADLINE, async || !self.java.channels().is_empty()).await;
        // After its subscription it tries once more, which finds earlier releases.
    }

    async fn end_with(self, permits: i64) {
        assert_eq!(self.ours.plain.available_permits().await.unwrap(), permits);
        self.remove_notes().await;
        let _: bool = self.redis(&["DEL", &self.name]).await;
        self.end().await;
    }
}

#[tokio::test]
async fn a_semaphore_is_one_on_both_sides() {
    let both = Both::open("both").await;
    assert!(both.theirs.plain.try_set_permits(3).await.unwrap());
    assert!(!both.ours.plain.try_set_permits(9).await.unwrap());
    let guard = both.ours.plain.acquire_many(2).await.unwrap();
    assert!(!both.theirs.plain.try_acquire(2).await.unwrap());
    assert!(both.theirs.plain.try_acquire(1).await.unwrap());
    assert!(both.ours.plain.try_acquire().await.unwrap().is_none());
    assert_eq!(both.theirs.plain.available().await.unwrap(), 0);
    guard.release().await.unwrap();
    both.ours.plain.release(1).await.unwrap();
    both.end_with(3).await;
}

#[tokio::test]
async fn each_is_woken_by_the_other() {
    let both = Both::open("wakes").await;
    assert!(both.ours.plain.try_set_permits(2).await.unwrap());
    for _ in 0..5 {
        assert!(both.theirs.plain.try_acquire(2).await.unwrap());
        let waiter = tokio::spawn({
            let plain = both.ours.plain.clone();
            async move { plain.acquire_many(2).await.unwrap() }
        });
        both.ours_waits().await;
        both.theirs.plain.release(2).await.unwrap();
        let guard = within(DEADLINE, waiter).await.unwrap();
        eventually(DEADLINE, async || both.client.stats().subscriptions == 0).await;

        let waiter = tokio::spawn({
            let theirs = both.theirs.plain.clone();
            async move { theirs.acquire(2, None).await.unwrap() }
        });
        both.theirs_waits().await;
        guard.release().await.unwrap();
        assert!(within(DEADLINE, waiter).await.unwrap());
        both.theirs.plain.release(2).await.unwrap();
    }
    both.end_with(2).await;
}

#[tokio::test]
async fn each_takes_the_permit_that_the_other_gave_back() {
    let both = Both::open("permits").await;
    assert!(both.theirs.leased.try_set_permits(1).await.unwrap());
    for _ in 0..5 {
        let id = both.theirs.leased.acquire(None).await.unwrap();
        let waiter = tokio::spawn({
            let leased = both.ours.leased.clone();
            async move { leased.acquire().await.unwrap() }
        });
        both.ours_waits().await;
        assert!(both.theirs.leased.try_release(&id).await.unwrap());
        let permit = within(DEADLINE, waiter).await.unwrap();
        eventually(DEADLINE, async || both.client.stats().subscriptions == 0).await;

        let waiter = tokio::spawn({
            let theirs = both.theirs.leased.clone();
            async move { theirs.acquire(Some(DEADLINE)).await.unwrap() }
        });
        both.theirs_waits().await;
        permit.release().await.unwrap();
        let id = within(DEADLINE, waiter).await.unwrap();
        // Either side releases by id what the other acquired.
        both.ours.leased.release(&id).await.unwrap();
        let permit = both.ours.leased.acquire().await.unwrap();
        assert!(both.theirs.leased.try_release(permit.id()).await.unwrap());
        drop(permit);
    }
    both.end_with(1).await;
}

#[tokio::test]
async fn each_takes_what_the_other_let_expire() {
    let both = Both::open("expired").await;
    assert!(both.ours.leased.try_set_permits(1).await.unwrap());
    both.theirs.leased.acquire(Some(LEASE)).await.unwrap();
    let begin = Instant::now();
    let permit = within(
        DEADLINE,
        both.ours
            .leased
            .acquire_with(PermitOptions::new().lease(LEASE)),
    );
    let ids = permit.await.unwrap().forget();
    let waited = begin.elapsed();
    assert!(waited <= LEASE + LATE, "{waited:?}");
    let begin = Instant::now();
    let id = within(DEADLINE, both.theirs.leased.acquire(None))
        .await
        .unwrap();
    assert!(begin.elapsed() <= LEASE + LATE);
    assert!(!both.ours.leased.try_release(&ids[0]).await.unwrap());
    both.ours.leased.release(&id).await.unwrap();
    both.end_with(1).await;
}

/// It was said to last for 29 000 years.
#[tokio::test]
async fn a_permit_of_theirs_without_a_lease_is_shown_as_such() {
    let both = Both::open("endless").await;
    assert!(both.theirs.leased.try_set_permits(1).await.unwrap());
    let id = both.theirs.leased.acquire(None).await.unwrap();
    let inspection = both.client.inspect(&both.name).await.unwrap().unwrap();
    let ttls: Vec<_> = inspection.holders.iter().map(|holder| holder.ttl).collect();
    assert_eq!(ttls, [None]);
    both.ours.leased.release(&id).await.unwrap();
    both.end_with(1).await;
}

/// Java's thread sleeps until the end that it knows.
#[tokio::test]
async fn theirs_hears_that_a_lease_was_shortened() {
    let both = Both::open("shortened").await;
    assert!(both.ours.leased.try_set_permits(1).await.unwrap());
    let options = PermitOptions::new().lease(Duration::from_secs(3600));
    let ids = both
        .ours
        .leased
        .acquire_with(options)
        .await
        .unwrap()
        .forget();
    let waiter = tokio::spawn({
        let theirs = both.theirs.leased.clone();
        async move { theirs.acquire(None).await.unwrap() }
    });
    both.theirs_waits().await;
    assert!(both.ours.leased.update_lease(&ids[0], LEASE).await.unwrap());
    let id = within(DEADLINE, waiter).await.unwrap();
    both.ours.leased.release(&id).await.unwrap();
    both.end_with(1).await;
}

/// Redisson removes a held permit; the guard notices it.
#[tokio::test]
async fn a_clock_that_is_ahead_sweeps_what_is_held() {
    let both = Both::open("ahead").await;
    assert!(both.ours.leased.try_set_permits(1).await.unwrap());
    let options = PermitOptions::new().renew(Duration::from_millis(50));
    let permit = both.ours.leased.acquire_with(options).await.unwrap();
    let ahead = both
        .java
        .permits_ahead(&*both.name, Duration::from_secs(60));
    let id = within(DEADLINE, ahead.acquire(None)).await.unwrap();
    assert_eq!(within(DEADLINE, permit.lost()).await, LostReason::Deleted);
    drop(permit);
    assert!(ahead.try_release(&id).await.unwrap());
    eventually(DEADLINE, async || both.client.stats().releases == 0).await;
    both.end_with(1).await;
}
