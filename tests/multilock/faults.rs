//! Losses, outages, shut-downs.

use std::time::Duration;

use redlock_rt::{
    Client, ErrorKind, GuardState, LockOptions, LostReason, MultiLock, Shutdown, Unlocked,
};
use tests::{CALL, Proxy, RedisServer, ask, assert_clean, assert_held, eventually, within};
use tokio::time::Instant;

use crate::{DEADLINE, client, names, settings};

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn one_part_lost_is_all_lost_for_good() {
    let (server, prefix, names) = names("lost");
    let client = settings(Client::builder().url(&server.url()).lease(LEASE));
    let lock = client.multi_lock(&names);
    let guard = lock.lock().await.unwrap();
    // Each lock is renewed separately.
    tokio::time::sleep(LEASE + LEASE / 3).await;
    assert_held(&guard.state());
    let redis = server.connect().await.unwrap();
    let _: u8 = ask(&redis, &["DEL", &names[1]]).await;
    let body = guard.run(std::future::pending::<()>());
    let error = within(DEADLINE, body).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    // Also if the key is created again.
    let owner = guard.hold_ids()[1].to_string();
    let _: u8 = ask(&redis, &["HSET", &names[1], &owner, "1"]).await;
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Deleted));
    let mut started = false;
    let refused = guard.run(async { started = true }).await;
    assert!(refused.unwrap_err().is_lost() && !started);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_clean(&server, &prefix, [&client]).await;
}

/// It waits for the second lock when somebody deletes the first.
#[tokio::test]
async fn a_lock_that_is_lost_while_the_next_is_waited_for_is_taken_again() {
    let (here, there) = (Client::embedded(), Client::embedded());
    let (first, second) = (here.rlock("a"), there.rlock("b"));
    let held = second.lock().await.unwrap();
    let lock = MultiLock::new([first.clone(), second.clone()]);
    let waiter = tokio::spawn(async move { lock.lock().await });
    eventually(DEADLINE, async || first.is_locked().await.unwrap()).await;
    eventually(DEADLINE, async || there.stats().waiting == 1).await;
    assert!(first.force_unlock().await.unwrap());
    let theirs = first.lock().await.unwrap();
    held.unlock().await.unwrap();
    // It has the second, sees that the first is gone, and gives it back.
    eventually(DEADLINE, async || !second.is_locked().await.unwrap()).await;
    assert!(!waiter.is_finished());
    theirs.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
    assert!(first.is_locked().await.unwrap() && second.is_locked().await.unwrap());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

#[tokio::test]
async fn it_is_lost_at_the_first_deadline_where_a_server_is_silent() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(&two);
    let here = settings(Client::builder().url(&one.url()).lease(LEASE));
    let there = settings(Client::builder().url(&proxy.url()).lease(LEASE));
    let lock = MultiLock::new([here.rlock("a"), there.rlock("b")]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    proxy.go_silent();
    let silent = Instant::now();
    let reason = within(DEADLINE, guard.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(
        silent.elapsed() < LEASE + LEASE / 2,
        "{:?}",
        silent.elapsed()
    );
    drop(guard);
    eventually(DEADLINE, async || {
        !here.rlock("a").is_locked().await.unwrap()
    })
    .await;
    proxy.resume();
    eventually(DEADLINE, async || there.stats().names == 0).await;
}

/// Once, the guard reported the loss at once, but its other locks were still held.
#[tokio::test]
async fn unlock_of_what_is_partly_lost_waits_for_the_releases_of_the_rest() {
    let (server, prefix, names) = names("partly");
    let proxy = Proxy::to(&server);
    let there = settings(Client::builder().url(&proxy.url()));
    let here = settings(Client::builder().url(&server.url()).lease(LEASE));
    let lock = MultiLock::new([here.rlock(&names[0]), there.rlock(&names[1])]);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert!(here.rlock(&names[0]).force_unlock().await.unwrap());
    within(DEADLINE, guard.lost()).await;
    let gate = proxy.hold_reply(CALL);
    let mut unlock = std::pin::pin!(guard.unlock());
    tokio::select! {
        outcome = &mut unlock => panic!("{outcome:?} before the rest is released"),
        () = gate.reached() => {}
    }
    assert!(futures::poll!(&mut unlock).is_pending());
    gate.open();
    let outcome = within(DEADLINE, unlock).await.unwrap();
    assert_eq!(outcome, Unlocked::AlreadyExpired);
    assert!(!here.rlock(&names[1]).is_locked().await.unwrap());
    assert_clean(&server, &prefix, [&here, &there]).await;
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_within_the_wait_and_the_others_are_free() {
    const WAIT: Duration = Duration::from_secs(3);
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (here, there) = (client(&one), client(&two));
    let lock = MultiLock::new([here.rlock("a"), there.rlock("b"), here.rlock("c")]);
    two.kill();
    let begun = Instant::now();
    let error = lock
        .lock_with(LockOptions::new().wait(WAIT))
        .await
        .unwrap_err();
    let took = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(took < 2 * WAIT, "{took:?}");
    for name in ["a", "c"] {
        eventually(DEADLINE, async || {
            !here.rlock(name).is_locked().await.unwrap()
        })
        .await;
    }
    let error = within(2 * DEADLINE, lock.try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        !here.rlock("a").is_locked().await.unwrap(),
        "released before it answers"
    );
    eventually(DEADLINE, async || here.stats().names == 0).await;
}

/// The command or the reply is lost, and none of the locks stays held.
#[tokio::test]
async fn a_lost_reply_of_the_one_call_leaves_nothing() {
    let (server, prefix, names) = names("reply");
    let proxy = Proxy::to(&server);
    let client = settings(Client::builder().url(&proxy.url()));
    let lock = client.multi_lock(&names);
    lock.lock().await.unwrap().unlock().await.unwrap();
    for after in [true, false] {
        match after {
            true => proxy.cut_after_request(CALL),
            false => proxy.cut_before_request(CALL),
        }
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert!(guard.is_valid());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        match after {
            true => proxy.cut_after_request(CALL),
            false => proxy.cut_before_request(CALL),
        }
        let error = lock.try_lock().await.unwrap_err();
        let kinds = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
        assert!(kinds.contains(&error.kind()), "{error}");
        let other = crate::client(&server);
        let all = within(DEADLINE, other.multi_lock(&names).lock())
            .await
            .unwrap();
        all.unlock().await.unwrap();
    }
    assert_clean(&server, &prefix, [&client]).await;
}

#[tokio::test]
async fn a_key_of_another_type_refuses_all() {
    let (server, prefix, names) = names("type");
    let client = client(&server);
    let redis = server.connect().await.unwrap();
    let _: () = ask(&redis, &["SET", &names[1], "text"]).await;
    let lock = client.multi_lock(&names);
    let error = lock.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    for at in [0, 2] {
        assert!(!client.rlock(&names[at]).is_locked().await.unwrap());
    }
    let _: u8 = ask(&redis, &["DEL", &names[1]]).await;
    assert_clean(&server, &prefix, [&client]).await;
}

#[tokio::test]
async fn a_shut_down_ends_it() {
    let (client, other) = {
        let engine = redlock_rt::embedded::Engine::new();
        let client = || settings(Client::builder().embedded(&engine));
        (client(), client())
    };
    let lock = client.multi_lock(["a", "b"]);
    let guard = lock.lock().await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::ShutDown);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let error = lock.lock().await.unwrap_err();
    assert!(error.is_shut_down(), "{error}");
    let all = other.multi_lock(["a", "b"]).try_lock().await.unwrap();
    assert!(all.is_some());
}
