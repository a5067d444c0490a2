//! One server with several addresses.

use std::time::Duration;

use redlock_rt::{
    Client, ErrorKind, LockOptions, MultiLock, Owner, Part, Unlocked, embedded::Engine,
};
use tests::{Proxy, RedisServer, assert_clean, eventually, lock_and_unlock, within};

use crate::{DEADLINE, client, names, settings};

/// A client that uses the host name of the server instead of its number.
fn by_name(server: &RedisServer) -> Client {
    settings(Client::builder().url(&url_by_name(server)))
}

fn url_by_name(server: &RedisServer) -> String {
    let url = server.url();
    let by_name = url.replace("127.0.0.1", "localhost");
    assert_ne!(by_name, url);
    by_name.trim_end_matches('/').to_owned()
}

/// Once, the call waited for itself: it held one part and wanted it again as another.
#[tokio::test]
async fn a_server_under_two_addresses_is_taken_once() {
    let (server, prefix, names) = names("addresses");
    let (number, name) = (client(&server), by_name(&server));
    let [a, b, c] = &names;
    let lock = MultiLock::new([
        number.rlock(a),
        number.rlock(b),
        name.rlock(a),
        name.rlock(c),
    ]);
    let owner = Owner::new();
    let ways = [
        LockOptions::new(),
        LockOptions::new().wait(DEADLINE),
        LockOptions::new().wait(Duration::ZERO),
        LockOptions::new().renew(false),
        LockOptions::new().owner(&owner),
    ];
    for options in ways {
        let guard = within(DEADLINE, lock.lock_with(options)).await.unwrap();
        assert_eq!(guard.names(), [a, b, c]);
        assert_eq!(lock.holders().await.unwrap(), guard.hold_ids());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        assert!(lock.try_lock().await.unwrap().is_none());
        // Inside, the parts are also found to be one lock, which is re-entered.
        let inner = within(DEADLINE, guard.run(lock.lock())).await.unwrap();
        assert_eq!(inner.unwrap().unlock().await.unwrap(), Unlocked::StillHeld);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    let held = within(DEADLINE, lock.with(async |guard| guard.hold_ids().len()));
    assert_eq!(held.await.unwrap(), 3);
    assert_clean(&server, &prefix, [&number, &name]).await;
}

/// The servers of connectors cannot be compared by address.
#[tokio::test]
async fn two_clients_of_one_engine_are_one_server() {
    let engine = Engine::new();
    let clients = [(); 2].map(|()| {
        let engine = engine.clone();
        let connect = move || {
            let stream = engine.connect();
            async { Ok(stream) }
        };
        settings(Client::builder().connector(connect))
    });
    for names in [["x", "x"], ["x", "y"]] {
        let parts = clients.iter().zip(names).map(|(client, name)| {
            let both: [Part; 2] = [client.rlock(name).into(), client.rlock("z").into()];
            both
        });
        let lock = MultiLock::new(parts.flatten());
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        let expected: &[&str] = match names {
            ["x", "x"] => &["x", "z"],
            _ => &["x", "y", "z"],
        };
        assert_eq!(guard.names(), expected);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    let other = Client::embedded();
    let lock = MultiLock::new([clients[0].rlock("x"), other.rlock("x")]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.names(), ["x", "x"]);
}

#[tokio::test]
async fn two_kinds_of_one_name_under_two_addresses_are_refused_at_once() {
    let (server, prefix, names) = names("kinds");
    let (number, name) = (client(&server), by_name(&server));
    let [a, b, _] = &names;
    let rw = number.read_write_lock(b);
    let pairs: [(Part, Part); 4] = [
        (number.rlock(b).into(), name.fair_lock(b).into()),
        (rw.write_lock().into(), name.rlock(b).into()),
        (rw.read_lock().into(), name.spin_lock(b).into()),
        (name.rlock(b).into(), rw.read_lock().into()),
    ];
    for (one, two) in pairs {
        let lock = MultiLock::new([number.rlock(a).into(), one, two]);
        let error = within(DEADLINE, lock.lock()).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        assert_eq!(error.name(), Some(&**b));
        let error = within(DEADLINE, lock.try_lock()).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        for free in [a, b] {
            assert!(!number.rlock(free).is_locked().await.unwrap());
        }
    }
    assert_clean(&server, &prefix, [&number, &name]).await;
}

/// Another database has other keys.
#[tokio::test]
async fn two_databases_of_a_server_are_two_locks() {
    let (server, prefix, names) = names("databases");
    let zero = client(&server);
    let one = settings(Client::builder().url(&format!("{}/1", url_by_name(&server))));
    let lock = MultiLock::new([zero.rlock(&names[0]), one.rlock(&names[0])]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.hold_ids().len(), 2);
    guard.unlock().await.unwrap();
    assert_clean(&server, &prefix, [&zero, &one]).await;
}

/// Only an answer shows whether it is another server.
#[tokio::test]
async fn a_namesake_that_does_not_answer_is_waited_for_within_the_wait() {
    const WAIT: Duration = Duration::from_millis(2500);
    // The silent server does not answer in this time either; the other one does.
    const SHORT: Duration = Duration::from_millis(800);
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(&two);
    // The server that answers is first.
    let named = |url: &str, name| {
        let builder = Client::builder().url(url).server_name(name);
        let builder = builder.response_timeout(SHORT).connect_timeout(SHORT);
        settings(builder)
    };
    let (here, there) = (named(&one.url(), "first"), named(&proxy.url(), "second"));
    lock_and_unlock(&there.rlock("x")).await;
    proxy.go_silent();
    let lock = MultiLock::new([here.rlock("x"), there.rlock("x")]);
    let bounded = lock.lock_with(LockOptions::new().wait(WAIT));
    let error = within(DEADLINE, bounded).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.name(), Some("x"));
    eventually(DEADLINE, async || {
        !here.rlock("x").is_locked().await.unwrap()
    })
    .await;
    // Without a limit the call waits through the outage, longer than one response time-out.
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || here.stats().held == 1).await;
    tokio::time::sleep(SHORT * 3).await;
    proxy.resume();
    let guard = within(2 * DEADLINE, waits).await.unwrap();
    assert_eq!(guard.hold_ids().len(), 2);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}
