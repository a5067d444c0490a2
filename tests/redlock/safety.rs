//! Never two majorities: the parts that a guard may count.

use redlock_rt::{LockOptions, LostReason};
use tests::{RedisServer, assert_held, eventually, within};

use crate::{DEADLINE, LEASE, SERVER_TIMEOUT, Servers};

/// A has servers 1, 2 and 3 of five. 3 forgets, and B gets 3, 4 and 5. A is lost as soon as it learns
/// about 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_does_not_make_two_majorities() {
    let servers = Servers::start(5);
    let (a, to_a) = servers.party_by_proxies();
    let b = servers.party();
    to_a[3].refuse();
    to_a[4].refuse();
    let guard = within(DEADLINE, a.lock().lock()).await.unwrap();
    assert_eq!(guard.servers(), 3);
    // B cannot get the lock: 4 and 5 are no majority.
    assert!(b.lock().try_lock().await.unwrap().is_none());
    servers.assert_free([3, 4]).await;

    // A cannot learn about it until B has the lock.
    to_a[2].refuse();
    servers.0[2].restart();
    let theirs = within(DEADLINE, b.lock().lock()).await.unwrap();
    assert_eq!(theirs.servers(), 3);
    to_a[2].accept();
    let lost = within(LEASE / 2, guard.lost()).await;
    assert!(
        matches!(lost, LostReason::Taken | LostReason::Deleted),
        "{lost}"
    );
    assert!(!guard.is_valid() && theirs.is_valid());
    // A's other parts are released. B's guard acquires these servers as soon as they are free.
    eventually(DEADLINE, async || a.clients[0].stats().held == 0).await;
    for at in [0, 1] {
        eventually(DEADLINE, async || match servers.owner(at).await {
            Some(owner) if owner.starts_with(a.clients[at].uuid()) => Err(owner),
            _ => Ok(()),
        })
        .await;
    }
    theirs.unlock().await.unwrap();
    servers.assert_free(0..5).await;
    assert!(!guard.is_valid());
}

/// The same, noticed at once: when the connection is back, the holds there are verified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_known_as_soon_as_the_connection_is_back() {
    let servers = Servers::start(5);
    let (a, to_a) = servers.party_by_proxies();
    to_a[3].refuse();
    to_a[4].refuse();
    let guard = within(DEADLINE, a.lock().lock()).await.unwrap();
    servers.0[2].restart();
    // Long before a renewal is due.
    let lost = within(LEASE / 4, guard.lost()).await;
    assert_eq!(lost, LostReason::Deleted);
    // Two servers and a re-acquired part are no majority, so the part is not acquired again.
    tokio::time::sleep(SERVER_TIMEOUT).await;
    servers.assert_free(0..3).await;
}

/// 4 forgets and is acquired again. But 3 forgot too, and A cannot learn that. Another caller may have
/// had 3, 4 and 5 meanwhile, so 4 does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_part_counts_only_with_an_uninterrupted_majority() {
    let servers = Servers::start(5);
    let (a, to_a) = servers.party_by_proxies();
    to_a[4].refuse();
    let options = LockOptions::new().lease(4 * LEASE);
    let guard = within(DEADLINE, a.lock().lock_with(options)).await.unwrap();
    assert_eq!(guard.servers(), 4);

    to_a[2].go_silent();
    servers.0[2].restart();
    to_a[3].refuse();
    servers.0[3].restart();
    // Another caller acquires and releases the lock while A counts 3.
    let b = servers.party();
    let theirs = within(DEADLINE, b.lock().lock()).await.unwrap();
    assert!(guard.is_valid());
    theirs.unlock().await.unwrap();
    to_a[3].accept();
    // A acquires 4 again, asks 3, and releases 4.
    let taken = to_a[3].frames().len();
    eventually(DEADLINE, async || to_a[3].frames().len() > taken + 2).await;
    tokio::time::sleep(2 * SERVER_TIMEOUT).await;
    to_a[2].cut_all();
    to_a[2].resume();
    let lost = within(2 * LEASE, guard.lost()).await;
    assert_eq!(lost, LostReason::Deleted);
    servers.assert_free(0..5).await;
}

/// A part is acquired again if a majority is left, and only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_come_back_one_after_the_other_for_as_long_as_others_are_left() {
    let servers = Servers::start(3);
    let party = servers.party();
    let guard = within(DEADLINE, party.lock().lock()).await.unwrap();
    for round in 0..6 {
        servers.0[round % 3].restart();
        eventually(DEADLINE, async || {
            let there = servers.owner(round % 3).await.is_some();
            there && guard.servers() == 3
        })
        .await;
        assert_held(&guard.state());
    }
    // Two losses at once are too many.
    servers.each([0, 1], RedisServer::kill);
    servers.each([0, 1], RedisServer::restart);
    within(LEASE / 2, guard.lost()).await;
    servers.assert_free(0..3).await;
}
