//! The states of the counter: lost, ahead of time, not countable, about to overflow.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LockOptions, MultiLock, Part};
use tests::{RedisServer, ask, shared_server, within};

use crate::{DEADLINE, Scene};

#[tokio::test]
async fn tokens_grow_when_the_counter_is_deleted() {
    let scene = Scene::open("deleted").await;
    let before = scene.token().await;
    let _: bool = scene.redis(&["DEL", &scene.counter()]).await;
    assert_eq!(scene.lock.token().await.unwrap(), None);
    assert!(scene.token().await > before);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_when_redis_forgets_everything() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.fenced_lock("forgets");
    let mut last = 0;
    for round in 0..4 {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert!(guard.token() > last, "round {round}");
        last = guard.token();
        guard.unlock().await.unwrap();
        if round % 2 == 0 {
            let redis = server.connect().await.unwrap();
            let _: () = ask(&redis, &["FLUSHALL"]).await;
        } else {
            server.restart();
        }
    }
}

/// The clock of a new master is behind, or another client continues our count.
#[tokio::test]
async fn tokens_grow_when_the_counter_is_ahead_of_the_clock() {
    let scene = Scene::open("ahead").await;
    // The last two exceed the numbers that Lua can count.
    for counter in [
        4_000_000_000_000_000_u64,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 1,
        i64::MAX as u64 - 2,
    ] {
        scene.count(&counter.to_string()).await;
        assert_eq!(scene.token().await, counter + 1);
        assert_eq!(scene.token().await, counter + 2);
    }
    for behind in ["0", "-5", "17"] {
        scene.count(behind).await;
        let token = scene.token().await;
        assert!((1 << 50..1 << 53).contains(&token), "{token}");
    }
    scene.end().await;
}

#[tokio::test]
async fn a_key_that_is_not_a_counter_is_refused_before_the_lock_is_touched() {
    let scene = Scene::open("odd").await;
    let odd = [
        ("seven", ErrorKind::WrongType),
        ("1.5", ErrorKind::WrongType),
        // It has no successor.
        ("9223372036854775807", ErrorKind::Protocol),
    ];
    for (counter, kind) in odd {
        scene.count(counter).await;
        let error = scene.lock.lock().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{counter}: {error}");
        assert_eq!(error.name(), Some(&*scene.name));
        assert!(!scene.lock.is_locked().await.unwrap(), "{counter}");
        let stored: String = scene.redis(&["GET", &scene.counter()]).await;
        assert_eq!(stored, counter);
    }
    scene.count("seven").await;
    let error = scene.lock.token().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");

    let _: bool = scene.redis(&["DEL", &scene.counter()]).await;
    let _: i64 = scene.redis(&["RPUSH", &scene.counter(), "7"]).await;
    for error in [
        scene.lock.try_lock().await.map(|_| ()).unwrap_err(),
        scene.lock.token().await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    assert!(!scene.lock.is_locked().await.unwrap());
    scene.end().await;
}

#[tokio::test]
async fn an_acl_that_forbids_to_count_leaves_no_lock() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    // Ahead of the clock, so that the next token is counted.
    let ahead = ["SET", "redisson_lock_token:{acl}", "8000000000000000"];
    let _: () = ask(&redis, &ahead).await;
    for (user, forbidden) in [("a", "-incr"), ("b", "-time")] {
        let all = ["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all"];
        let _: () = ask(&redis, &[&all[..], &[forbidden]].concat()).await;
        let url = format!("redis://{user}:pw@{}", server.address());
        let lock = Client::connect(&url).await.unwrap().fenced_lock("acl");
        let error = lock.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{forbidden}: {error}");
        let left: bool = ask(&redis, &["EXISTS", "acl"]).await;
        assert!(!left, "{forbidden}");
    }
}

#[tokio::test]
async fn the_counter_may_have_a_ttl() {
    const TTL: Duration = Duration::from_secs(60);
    let scene = Scene::open("ttl").await;
    let ttl = async || scene.redis::<i64>(&["PTTL", &scene.counter()]).await;
    let ends = scene.lock.clone().token_ttl(TTL);
    let guard = ends.lock().await.unwrap();
    let first = guard.token();
    assert!((50_000..=60_000).contains(&ttl().await));
    // Re-entry and release do not change it.
    let _: bool = scene.redis(&["PEXPIRE", &scene.counter(), "40000"]).await;
    guard.reenter().await.unwrap().unlock().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(ttl().await <= 40_000);
    let guard = ends.lock().await.unwrap();
    assert!(guard.token() > first);
    assert!((50_000..=60_000).contains(&ttl().await), "set anew");
    guard.unlock().await.unwrap();
    // A handle without a TTL, and one whose TTL was removed.
    scene.token().await;
    assert_eq!(ttl().await, -1);
    let guard = ends.token_ttl(None).lock().await.unwrap();
    assert_eq!(ttl().await, -1);
    guard.unlock().await.unwrap();

    // At the end, only the counter is left.
    let second = Duration::from_secs(1);
    let brief = scene.lock.clone().token_ttl(second);
    let options = || LockOptions::new().lease(second);
    let guard = brief.lock_with(options()).await.unwrap();
    tests::eventually(DEADLINE, async || {
        scene.lock.token().await.unwrap().is_none()
    })
    .await;
    assert!(guard.is_valid());
    let before = guard.token();
    guard.unlock().await.unwrap();
    assert!(scene.token().await > before);
    scene.end().await;
}

#[tokio::test]
async fn a_counter_is_not_to_end_before_the_lease() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let lock = client.fenced_lock("bad-ttl");
    let second = Duration::from_secs(1);
    for (ttl, says) in [
        (Duration::ZERO, "shorter than the lease"),
        (29 * second, "shorter than the lease"),
        (Duration::MAX, "longer than redis can keep"),
    ] {
        let lock = lock.clone().token_ttl(ttl);
        let errors = [
            lock.lock().await.map(|_| ()).unwrap_err(),
            lock.try_lock().await.map(|_| ()).unwrap_err(),
            lock.with(async |_| ()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.name(), Some("bad-ttl"));
        }
        // Once, this was checked only for a single lock.
        let both = MultiLock::new([Part::from(&lock), Part::from(client.rlock("other"))]);
        assert!(both.lock().await.unwrap_err().is_bad_input());
    }
    assert_eq!(client.stats().names, 0);
    assert_eq!(lock.token().await.unwrap(), None);
}
