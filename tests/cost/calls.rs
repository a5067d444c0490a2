//! The cost of each operation by itself.

use std::time::Duration;

use redlock_rt::{Client, LockOptions, Owner, Unlocked};
use tests::{CALL, Proxy, RedisServer, eventually, lock_and_unlock, unique};

use crate::{Counted, DEADLINE, counts};

#[tokio::test]
async fn an_uncontended_lock_and_unlock_are_two_commands() {
    const PAIRS: usize = 20;
    let mut counted = Counted::start().await;
    for _ in 0..PAIRS {
        let guard = counted.lock().lock().await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    // One round trip each: the next command is sent after the reply.
    assert_eq!(counted.sent().await, counts([(CALL, 2 * PAIRS)]));
    let on: Vec<_> = counted.proxy.frames();
    assert!(on.iter().all(|frame| frame.connection == on[0].connection));
    assert_eq!(counted.client.stats().subscriptions, 0);
    counted.end().await;
}

/// They are three plain commands in two writes, and no script.
#[tokio::test]
async fn a_free_lock_needs_no_script() {
    let mut counted = Counted::start().await;
    counted.lock().with(async |_| ()).await.unwrap();
    let plain = counts([("RESTORE", 1), ("HDEL", 1), ("PUBLISH", 1)]);
    assert_eq!(counted.commands().await, plain);
    counted.end().await;
}

/// For a name that was found taken, the script is asked at once: a call is one round trip.
#[tokio::test]
async fn a_taken_lock_costs_one_more_command_once() {
    let mut counted = Counted::start().await;
    counted.occupy().await;
    for (restored, asked) in [(1, 1), (0, 1), (0, 1)] {
        counted.mark().await;
        assert!(counted.lock().try_lock().await.unwrap().is_none());
        let expected = counts([("RESTORE", restored), ("EVALSHA", asked)]);
        assert_eq!(counted.commands().await, expected);
    }
    counted.vacate().await;
    // Until the lock was free some times in a row.
    for script in [1, 1, 1, 1, 1, 1, 1, 1, 0, 0] {
        counted.mark().await;
        counted.lock().with(async |_| ()).await.unwrap();
        let first = counts([("EVALSHA", script), ("RESTORE", 1 - script)]);
        let released = counts([("HDEL", 1), ("PUBLISH", 1)]);
        let expected = first.into_iter().chain(released).collect();
        assert_eq!(counted.commands().await, expected);
    }
    counted.end().await;
}

#[tokio::test]
async fn with_is_two_commands_and_its_options_cost_nothing() {
    let mut counted = Counted::start().await;
    counted.lock().with(async |_| ()).await.unwrap();
    let options = LockOptions::new()
        .wait(Duration::from_secs(5))
        .lease(Duration::from_secs(50))
        .max_hold(Duration::from_secs(100))
        .owner(&Owner::new())
        .renew(Duration::from_secs(20));
    let guard = counted.lock().lock_with(options).await.unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 4)]));
    counted.end().await;
}

#[tokio::test]
async fn a_re_entry_is_one_command_and_so_is_its_end() {
    let mut counted = Counted::start().await;
    let lock = counted.lock();
    let owner = Owner::new();
    let options = LockOptions::new().owner(&owner);
    let outer = lock.lock_with(options.clone()).await.unwrap();
    counted.mark().await;
    let by_guard = outer.reenter().await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 1)]));
    let by_body = outer.run(lock.lock()).await.unwrap().unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 2)]));
    let by_owner = lock.lock_with(options).await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 3)]));
    assert_eq!(by_owner.hold_count(), 4);
    for inner in [by_guard, by_body, by_owner] {
        counted.mark().await;
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        assert_eq!(counted.sent().await, counts([(CALL, 1)]));
    }
    outer.unlock().await.unwrap();
    counted.end().await;
}

#[tokio::test]
async fn try_lock_is_one_command_and_none_where_the_client_has_it() {
    let mut counted = Counted::start().await;
    let lock = counted.lock();
    counted.occupy().await;
    assert!(lock.try_lock().await.unwrap().is_none());
    counted.mark().await;
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(counted.sent().await, counts([(CALL, 1)]));
    let zero = LockOptions::new().wait(Duration::ZERO);
    assert!(lock.lock_with(zero.clone()).await.is_err());
    assert_eq!(counted.sent().await, counts([(CALL, 2)]));
    counted.vacate().await;

    counted.mark().await;
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    assert_eq!(counted.sent().await, counts([(CALL, 1)]));
    counted.mark().await;
    for _ in 0..10 {
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.lock_with(zero.clone()).await.is_err());
    }
    assert_eq!(counted.sent().await, counts([]));
    guard.unlock().await.unwrap();
    counted.end().await;
}

#[tokio::test]
async fn a_dropped_guard_is_one_command() {
    const GUARDS: usize = 20;
    let mut counted = Counted::start().await;
    let mut guards = Vec::new();
    for index in 0..GUARDS {
        let lock = counted.client.rlock(format!("{}:{index}", counted.name));
        guards.push(lock.lock().await.unwrap());
    }
    counted.mark().await;
    drop(guards);
    eventually(DEADLINE, async || counted.client.stats().names == 0).await;
    assert_eq!(counted.sent().await, counts([(CALL, GUARDS)]));
    counted.end().await;
}

#[tokio::test]
async fn each_question_or_change_is_one_command() {
    let mut counted = Counted::start().await;
    let lock = counted.lock();
    let guard = lock.lock().await.unwrap();
    counted.mark().await;
    lock.is_locked().await.unwrap();
    lock.holder().await.unwrap();
    lock.hold_count().await.unwrap();
    lock.remaining_ttl().await.unwrap();
    guard.extend(Duration::from_secs(60)).await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 5)]));
    // The guard answers without Redis.
    counted.mark().await;
    assert!(guard.is_valid() && guard.state().is_valid());
    assert_eq!((guard.hold_count(), guard.name()), (1, &*counted.name));
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    assert_eq!(counted.sent().await, counts([]));
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(counted.sent().await, counts([(CALL, 1)]));
    counted.mark().await;
    drop(guard);
    eventually(DEADLINE, async || counted.client.stats().names == 0).await;
    // A script says what became of a hold that is not there.
    assert_eq!(counted.sent().await, counts([(CALL, 2)]));
    counted.end().await;
}

/// A script is sent only once, if the server does not know it.
#[tokio::test]
async fn a_script_is_loaded_once() {
    let mut counted = Counted::start().await;
    let _: () = counted.ask(&["SCRIPT", "FLUSH"]).await;
    let lock = counted.client.fenced_lock(unique("script"));
    for _ in 0..3 {
        let guard = lock.lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    // The release needs none.
    let expected = counts([(CALL, 2 * 3 + 1), ("SCRIPT", 1)]);
    assert_eq!(counted.sent().await, expected);
    counted.end().await;
}

/// The first commands of the connections for commands and for renewals; the first lock makes no other.
#[tokio::test]
async fn a_connection_is_set_up_with_few_commands() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.rlock(unique("connect"));
    lock_and_unlock(&lock).await;
    assert_eq!(proxy.connections(tests::Which::All).len(), 2);
    // The name of the client, two of the library, the client id, the server and its role, for each; then the lock.
    let setup = counts([("CLIENT", 8), ("INFO", 4)]);
    // At the first connection, whether it can renew, and delete: in one write.
    let renews = ["SCRIPT", "EVALSHA 0", "HGET", "PTTL", "PEXPIRE"].map(|command| (command, 1));
    let lock = counts([("RESTORE", 1), ("HDEL", 2), ("PUBLISH", 1)]);
    let all = setup.into_iter().chain(counts(renews)).chain(lock);
    assert_eq!(proxy.counts(), all.collect());
}
