//! The state on the servers, the state of the guard, and questions to all servers.

use std::time::Duration;

use redlock_rt::{Client, LockOptions, Quorum, Unlocked};
use tests::{assert_held, within};

use crate::{DEADLINE, LEASE, Servers};

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
    assert_held(&guard.state());
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

    // Renewed on all servers.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert_held(&guard.state());
    assert_eq!(guard.servers(), 5);

    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_free(0..5).await;
    let guard = within(DEADLINE, other.lock().lock()).await.unwrap();
    drop(guard);
    servers.assert_left_by(&party, 0..5).await;
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
    let blank = Client::builder().url("redis://h").server_name(" ");
    assert!(blank.build().is_err());

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
    let error = guard.extend(Duration::ZERO).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
}
