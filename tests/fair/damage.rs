//! After other programs have damaged the keys, no waiter waits for ever.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind};
use tests::within;

use crate::stage::{DEADLINE, NEVER, Stage, Waiting, pass_all, waiter};

const SHORT: Duration = Duration::from_millis(300);

async fn assert_refused(waiting: Vec<Waiting>) {
    for task in waiting {
        let error = within(DEADLINE, task).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
}

/// Runs a command that damages the lock's key while two callers wait behind a holder. Both leave the
/// queue.
async fn assert_waiters_are_refused_after(damage: &[&str], stage: &Stage, client: &Client) {
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 2).await;
    let _: redis::Value = stage.redis(damage).await;
    assert_refused(waiting).await;
    stage.queued(0).await;
    let _: i64 = stage.redis(&["DEL", &stage.name]).await;
    drop(guard);
}

/// Once, its release was refused before it had left the queue. It stayed there, and counted as alive
/// as long as its process waited for the lock, so no other waiter became next.
#[tokio::test]
async fn a_waiter_that_found_a_key_of_another_type_stayed_next_for_ever() {
    let stage = Stage::open("fair-wrong-type").await;
    // Both beats and polls are frequent.
    let client =
        stage.client_with(|builder| builder.waiter_timeout(2 * SHORT).poll_interval(SHORT));
    let damage = ["SET", &stage.name, "text"];
    assert_waiters_are_refused_after(&damage, &stage, &client).await;
    stage.assert_clean().await;
}

/// The next waiter asks by the beats of its client, which refuse the same keys as a try.
#[tokio::test]
async fn waiters_hear_from_a_beat_that_the_lock_became_a_hash_of_somebody_else() {
    let stage = Stage::open("fair-no-lock").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(SHORT));
    let damage = ["HSET", &stage.name, "a", "text"];
    assert_waiters_are_refused_after(&damage, &stage, &client).await;
    stage.assert_clean().await;
}

/// Once, each of them queued a second time, and its first entry looked like a live waiter.
#[tokio::test]
async fn waiters_whose_deadlines_were_deleted_stood_in_the_queue_twice() {
    let stage = Stage::open("fair-no-deadlines").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(SHORT));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 3).await;
    let queue = stage.queue().await;
    let _: i64 = stage.redis(&["DEL", &stage.deadlines_key()]).await;
    tests::eventually(DEADLINE, async || {
        let mut known = true;
        for owner in &queue {
            known &= stage.deadline(owner).await.is_some();
        }
        known
    })
    .await;
    // The last waiter is behind all others, and keeps their client alive.
    let last = waiter(&lock);
    guard.unlock().await.unwrap();
    pass_all(waiting.into_iter().chain([last])).await;
    stage.queued(0).await;
    stage.assert_clean().await;
}

/// Once, they were not reported as missing, since they still had their deadlines.
#[tokio::test]
async fn waiters_whose_queue_was_deleted_without_their_deadlines_waited_for_ever() {
    let stage = Stage::open("fair-no-queue").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(SHORT));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 3).await;
    let _: i64 = stage.redis(&["DEL", &stage.queue_key()]).await;
    stage.queued(3).await;
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}

/// Once, a leaving waiter created the key again, and waiters of other clients kept it.
#[tokio::test]
async fn a_deleted_key_of_ours_came_back_without_a_ttl() {
    let stage = Stage::open("fair-no-ttl").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let java = "00000000-0000-0000-0000-000000000000:1";
    stage.plant(java, 60_000.0).await;
    let waiting = waiter(&lock);
    stage.queued(2).await;
    // This waiter stays, and its client sends no beat within the test.
    let last = waiter(&lock);
    stage.queued(3).await;
    let key = format!("redlock_fair:{{{}}}", stage.name);
    assert!(stage.redis::<i64>(&["PTTL", &key]).await > 0);
    assert!(stage.redis::<bool>(&["DEL", &key]).await);
    waiting.abort();
    stage.queued(2).await;
    assert_ne!(stage.redis::<i64>(&["PTTL", &key]).await, -1);
    last.abort();
    stage.queued(1).await;
    let keys = [stage.queue_key(), stage.deadlines_key()];
    let _: i64 = stage.redis(&["DEL", &keys[0], &keys[1], &key]).await;
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// Once, their beats were refused, and the waiters continued to sleep.
#[tokio::test]
async fn waiters_whose_queue_became_a_key_of_another_type_never_heard_of_it() {
    let stage = Stage::open("fair-queue-type").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(SHORT));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 3).await;
    let _: () = stage.redis(&["SET", &stage.queue_key(), "text"]).await;
    assert_refused(waiting).await;
    let keys = [stage.queue_key(), stage.deadlines_key()];
    let _: i64 = stage.redis(&["DEL", &keys[0], &keys[1]]).await;
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let _: i64 = stage.redis(&["DEL", &key]).await;
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}
