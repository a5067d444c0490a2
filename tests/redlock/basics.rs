//! The state on the servers, the state of the guard, and questions to all servers.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, GuardState, LockOptions, LostReason, Owner, Quorum, Unlocked};
use tests::within;

use crate::{DEADLINE, LEASE, NAME, SERVER_TIMEOUT, Servers};

#[tokio::test]
async fn it_is_an_rlock_on_every_server() {
    let servers = Servers::start(5);
    let party = servers.party();
    let lock = party.lock();
    assert_eq!((party.quorum.servers(), party.quorum.majority()), (5, 3));
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.holder().await.unwrap(), None);
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);

    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert!(
        matches!(guard.state(), GuardState::Held { .. }),
        "{guard:?}"
    );
    assert_eq!((guard.servers(), guard.hold_count()), (5, 1));
    for (at, owner) in guard.hold_ids().iter().enumerate() {
        assert_eq!(owner.client(), party.clients[at].uuid());
        assert_eq!(servers.owner(at).await, Some(owner.to_string()));
    }
    assert!(lock.is_locked().await.unwrap());
    assert_eq!(lock.holders().await.unwrap(), guard.hold_ids());
    assert_eq!(
        lock.holder().await.unwrap().as_ref(),
        guard.hold_ids().first()
    );
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    let rest = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(rest > LEASE / 2 && rest <= LEASE, "{rest:?}");

    assert!(lock.try_lock().await.unwrap().is_none());
    let other = servers.party();
    assert!(other.lock().try_lock().await.unwrap().is_none());
    let brief = LockOptions::new().wait(2 * SERVER_TIMEOUT);
    let error = other.lock().lock_with(brief).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.name()),
        (ErrorKind::TimedOut, Some(NAME))
    );
    let zero = LockOptions::new().wait(Duration::ZERO);
    let error = other.lock().lock_with(zero).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);

    // Renewed on all servers.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert!(
        matches!(guard.state(), GuardState::Held { .. }),
        "{guard:?}"
    );
    assert_eq!(guard.servers(), 5);

    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_free(0..5).await;
    let guard = within(DEADLINE, other.lock().lock()).await.unwrap();
    drop(guard);
    servers.assert_free(0..5).await;
    party.assert_idle(0..5).await;
    other.assert_idle(0..5).await;
}

fn embedded(count: usize) -> Quorum {
    Quorum::new((0..count).map(|_| Client::embedded())).unwrap()
}

#[tokio::test]
async fn any_number_of_servers_has_a_majority() {
    for (servers, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
        let quorum = embedded(servers);
        assert_eq!((quorum.servers(), quorum.majority()), (servers, majority));
        let lock = quorum.redlock("n");
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(guard.servers(), servers);
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
}

#[tokio::test]
async fn bad_input_is_refused() {
    assert!(Quorum::new([]).unwrap_err().is_bad_input());
    let client = Client::embedded();
    let twice = Quorum::new([client.clone(), client.clone()]);
    assert!(twice.unwrap_err().is_bad_input());
    // One server, with any database, and any spelling of the host.
    let urls = ["redis://host:7000/1", "redis://HOST:7000", "redis://other"];
    let clients = urls.map(|url| Client::builder().url(url).build().unwrap());
    assert!(Quorum::new(clients).unwrap_err().is_bad_input());
    // Unless they have different server names.
    let named = ["a", "b"].map(|name| {
        let client = Client::builder().url("redis://host:7000").server_name(name);
        client.build().unwrap()
    });
    assert!(Quorum::new(named).is_ok());
    assert!(
        Client::builder()
            .url("redis://h")
            .server_name(" ")
            .build()
            .is_err()
    );

    let quorum = embedded(3);
    for bad in ["", " ", "a\0b"] {
        let lock = quorum.redlock(bad);
        assert!(lock.lock().await.unwrap_err().is_bad_input());
        assert!(lock.try_lock().await.unwrap_err().is_bad_input());
        assert!(lock.is_locked().await.unwrap_err().is_bad_input());
        assert!(lock.force_unlock().await.unwrap_err().is_bad_input());
    }
    let lock = quorum.redlock("n");
    let bad = LockOptions::new().lease(Duration::ZERO);
    assert!(lock.lock_with(bad).await.unwrap_err().is_bad_input());
    let zero = quorum.clone().server_timeout(Duration::ZERO);
    assert!(zero.redlock("n").lock().await.unwrap_err().is_bad_input());
    let guard = lock.lock().await.unwrap();
    assert!(
        guard
            .extend(Duration::ZERO)
            .await
            .unwrap_err()
            .is_bad_input()
    );
}

#[tokio::test]
async fn a_body_reenters() {
    let quorum = embedded(3);
    let lock = quorum.redlock("n");
    let guard = lock.lock().await.unwrap();
    // Another task waits for the release; the caller inside does not wait behind it.
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let inside = guard.run(async {
        let inner = lock.lock().await.unwrap();
        assert_eq!((inner.hold_count(), guard.hold_count()), (2, 2));
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        let turns = (0..3).map(|_| lock.with(async |_| tokio::task::yield_now().await));
        for turn in futures::future::join_all(turns).await {
            turn.unwrap();
        }
    });
    within(DEADLINE, inside).await.unwrap();
    assert_eq!(guard.hold_count(), 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    within(DEADLINE, waiter)
        .await
        .unwrap()
        .unwrap()
        .unlock()
        .await
        .unwrap();

    let owner = Owner::new();
    let options = LockOptions::new().owner(&owner);
    let outer = lock.lock_with(options.clone()).await.unwrap();
    let inner = within(DEADLINE, lock.lock_with(options)).await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    drop(outer);
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn with_locks_and_releases_and_force_unlock_frees() {
    let quorum = embedded(3);
    let lock = quorum.redlock("n");
    let locked = lock.with(async |guard| (guard.is_valid(), lock.is_locked().await.unwrap()));
    assert_eq!(locked.await.unwrap(), (true, true));
    assert!(!lock.is_locked().await.unwrap());

    assert!(!lock.force_unlock().await.unwrap());
    let options = LockOptions::new().lease(LEASE);
    let guard = lock.lock_with(options).await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(!lock.is_locked().await.unwrap());
    let body = guard.run(std::future::pending::<()>());
    assert!(within(DEADLINE, body).await.unwrap_err().is_lost());
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Deleted));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
}

#[tokio::test]
async fn leases_end_are_extended_and_bounded() {
    let quorum = embedded(3);
    let lock = quorum.redlock("n");
    let lease = LEASE / 2;
    let fixed = LockOptions::new().lease(lease).renew(false);
    let guard = lock.lock_with(fixed.clone()).await.unwrap();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Expired);
    let error = guard.extend(lease).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);

    let guard = lock.lock_with(fixed).await.unwrap();
    guard.extend(Duration::from_secs(60)).await.unwrap();
    let GuardState::Held { until } = guard.state() else {
        panic!("{guard:?}");
    };
    let rest = until.saturating_duration_since(std::time::Instant::now());
    assert!(rest > Duration::from_secs(50), "{rest:?}");
    drop(guard);

    let stuck = LockOptions::new().lease(lease).max_hold(2 * lease);
    let guard = within(DEADLINE, lock.lock_with(stuck)).await.unwrap();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::MaxHold);
}
