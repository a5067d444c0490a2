//! The lock on the wire, and the state of its guard.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LockOptions, MultiLock, Part, Unlocked};
use tests::{CALL, Monitor, Proxy, RedisServer, ask, assert_clean, assert_held, within};

use crate::{DEADLINE, client, names, settings};

#[tokio::test]
async fn all_are_rlocks_with_an_owner_each_and_one_lease() {
    let (server, prefix, names) = names("wire");
    let client = client(&server);
    let mut redis = server.connect().await.unwrap();

    let lock = client.multi_lock(&names);
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);
    let guard = lock.lock().await.unwrap();
    let mut owners = Vec::new();
    for name in &names {
        let mut ask = redis::pipe();
        ask.cmd("HGETALL").arg(name).cmd("PTTL").arg(name);
        let (fields, ttl): (Vec<(String, u32)>, u64) = ask.query_async(&mut redis).await.unwrap();
        let [(owner, 1)] = &fields[..] else {
            panic!("{fields:?}");
        };
        assert!(owner.starts_with(client.uuid()), "{owner}");
        assert!(ttl > 29_000, "{ttl}");
        owners.push(owner.clone());
    }
    assert_eq!(
        owners
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        3
    );
    let said: Vec<_> = guard.hold_ids().iter().map(ToString::to_string).collect();
    assert_eq!(said, owners);
    let holders = lock.holders().await.unwrap();
    assert_eq!(holders, guard.hold_ids());
    assert!(lock.is_locked().await.unwrap());
    assert!(lock.remaining_ttl().await.unwrap() > Some(Duration::from_secs(29)));
    assert_eq!((guard.hold_count(), client.stats().held), (1, 3));
    assert_held(&guard.state());

    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_clean(&server, &prefix, [&client]).await;
}

#[tokio::test]
async fn uncontended_it_is_one_round_trip_and_its_release_one_for_each() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = settings(Client::builder().url(&proxy.url()));
    let lock = client.multi_lock(["c", "a", "b", "a"]);
    lock.lock().await.unwrap().unlock().await.unwrap();
    for wait in [None, Some(Duration::ZERO), Some(DEADLINE)] {
        proxy.mark();
        let monitor = Monitor::start(&server).await;
        let guard = lock.lock_with(LockOptions::new().wait(wait)).await.unwrap();
        let frames = proxy.frames();
        assert_eq!(frames.len(), 1, "{frames:#?}");
        assert_eq!(frames[0].command(), "EVALSHA");
        // Sorted, without repetitions.
        let keys: Vec<_> = (2..6).map(|at| frames[0].text(at)).collect();
        assert_eq!(keys, ["3", "a", "b", "c"]);
        drop(monitor);
        proxy.mark();
        guard.unlock().await.unwrap();
        assert_eq!(proxy.count(CALL), 3);
    }
    proxy.mark();
    lock.with(async |_| ()).await.unwrap();
    assert_eq!(proxy.count(CALL), 4);
}

#[tokio::test]
async fn none_is_taken_where_one_is_held() {
    let (server, prefix, names) = names("none");
    let (client, other) = (client(&server), client(&server));
    for held in &names {
        let there = other.rlock(held).lock().await.unwrap();
        let lock = client.multi_lock(&names);
        assert!(lock.try_lock().await.unwrap().is_none());
        let zero = LockOptions::new().wait(Duration::ZERO);
        let error = lock.lock_with(zero).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended);
        assert_eq!(error.name(), Some(&**held));
        for name in names.iter().filter(|name| *name != held) {
            assert!(!other.rlock(name).is_locked().await.unwrap());
        }
        let brief = LockOptions::new().wait(Duration::from_secs(1));
        let error = within(DEADLINE, lock.lock_with(brief)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.name(), Some(&**held));
        there.unlock().await.unwrap();
    }
    assert_clean(&server, &prefix, [&client, &other]).await;
}

#[tokio::test]
async fn bad_parts_are_refused() {
    let client = Client::embedded();
    let none: [&str; 0] = [];
    let refused = [
        client.multi_lock(none),
        client.multi_lock(["good", " "]),
        client.multi_lock(["good", "b\0d"]),
        client.multi_lock([&"x".repeat(513)]),
    ];
    for lock in refused {
        assert!(lock.lock().await.unwrap_err().is_bad_input());
        assert!(lock.try_lock().await.unwrap_err().is_bad_input());
        assert!(lock.with(async |_| ()).await.unwrap_err().is_bad_input());
        assert!(lock.is_locked().await.unwrap_err().is_bad_input());
        assert!(lock.force_unlock().await.unwrap_err().is_bad_input());
        assert!(lock.names().is_empty());
    }
    let lock = client.multi_lock(["a", "b"]);
    let bad = LockOptions::new().lease(Duration::ZERO);
    assert!(lock.lock_with(bad).await.unwrap_err().is_bad_input());
    let guard = lock.lock().await.unwrap();
    let error = guard.extend(Duration::ZERO).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    assert_eq!(client.stats().held, 2);
}

#[tokio::test]
async fn a_lock_named_twice_is_taken_once_also_through_two_clients() {
    let (server, prefix, names) = names("twice");
    let (client, other) = (client(&server), client(&server));
    let [a, b, _] = &names;
    let lock = client.multi_lock([b, a, b]);
    assert_eq!(lock.names(), [a, b]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    let (ours, theirs) = (client.rlock(a), other.rlock(a));
    let lock = MultiLock::new([&ours, &theirs]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.hold_ids().len(), 1);
    guard.unlock().await.unwrap();
    assert_clean(&server, &prefix, [&client, &other]).await;
}

#[tokio::test]
async fn several_servers_and_clients_are_one_lock() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (here, there) = (client(&one), client(&two));
    // The same name on two servers is two locks.
    let lock = MultiLock::new([here.rlock("x"), there.rlock("x"), there.rlock("y")]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.hold_ids().len(), 3);
    assert!(here.rlock("x").is_locked().await.unwrap());
    assert!(there.rlock("x").is_locked().await.unwrap());
    assert!(there.rlock("y").is_locked().await.unwrap());
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!((here.stats().held, there.stats().held), (0, 0));
}

#[tokio::test]
async fn a_body_reenters_each_lock_and_the_whole() {
    let (server, prefix, names) = names("body");
    let client = client(&server);
    let lock = client.multi_lock(&names);
    let guard = lock.lock().await.unwrap();
    let inside = guard.run(async {
        let one = client.rlock(&names[1]).lock().await.unwrap();
        assert_eq!(one.hold_count(), 2);
        let all = lock.lock().await.unwrap();
        assert_eq!((one.hold_count(), all.hold_count()), (3, 2));
        assert_eq!(all.unlock().await.unwrap(), Unlocked::StillHeld);
        assert_eq!(one.unlock().await.unwrap(), Unlocked::StillHeld);
    });
    within(DEADLINE, inside).await.unwrap();
    assert_eq!(guard.hold_count(), 1);
    // An overlapping set: held locks are re-entered, the others are acquired.
    let some = client.multi_lock([&names[0], &format!("{prefix}:d")]);
    let counts = guard.run(async {
        let some = some.lock().await.unwrap();
        let counts = (
            client.rlock(&names[0]).hold_count().await.unwrap(),
            some.hold_count(),
        );
        some.unlock().await.unwrap();
        counts
    });
    assert_eq!(within(DEADLINE, counts).await.unwrap(), (2, 1));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_clean(&server, &prefix, [&client]).await;
}

#[tokio::test]
async fn the_lease_begins_for_all_when_the_last_is_there() {
    const LEASE: Duration = Duration::from_secs(6);
    let (server, prefix, names) = names("lease");
    let (client, other) = (client(&server), client(&server));
    let last = other.rlock(&names[2]).lock().await.unwrap();
    let options = LockOptions::new().lease(LEASE).renew(false);
    let call = tokio::spawn({
        let lock = client.multi_lock(&names);
        async move { lock.lock_with(options).await }
    });
    // The call holds the first two for longer than their lease while it waits; they do not expire.
    let redis = server.connect().await.unwrap();
    tests::eventually(DEADLINE, async || client.stats().held == 2).await;
    tokio::time::sleep(LEASE + LEASE / 4).await;
    last.unlock().await.unwrap();
    let guard = within(DEADLINE, call).await.unwrap().unwrap();
    let until = assert_held(&guard.state());
    let rest = until.saturating_duration_since(std::time::Instant::now());
    assert!(rest > LEASE * 3 / 4, "{rest:?}");
    for name in &names {
        let ttl: u64 = ask(&redis, &["PTTL", name]).await;
        assert!(ttl > 4500, "{name}: {ttl}");
    }
    // The lock is no longer renewed.
    assert_eq!(client.stats().renewals, 0);
    within(DEADLINE, guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_clean(&server, &prefix, [&client, &other]).await;
}

#[tokio::test]
async fn inspection_covers_all_locks_also_if_some_are_held() {
    let (server, prefix, names) = names("asked");
    let client = client(&server);
    let lock = client.multi_lock(&names);
    let [a, b, c] = &names;
    let second = client.rlock(b).lock().await.unwrap();
    assert!(lock.is_locked().await.unwrap());
    assert_eq!(
        lock.holder().await.unwrap().as_ref(),
        Some(second.hold_id())
    );
    assert_eq!(lock.hold_count().await.unwrap(), 0, "not as a whole");
    assert!(lock.remaining_ttl().await.unwrap() > Some(Duration::from_secs(29)));

    let others = [a, c].map(|name| client.rlock(name));
    let first = others[0].lock().await.unwrap();
    let again = first.reenter().await.unwrap();
    let third = others[1].lock().await.unwrap();
    let holders = [first.hold_id(), second.hold_id(), third.hold_id()].map(Clone::clone);
    assert_eq!(lock.holders().await.unwrap(), holders);
    assert_eq!(lock.hold_count().await.unwrap(), 1, "the smallest");
    // If one lock has no TTL, the TTLs of the others do not count.
    let redis = server.connect().await.unwrap();
    let _: u8 = ask(&redis, &["PERSIST", b]).await;
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);
    drop((first, again, second, third));
    assert_clean(&server, &prefix, [&client]).await;
}

/// Another program can write any counts.
#[tokio::test]
async fn the_sum_of_the_counts_of_readers_overflowed() {
    let (server, prefix, names) = names("sum");
    let client = client(&server);
    let redis = server.connect().await.unwrap();
    let most = "9000000000000000000";
    let fields = ["mode", "read", "x:1", most, "x:2", most, "x:3", most];
    let _: u8 = ask(&redis, &[&["HSET", &names[0]], &fields[..]].concat()).await;
    let leases = [1, 2, 3].map(|reader| format!("{{{}}}:x:{reader}:rwlock_timeout:1", names[0]));
    for lease in &leases {
        let _: String = ask(&redis, &["SET", lease, "1", "EX", "60"]).await;
    }
    let lock = MultiLock::new([client.read_write_lock(&names[0]).read_lock()]);
    assert_eq!(lock.hold_count().await.unwrap(), u64::MAX);
    let [one, two, three] = &leases;
    let _: u8 = ask(&redis, &["DEL", &names[0], one, two, three]).await;
    assert_clean(&server, &prefix, [&client]).await;
}

/// A part is a lock of any kind, but no two of one name, which would exclude each other.
#[tokio::test]
async fn parts_may_be_of_any_kind() {
    let (server, prefix, names) = names("kinds");
    let (client, other) = (client(&server), client(&server));
    let [a, b, c] = &names;
    let lock = MultiLock::new([
        Part::from(client.fair_lock(c)),
        Part::from(client.rlock(a)),
        Part::from(client.read_write_lock(b).write_lock()),
    ]);
    assert_eq!(lock.names(), [a, b, c]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert_eq!(guard.hold_ids().len(), 3);
    assert!(other.rlock(a).try_lock().await.unwrap().is_none());
    assert!(other.read_write_lock(b).try_read().await.unwrap().is_none());
    assert!(other.fair_lock(c).try_lock().await.unwrap().is_none());
    // It queues for a fair lock, and leaves that queue when it gives up.
    let brief = LockOptions::new().wait(Duration::from_secs(1));
    let last = MultiLock::new([Part::from(other.fair_lock(c)), Part::from(other.rlock(c))]);
    assert!(last.lock().await.unwrap_err().is_bad_input());
    let last = MultiLock::new([other.fair_lock(c)]);
    assert!(last.lock_with(brief).await.unwrap_err().is_timed_out());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let guard = within(DEADLINE, last.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    assert_clean(&server, &prefix, [&client, &other]).await;
}
