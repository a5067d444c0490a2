//! Re-entry of a guard: all or none.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LockOptions, MultiLock, Unlocked, embedded::Engine};
use tests::{Proxy, RedisServer, ask, assert_clean, within};

use crate::{DEADLINE, client, names, settings};

/// The counts of the first hold in Redis, for these locks.
async fn counts(server: &RedisServer, names: &[String]) -> Vec<Option<u32>> {
    let redis = server.connect().await.unwrap();
    let mut counts = Vec::new();
    for name in names {
        let values: Vec<u32> = ask(&redis, &["HVALS", name]).await;
        counts.push(values.first().copied());
    }
    counts
}

#[tokio::test]
async fn a_part_that_is_gone_refuses_all_and_the_counts_of_the_rest_are_set_back() {
    let (server, prefix, names) = names("gone");
    let client = client(&server);
    for gone in 0..3 {
        let guard = client.multi_lock(&names).lock().await.unwrap();
        assert!(client.rlock(&names[gone]).force_unlock().await.unwrap());
        // The loss is not noticed yet.
        assert!(guard.is_valid());
        let error = guard.reenter().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(error.name(), Some(&*names[gone]));
        assert_eq!(client.stats().releases, 0, "nothing is left to do");
        let mut expected = vec![Some(1); 3];
        expected[gone] = None;
        assert_eq!(counts(&server, &names).await, expected);
        assert!(!guard.is_valid());
        assert!(guard.reenter().await.unwrap_err().is_lost());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        assert_eq!(counts(&server, &names).await, [None; 3]);
    }
    assert_clean(&server, &prefix, [&client]).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_refuses_all() {
    let (server, prefix, names) = names("silent");
    let proxy = Proxy::to(&server);
    let short = |builder: redlock_rt::ClientBuilder| {
        settings(builder.response_timeout(Duration::from_secs(1)))
    };
    let here = short(Client::builder().url(&server.url()));
    let there = short(Client::builder().url(&proxy.url()));
    let lock = MultiLock::new([here.rlock(&names[0]), there.rlock(&names[1])]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    proxy.go_silent();
    let error = within(DEADLINE, guard.reenter()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(counts(&server, &names[..1]).await, [Some(1)]);
    assert_eq!(guard.hold_count(), 1);
    proxy.resume();
    let inner = within(DEADLINE, guard.reenter()).await.unwrap();
    assert_eq!(counts(&server, &names[..2]).await, [Some(2); 2]);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::StillHeld);
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    assert_clean(&server, &prefix, [&here, &there]).await;
}

/// The first guard's lease and end do not affect the second guard.
#[tokio::test(start_paused = true)]
async fn it_is_renewed_although_the_first_guard_is_not() {
    let lease = Duration::from_millis(200);
    let client = settings(Client::builder().embedded(&Engine::new()).lease(lease));
    let options = LockOptions::new().lease(lease).renew(false);
    let guard = client.multi_lock(["a", "b"]).lock_with(options).await;
    let guard = guard.unwrap();
    let inner = guard.reenter().await.unwrap();
    tokio::time::sleep(2 * lease).await;
    assert!(inner.is_valid());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::StillHeld);
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
}
