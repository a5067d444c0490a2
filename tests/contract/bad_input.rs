//! Invalid input is refused with one clear error each, and changes nothing in Redis.

use std::time::Duration;

use redlock_rt::{Backoff, Client, ErrorKind, Kind, Lock, LockOptions, Owner};
use tests::{RedisServer, ask, assert_error, lock_and_unlock, shared_server, unique};

const MS: Duration = Duration::from_millis(1);

async fn client() -> Client {
    Client::connect(&shared_server().url()).await.unwrap()
}

/// The input that every method of every kind refuses.
async fn assert_refused<K: Kind>(lock: &Lock<K>, kind: ErrorKind, says: &str) {
    assert_error(lock.lock().await, kind, says);
    assert_error(lock.try_lock().await, kind, says);
    // Refused at once, without a wait.
    let waiting = LockOptions::new().wait(10_000 * MS);
    assert_error(lock.lock_with(waiting).await, kind, says);
    assert_error(lock.with(async |_| ()).await, kind, says);
    assert_error(lock.is_locked().await, kind, says);
    assert_error(lock.holders().await, kind, says);
    assert_error(lock.force_unlock().await, kind, says);
    assert_error(lock.force_unlock_because("stuck").await, kind, says);
}

/// The same for locks of every kind with this name.
async fn assert_all_refused(client: &Client, name: &str, kind: ErrorKind, says: &str) {
    assert_refused(&client.rlock(name), kind, says).await;
    assert_refused(&client.fair_lock(name), kind, says).await;
    assert_refused(&client.fenced_lock(name).token_ttl(60_000 * MS), kind, says).await;
    let backoff = Backoff::constant(MS);
    assert_refused(&client.spin_lock(name).backoff(backoff), kind, says).await;
    let lock = client.read_write_lock(name);
    assert_refused(&lock.read_lock(), kind, says).await;
    assert_refused(&lock.write_lock(), kind, says).await;
    assert_refused(&lock.prefer_writers(true).write_lock(), kind, says).await;
}

#[tokio::test]
async fn reasons_that_say_nothing() {
    let (client, name) = (client().await, unique("reasons"));
    let (lock, fenced) = (client.rlock(&name), client.fenced_lock(&name));
    let guard = lock.lock().await.unwrap();
    let long = "x".repeat(1025);
    for (why, says) in [
        ("", "empty or blank"),
        (" \n", "empty or blank"),
        ("a\0b", "NUL"),
        (&long, "1024 bytes"),
    ] {
        assert_error(lock.steal(why).await, ErrorKind::BadInput, says);
        assert_error(fenced.steal(why).await, ErrorKind::BadInput, says);
        let forced = lock.force_unlock_because(why).await;
        assert_error(forced, ErrorKind::BadInput, says);
    }
    guard.reenter().await.unwrap().unlock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn names_that_cannot_be_one() {
    let client = client().await;
    let long = "x".repeat(513);
    for (name, says) in [
        ("", "empty or blank"),
        (" \t", "empty or blank"),
        ("a\0b", "NUL"),
        (long.as_str(), "512 bytes"),
    ] {
        assert_all_refused(&client, name, ErrorKind::BadInput, says).await;
        let (fair, owner) = (client.fair_lock(name), Owner::new());
        assert_error(fair.queue_len().await, ErrorKind::BadInput, says);
        assert_error(fair.position(&owner).await, ErrorKind::BadInput, says);
        assert_error(fair.waiting_as(&owner), ErrorKind::BadInput, says);
        let fenced = client.fenced_lock(name);
        assert_error(fenced.token().await, ErrorKind::BadInput, says);
        let read = client.fenced_value(name).get(1).await;
        assert_error(read, ErrorKind::BadInput, says);
        let barrier = client.cyclic_barrier(name, 2);
        assert_error(barrier.wait().await, ErrorKind::BadInput, says);
        assert_error(barrier.reset().await, ErrorKind::BadInput, says);
        let barrier = client.double_barrier(name, 2);
        assert_error(barrier.enter().await, ErrorKind::BadInput, says);
        assert_error(barrier.reset().await, ErrorKind::BadInput, says);
    }
    assert_eq!(client.stats().names, 0);
}

/// Also for the keys beside the lock: nothing is acquired or queued.
#[tokio::test]
async fn a_fair_queue_that_is_none_is_left_alone() {
    let client = client().await;
    let redis = shared_server().connect().await.unwrap();
    let name = unique("no-queue");
    let key = format!("redisson_lock_queue:{{{name}}}");
    ask::<()>(&redis, &["SET", &key, "v"]).await;
    let lock = client.fair_lock(&name);
    assert_error(lock.lock().await, ErrorKind::WrongType, &name);
    assert_error(lock.try_lock().await, ErrorKind::WrongType, &name);
    assert_error(lock.queue_len().await, ErrorKind::WrongType, &name);
    let value: String = ask(&redis, &["GETDEL", &key]).await;
    assert_eq!(value, "v");
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.queue_len().await.unwrap(), 0);
    assert_eq!(client.stats().names, 0);
}

#[tokio::test]
async fn a_key_that_is_not_a_lock_is_refused_by_every_kind() {
    let client = client().await;
    let name = unique("no-lock");
    let redis = shared_server().connect().await.unwrap();
    ask::<()>(&redis, &["SET", &name, "v"]).await;
    assert_all_refused(&client, &name, ErrorKind::WrongType, &name).await;
    let fenced = client.fenced_lock(&name);
    assert_eq!(fenced.token().await.unwrap(), None, "none was minted");
    let value: String = ask(&redis, &["GETDEL", &name]).await;
    assert_eq!(value, "v");
}

#[tokio::test]
async fn the_longest_name_works() {
    let client = client().await;
    let mut name = unique("longest");
    name.push_str(&"x".repeat(512 - name.len()));
    let guard = client.rlock(&name).lock().await.unwrap();
    assert_eq!(guard.name().len(), 512);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn durations_that_cannot_be_kept() {
    let client = client().await;
    let name = unique("durations");
    let lock = client.rlock(&name);
    let options = LockOptions::new;
    let lease = |lease| options().lease(lease);
    for (options, says) in [
        (lease(Duration::ZERO), "shorter than a millisecond"),
        (lease(Duration::from_nanos(1)), "shorter than a millisecond"),
        (
            lease(Duration::from_nanos(999_999)),
            "shorter than a millisecond",
        ),
        (lease(Duration::MAX), "longer than redis can keep"),
        (
            lease(Duration::from_millis(u64::MAX)),
            "longer than redis can keep",
        ),
        (
            lease(Duration::from_millis(i64::MAX as u64)),
            "longer than redis can keep",
        ),
        (
            lease(100 * MS).renew(100 * MS),
            "not shorter than the lease",
        ),
        (
            lease(100 * MS).renew(Duration::MAX),
            "not shorter than the lease",
        ),
        (
            lease(100 * MS).renew(Duration::ZERO),
            "renew is shorter than a millisecond",
        ),
        (
            lease(100 * MS).max_hold(99 * MS),
            "max_hold is shorter than the lease",
        ),
        (
            lease(100 * MS).max_hold(Duration::ZERO),
            "max_hold is shorter than the lease",
        ),
        (
            options().max_hold(Duration::from_secs(29)),
            "max_hold is shorter than the lease",
        ),
    ] {
        assert_error(lock.lock_with(options).await, ErrorKind::BadInput, says);
    }
    assert!(!lock.is_locked().await.unwrap());

    let guard = lock.lock().await.unwrap();
    let before = lock.remaining_ttl().await.unwrap().unwrap();
    assert_error(
        guard.extend(Duration::ZERO).await,
        ErrorKind::BadInput,
        &format!(
            "extend lock \"{}\": bad input: the lease is shorter than a millisecond",
            guard.name()
        ),
    );
    assert_error(
        guard.extend(Duration::MAX).await,
        ErrorKind::BadInput,
        "redis can keep",
    );
    assert!(guard.is_valid());
    assert!(lock.remaining_ttl().await.unwrap().unwrap() <= before);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn the_longest_durations_work() {
    let client = client().await;
    let lock = client.rlock(unique("centuries"));
    let centuries = Duration::from_secs(300 * 365 * 24 * 3600);
    let options = LockOptions::new()
        .wait(Duration::MAX)
        .lease(centuries)
        .max_hold(Duration::MAX);
    let guard = lock.lock_with(options).await.unwrap();
    assert!(guard.is_valid());
    assert!(lock.remaining_ttl().await.unwrap().unwrap() > centuries - Duration::from_secs(60));
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn builders_that_cannot_make_a_client() {
    let builder = || Client::builder().url("redis://localhost");
    for (builder, says) in [
        (Client::builder(), "no server"),
        (builder().cluster(["redis://h"]), "two of url"),
        (builder().urls(["redis://h"]), "two of url"),
        (builder().redis("redis://h"), "two of url"),
        (
            Client::builder().urls(["redis://h"]).sentinels(["h"], "m"),
            "two of url",
        ),
        (Client::builder().urls([""; 0]), "no server"),
        (Client::builder().sentinels([""; 0], "m"), "no sentinel"),
        (Client::builder().sentinels(["h"], ""), "service is missing"),
        (Client::builder().cluster([""; 0]), "no nodes"),
        (
            builder().lease(Duration::ZERO),
            "make a client: bad input: the lease is shorter than a millisecond",
        ),
        (builder().lease(Duration::MAX), "longer than redis can keep"),
        (builder().response_timeout(Duration::ZERO), "a millisecond"),
        (builder().connect_timeout(Duration::ZERO), "a millisecond"),
        (builder().poll_interval(Duration::ZERO), "a millisecond"),
        // A waiter asked without end.
        (builder().poll_interval(MS / 2), "a millisecond"),
        // The note of a theft has a NUL behind the identity.
        (builder().identity("a\0b"), "identity contains a NUL"),
        (builder().identity(" "), "identity is empty or blank"),
        (builder().identity("x".repeat(1025)), "longer than 1024"),
        (
            builder().response_timeout(Duration::MAX),
            "longer than a day",
        ),
        (builder().poll_interval(Duration::MAX), "longer than a day"),
        (builder().waiter_timeout(99 * MS), "shorter than 100 ms"),
        (builder().waiter_timeout(Duration::MAX), "longer than a day"),
        (builder().replica_timeout(Duration::ZERO), "of replicas is"),
        (builder().flush_on_drop(MS), "needs dedicated_thread"),
        (
            builder()
                .dedicated_thread(true)
                .flush_on_drop(Duration::ZERO),
            "time of flush_on_drop is",
        ),
        (builder().hand_over(1001 * MS), "longer than a second"),
        (builder().client_name("a b"), "name has spaces"),
        (builder().namespace(""), "namespace"),
        (builder().namespace("  "), "namespace"),
        (builder().url("http://localhost"), "unknown scheme"),
        (builder().url("localhost"), "parse the redis URL"),
        (builder().url("redis://"), "parse the redis URL"),
        (builder().url("redis://host:0"), "port 0"),
        (builder().url("redis://host/x"), "is not a number"),
        (builder().url("redis://host?timeout=1"), "unknown parameter"),
        (
            builder()
                .url("rediss://h")
                .tls_roots("-----BEGIN CERTIFICATE-----\nno"),
            "TLS",
        ),
        (builder().url("rediss://h").tls_roots(""), "no certificate"),
        // Once, a path was taken for a file without certificates, and the server was not trusted.
        (
            builder().url("rediss://h").tls_roots("/etc/ssl/ca.pem"),
            "no certificate",
        ),
    ] {
        assert_error(builder.build(), ErrorKind::BadInput, says);
    }
}

#[tokio::test]
async fn builders_at_their_limits_make_a_client() {
    let builder = || Client::builder().url("redis://localhost");
    let day = Duration::from_secs(24 * 3600);
    for builder in [
        builder().response_timeout(MS).connect_timeout(day),
        builder().poll_interval(MS).replica_timeout(day),
        builder().poll_interval(day).replica_timeout(MS),
        builder().waiter_timeout(100 * MS),
        builder().waiter_timeout(day),
        builder().hand_over(1000 * MS),
    ] {
        builder.build().unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_waited_for() {
    let server = RedisServer::options().password("right").start();
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    for login in [":wrong@", "nobody:right@", ""] {
        let client = Client::connect(&at(login)).await;
        assert_error(client, ErrorKind::Denied, "");

        // A client that connects at its first use returns the error as soon, for every wait.
        let client = Client::builder().url(&at(login)).build().unwrap();
        assert_error(
            client.rlock("n").lock().await,
            ErrorKind::Denied,
            "acquire lock \"n\"",
        );
        assert_eq!(client.stats().names, 0);
    }
    let client = Client::connect(&at(":right@")).await.unwrap();
    lock_and_unlock(&client.rlock("n")).await;
    let client = Client::connect(&at("default:right@")).await.unwrap();
    lock_and_unlock(&client.rlock("n")).await;
}

#[tokio::test]
async fn a_database_that_does_not_exist() {
    let url = format!("{}/4096", shared_server().url());
    assert_error(
        Client::connect(&url).await,
        ErrorKind::BadInput,
        "connect to redis",
    );
}

#[tokio::test]
async fn a_key_of_another_type_is_left_alone() {
    let client = client().await;
    let mut control = shared_server().connect().await.unwrap();
    for command in ["SET", "RPUSH", "SADD"] {
        let name = unique("wrong-type");
        let mut make = redis::cmd(command);
        make.arg(&name)
            .arg("data")
            .exec_async(&mut control)
            .await
            .unwrap();
        let dump = async |control: &mut redis::aio::MultiplexedConnection| {
            ask::<Vec<u8>>(control, &["DUMP", &name]).await
        };
        let before = dump(&mut control).await;
        let lock = client.rlock(&name);
        let says = format!("{name:?}");
        assert_error(lock.lock().await, ErrorKind::WrongType, &says);
        assert_error(lock.try_lock().await, ErrorKind::WrongType, &says);
        assert_error(lock.force_unlock().await, ErrorKind::WrongType, &says);
        assert_error(lock.is_locked().await, ErrorKind::WrongType, &says);
        assert_eq!(dump(&mut control).await, before);
        ask::<()>(&control, &["DEL", &name]).await;
    }
    assert_eq!(client.stats().names, 0);
}

#[tokio::test]
async fn every_form_of_url_reaches_the_server() {
    let server = RedisServer::options().tls().unix_socket().start();
    let tls = Client::builder()
        .url(&server.tls_url())
        .tls_roots(server.ca_pem());
    let clients = [
        Client::connect(&server.url()).await.unwrap(),
        Client::connect(&server.unix_url()).await.unwrap(),
        tls.connect().await.unwrap(),
    ];
    for (at, client) in clients.iter().enumerate() {
        let guard = client.rlock("shared").lock().await.unwrap();
        for other in clients.iter().filter(|other| other.uuid() != client.uuid()) {
            assert!(
                other.rlock("shared").try_lock().await.unwrap().is_none(),
                "{at}"
            );
        }
        guard.unlock().await.unwrap();
    }
    // Another database is another place.
    let guard = clients[0].rlock("shared").lock().await.unwrap();
    let elsewhere = Client::connect(&format!("{}/3", server.url()))
        .await
        .unwrap();
    elsewhere
        .rlock("shared")
        .try_lock()
        .await
        .unwrap()
        .unwrap()
        .unlock()
        .await
        .unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_trusted_is_misconfigured() {
    let server = RedisServer::options().tls().start();
    let client = Client::builder().url(&server.tls_url()).connect().await;
    assert_error(client, ErrorKind::Misconfigured, "tls_roots");
}
