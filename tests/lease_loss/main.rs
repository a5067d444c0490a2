//! Locks are lost with their holder, with Redis, or by other clients: the guard notices in time,
//! waiters are served, and a lost lock is never created again.

mod full;
mod many;
mod outage;
mod signal;
mod stolen;
mod terms;
mod too_long;
mod tracked;
mod untold;

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use futures::future::{join_all, ready};
use redlock_rt::{Client, GuardState, RLockGuard};
use tests::{
    DEADLINE, Driver, ask, assert_clean, eventually, shared_server, trace_init, unique,
    valid_until, within,
};

/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a lease of a minute, or of a poll interval of several.
const LATE: Duration = Duration::from_secs(5);
/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

/// Short, since each test waits for it at its end.
const LINGER: Duration = Duration::from_millis(20);

/// Waits until the local deadline of the guard is after `moment`.
#[track_caller]
fn held_beyond(guard: &RLockGuard, moment: Instant) -> impl Future<Output = ()> {
    eventually(DEADLINE, move || {
        ready(match guard.state() {
            GuardState::Held { until } if until > moment => Ok(()),
            state => Err(format!("{state:?}")),
        })
    })
}

/// Waits until each guard was renewed; returns until when they were valid before.
async fn all_renewed(guards: &[RLockGuard]) -> Vec<Instant> {
    let end = |guard: &RLockGuard| valid_until(&guard.state());
    let ends: Vec<_> = guards.iter().map(end).collect();
    for (guard, end) in guards.iter().zip(&ends) {
        held_beyond(guard, *end).await;
    }
    ends
}

/// The holder's process is killed: the next waiter gets the lock when the lease is over.
#[tokio::test]
async fn a_killed_holder_is_succeeded_when_its_lease_is_over() {
    trace_init();
    // Renewed at a third of the lease, by a process that may have to wait for a processor.
    let leases = [3000, 4000, 5000].map(Duration::from_millis);
    join_all(leases.map(succeed_a_killed_holder)).await;
}

async fn succeed_a_killed_holder(lease: Duration) {
    let (server, name) = (shared_server(), unique("killed"));
    let redis = server.connect().await.unwrap();
    let mut driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
    let millis = lease.as_millis();
    driver
        .ok(&format!("connect {} {millis}", server.url()))
        .await;
    driver.ok(&format!("lock {name} a")).await;
    let client = Client::builder()
        .url(&server.url())
        .poll_interval(NEVER)
        .linger(LINGER);
    let client = client.build().unwrap();
    let lock = client.rlock(&name);
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    // The holder renews: its remaining lease grows while another client waits.
    eventually(DEADLINE, async || client.stats().subscriptions == 1).await;
    // From one look to the next: a renewal makes it no longer than it was at the beginning.
    let last = AtomicI64::new(i64::MAX);
    eventually(DEADLINE, async || {
        let left = ask::<i64>(&redis, &["PTTL", &name]).await;
        left > last.swap(left, Ordering::Relaxed)
    })
    .await;
    assert!(
        u128::try_from(last.into_inner()).unwrap() <= millis,
        "it is another holder's"
    );

    let asked = Instant::now();
    let rest: u64 = ask(&redis, &["PTTL", &name]).await;
    driver.kill();
    let killed = Instant::now();
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert!(asked.elapsed() + Duration::from_millis(5) >= Duration::from_millis(rest));
    assert!(
        killed.elapsed() <= lease + LATE,
        "{:?} after {lease:?}",
        killed.elapsed()
    );
    guard.unlock().await.unwrap();
    assert_clean(&server, &name, [&client]).await;
}
