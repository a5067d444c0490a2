//! Servers that die, hang and return.

use std::time::Duration;

use redlock_rt::{ErrorKind, GuardState, LockOptions, LostReason, Unlocked};
use tests::{CALL, RedisServer, ask, assert_held, eventually, within};
use tokio::time::Instant;

use crate::{DEADLINE, LEASE, NAME, SERVER_TIMEOUT, Servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_minority_does_not_matter() {
    let servers = Servers::start(5);
    let (party, other) = (servers.party(), servers.party());
    let (lock, rival) = (party.lock(), other.lock());
    // Connects both, since a try has no time for that on a busy machine.
    for lock in [&lock, &rival] {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    servers.each([1, 4], RedisServer::kill);
    for _ in 0..3 {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(guard.servers(), 3);
        assert_held(&guard.state());
        assert!(lock.is_locked().await.unwrap());
        assert_eq!(lock.holders().await.unwrap(), guard.hold_ids());
        assert!(rival.try_lock().await.unwrap().is_none());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert!(!lock.is_locked().await.unwrap());
    }
    servers.assert_left_by(&party, [0, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_minority_holds_up_nobody_and_keeps_nothing() {
    let servers = Servers::start(5);
    let party = servers.party();
    let lock = party.lock();
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    servers.each([0, 3], RedisServer::pause);
    let begun = Instant::now();
    for _ in 0..5 {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(guard.servers(), 3);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    // Not one server's time-out each.
    assert!(
        begun.elapsed() < SERVER_TIMEOUT * 3,
        "{:?}",
        begun.elapsed()
    );
    // The commands that they received meanwhile run now, and are undone.
    servers.each([0, 3], RedisServer::resume);
    servers.assert_left_by(&party, 0..5).await;
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.servers(), 5);
}

/// The counts on the other servers are undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_reentered_by_a_majority_and_by_no_fewer() {
    let servers = Servers::start(3);
    let party = servers.party();
    let lock = party.lock();
    let long = LockOptions::new().lease(DEADLINE * 6);
    let guard = within(DEADLINE, lock.lock_with(long)).await.unwrap();
    assert_eq!(guard.servers(), 3);
    servers.0[1].kill();
    let inner = within(DEADLINE, guard.reenter()).await.unwrap();
    assert_eq!((inner.servers(), inner.hold_count()), (2, 2));
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);

    servers.0[2].kill();
    let error = within(2 * DEADLINE, guard.reenter()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    assert_eq!(error.name(), Some(NAME));
    // The leases on the missing servers still run.
    assert!(guard.is_valid());
    let redis = servers.0[0].connect().await.unwrap();
    // In the background, if its answer takes longer than the others' failure.
    eventually(DEADLINE, async || {
        ask::<Vec<u32>>(&redis, &["HVALS", NAME]).await == [1]
    })
    .await;
    drop(guard);
    servers.assert_free([0]).await;
}

/// A server that answers after the majority still joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_joins_later() {
    let servers = Servers::start(3);
    let (party, to_it) = servers.party_by_proxies();
    let quorum = party.quorum.clone().server_timeout(LEASE / 2);
    let lock = quorum.redlock(NAME);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    to_it[1].delay(CALL, SERVER_TIMEOUT / 2);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert!(guard.servers() >= 2);
    eventually(DEADLINE, async || guard.servers() == 3).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    to_it[1].clear();
    servers.assert_left_by(&party, 0..3).await;
}

/// The first answer set the time in which all others had to come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_was_refused_where_one_server_was_nearer_than_the_majority() {
    let servers = Servers::start(3);
    let (party, to_it) = servers.party_by_proxies();
    let lock = party.quorum.clone().server_timeout(LEASE / 2).redlock(NAME);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    for far in &to_it[1..] {
        far.delay(CALL, SERVER_TIMEOUT / 2);
    }
    let guard = within(DEADLINE, lock.try_lock()).await.unwrap();
    assert!(guard.expect("it is free").servers() >= 2);
    to_it.iter().for_each(tests::Proxy::clear);
    servers.assert_left_by(&party, 0..3).await;
}

/// It was `None`, as if another owner had the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_lease_ended_while_the_last_server_was_asked_found_a_held_lock() {
    let servers = Servers::start(3);
    let (party, to_it) = servers.party_by_proxies();
    let lock = party.quorum.clone().server_timeout(LEASE).redlock(NAME);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    // The last one has ten times as long as the others took, unless its connection is given up before.
    for near in &to_it[..2] {
        near.delay(CALL, SERVER_TIMEOUT / 4);
    }
    to_it[2].go_silent();
    let options = LockOptions::new().wait(Duration::ZERO).renew(false);
    let options = options.lease(SERVER_TIMEOUT);
    let error = within(DEADLINE, lock.lock_with(options)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    to_it.iter().for_each(tests::Proxy::clear);
    servers.assert_left_by(&party, 0..3).await;
}

/// The release on a silent server continues in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_wait_for_a_silent_minority() {
    let servers = Servers::start(3);
    let party = servers.party();
    let guard = within(DEADLINE, party.lock().lock()).await.unwrap();
    assert_eq!(guard.servers(), 3);
    servers.0[1].pause();
    let begun = Instant::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(begun.elapsed() < LEASE / 2, "{:?}", begun.elapsed());
    servers.0[1].resume();
    servers.assert_left_by(&party, 0..3).await;
}

/// A round that the end of the wait cuts short does not report a contended lock as unavailable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_known_state_explains_a_failed_wait() {
    const WAIT: Duration = Duration::from_secs(3);
    let servers = Servers::start(3);
    let _guard = within(DEADLINE, servers.party().lock().lock())
        .await
        .unwrap();
    let (waiting, to_it) = servers.party_by_proxies();
    let lock = waiting.lock();
    assert!(lock.try_lock().await.unwrap().is_none());
    let call = tokio::spawn(async move { lock.lock_with(LockOptions::new().wait(WAIT)).await });
    // Less than a time-out before the end, and more than the longest pause.
    tokio::time::sleep(WAIT - SERVER_TIMEOUT * 9 / 10).await;
    to_it.iter().for_each(tests::Proxy::go_silent);
    let error = within(DEADLINE, call).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

/// Silent servers are not asked repeatedly by every caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_owed_a_bounded_number_of_releases() {
    let servers = Servers::start(3);
    let party = servers.party();
    let lock = party.lock();
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    servers.0[2].pause();
    for number in 0..200 {
        let lock = party.quorum.redlock(format!("{NAME}:{number}"));
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    let owed = party.clients[2].stats().releases;
    assert!((1..=70).contains(&owed), "{owed}");
    servers.0[2].resume();
    servers.assert_left_by(&party, 0..3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_dies_under_a_guard_is_acquired_again_when_it_is_back() {
    let servers = Servers::start(5);
    let party = servers.party();
    let lock = party.lock();
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.servers(), 5);
    servers.each([0, 1], RedisServer::kill);
    // The other servers keep the lock for longer than any lease.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert_held(&guard.state());
    assert_eq!(guard.servers(), 3);
    // The servers return empty, and the lock is acquired there again.
    servers.each([0, 1], RedisServer::restart);
    eventually(DEADLINE, async || guard.servers() == 5).await;
    let owner = servers.owner(0).await.unwrap();
    assert!(owner.starts_with(party.clients[0].uuid()), "{owner}");
    // And they count, so the other servers may fail.
    servers.each([2, 3], RedisServer::kill);
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert_held(&guard.state());
    assert_eq!(guard.servers(), 3);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_left_by(&party, [0, 1, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_empty_is_acquired_again_at_once() {
    let servers = Servers::start(3);
    let party = servers.party();
    let guard = within(DEADLINE, party.lock().lock()).await.unwrap();
    // It comes back empty.
    servers.0[1].restart();
    let begun = Instant::now();
    eventually(DEADLINE, async || servers.owner(1).await.is_some()).await;
    // Long before a renewal is due there.
    assert!(begun.elapsed() < LEASE / 4, "{:?}", begun.elapsed());
    eventually(DEADLINE, async || guard.servers() == 3).await;
    assert_held(&guard.state());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_left_by(&party, 0..3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_it_is_lost_by_the_deadline_and_waiters_are_told_why() {
    const WAIT: Duration = Duration::from_secs(2);
    let servers = Servers::start(5);
    let party = servers.party();
    let guard = within(DEADLINE, party.lock().lock()).await.unwrap();
    let waiting = servers.party();
    let lock = waiting.lock();
    assert!(lock.try_lock().await.unwrap().is_none());
    servers.each([0, 2, 4], RedisServer::kill);
    let killed = Instant::now();
    let begun = Instant::now();
    let error = lock
        .lock_with(LockOptions::new().wait(WAIT))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    assert!(error.is_unavailable() && error.name() == Some(NAME));
    assert!(begun.elapsed() < WAIT + WAIT / 2, "{:?}", begun.elapsed());
    // Also for a task that waits behind another.
    let waits = (0..3).map(|_| lock.lock_with(LockOptions::new().wait(WAIT)));
    for outcome in within(DEADLINE, futures::future::join_all(waits)).await {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Quorum);
    }
    let error = lock.try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    for asked in [lock.is_locked().await, lock.force_unlock().await] {
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Quorum);
    }
    // By now most of its lease is over, and no server can renew it.
    within(DEADLINE, guard.lost()).await;
    assert!(killed.elapsed() < 2 * LEASE, "{:?}", killed.elapsed());
    // The loss is final, also when the servers are back, and the remaining parts are released.
    servers.each([0, 2, 4], RedisServer::restart);
    servers.assert_free(0..5).await;
    let next = within(DEADLINE, servers.party().lock().lock())
        .await
        .unwrap();
    assert!(next.is_valid() && !guard.is_valid());
    assert_eq!(guard.servers(), 0);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    party.assert_idle(0..5).await;
    waiting.assert_idle(0..5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_majority_ends_it_at_the_local_deadline() {
    let servers = Servers::start(3);
    let party = servers.party();
    let guard = within(DEADLINE, party.lock().lock()).await.unwrap();
    // Renewed before, so that the connection for renewals exists.
    tokio::time::sleep(LEASE / 2).await;
    servers.each([0, 1], RedisServer::pause);
    let silent = Instant::now();
    let mut suspect = false;
    while guard.is_valid() {
        suspect |= matches!(guard.state(), GuardState::Suspect { .. });
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(suspect, "it was never in doubt");
    assert!(
        silent.elapsed() < LEASE + LEASE / 4,
        "{:?}",
        silent.elapsed()
    );
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    servers.each([0, 1], RedisServer::resume);
    drop(guard);
    servers.assert_left_by(&party, 0..3).await;
}

/// While nothing is lost, only renewals are sent, and one task serves all guards.
#[tokio::test]
async fn nothing_is_asked_while_nothing_is_lost() {
    let servers = Servers::start(3);
    let (party, proxies) = servers.party_by_proxies();
    let lock = |number: usize| party.quorum.redlock(format!("{NAME}:{number}"));
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(within(DEADLINE, lock(number).lock()).await.unwrap());
    }
    proxies.iter().for_each(tests::Proxy::mark);
    tokio::time::sleep(LEASE).await;
    // Makes all connections.
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    for proxy in &proxies {
        let frames = proxy.counts();
        // Three or four renewals of all twenty, a few of them in separate batches.
        let sent = frames.get("EVALSHA").copied().unwrap_or(0);
        assert!((2..20).contains(&sent), "{frames:?}");
    }
    for number in 20..40 {
        guards.push(within(DEADLINE, lock(number).lock()).await.unwrap());
    }
    let after = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert!(after <= before, "{before} tasks, then {after}");
    // A server that answers late is added later.
    let on_all = async || guards.iter().all(|guard| guard.servers() == 3);
    eventually(DEADLINE, on_all).await;
    drop(guards);
    servers.assert_free(0..3).await;
}
