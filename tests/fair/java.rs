//! Our clients beside Redisson in one queue.

use std::time::{Duration, Instant};

use tests::{
    RedissonClient, RedissonFairLock, RedissonUnlock, eventually, lock_and_unlock, within,
};

use crate::stage::{DEADLINE, NEVER, Stage, pass, pass_all, waiter};

/// How soon a waiter gets a lock of the other side; its lease would end after 30 s.
const WAKES: Duration = Duration::from_secs(5);
/// `fairLockWaitTimeout`.
const PLACE: f64 = 300_000.0;

async fn java(stage: &Stage) -> (RedissonClient, RedissonFairLock) {
    let client = RedissonClient::connect(&stage.url).await.unwrap();
    let lock = client.fair_lock(&stage.name);
    (client, lock)
}

async fn java_waits(
    lock: &RedissonFairLock,
    thread: u64,
) -> tokio::task::JoinHandle<redis::RedisResult<bool>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock(thread, None).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wakes_the_other_in_turn() {
    let stage = Stage::open("fair-both").await;
    let ours = stage.client().fair_lock(&stage.name);
    let (client, theirs) = java(&stage).await;
    assert!(theirs.lock(1, None).await.unwrap());
    let first = waiter(&ours);
    stage.queued(1).await;
    let second = java_waits(&theirs, 2).await;
    stage.queued(2).await;
    let third = waiter(&ours);
    stage.queued(3).await;
    // Both sides are subscribed before anything is announced.
    eventually(DEADLINE, async || client.channels().len() == 1).await;
    let released = Instant::now();
    assert_eq!(theirs.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    let guard = within(DEADLINE, first).await.unwrap().unwrap();
    assert!(released.elapsed() < WAKES, "{:?}", released.elapsed());
    assert!(!second.is_finished() && !third.is_finished());
    let released = Instant::now();
    guard.unlock().await.unwrap();
    assert!(within(DEADLINE, second).await.unwrap().unwrap());
    assert!(released.elapsed() < WAKES, "{:?}", released.elapsed());
    assert!(!third.is_finished());
    assert_eq!(theirs.unlock(2).await.unwrap(), RedissonUnlock::Freed);
    pass(third).await;
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_passes_over_the_other() {
    let stage = Stage::open("fair-pass").await;
    let ours = stage.client().fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let guard = ours.lock().await.unwrap();
    assert!(theirs.attempt(1, None).await.unwrap().is_some());
    let waiting = waiter(&ours);
    stage.queued(2).await;
    guard.unlock().await.unwrap();
    // It is Redisson's turn: neither a new waiter of ours nor the one behind takes the lock.
    assert!(ours.try_lock().await.unwrap().is_none());
    assert!(theirs.attempt(2, None).await.unwrap().is_some());
    assert!(!waiting.is_finished());
    assert!(theirs.attempt(1, None).await.unwrap().is_none());
    theirs.unlock(1).await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    theirs.give_up(2, None).await.unwrap();
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// When Redisson takes the lock, it reduces all deadlines by its own wait.
#[tokio::test]
async fn a_java_head_that_acquires_does_not_drop_our_live_waiters() {
    let stage = Stage::open("fair-java-head").await;
    let ours = stage.client().fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    // This waiter may wait three times as long as others.
    let long = Some(Duration::from_secs(900));
    assert!(theirs.lock(1, None).await.unwrap());
    assert!(theirs.attempt(2, long).await.unwrap().is_some());
    let waiting: Vec<_> = (0..3).map(|_| waiter(&ours)).collect();
    stage.queued(4).await;
    let queue = stage.queue().await;
    theirs.unlock(1).await.unwrap();
    assert!(theirs.attempt(2, long).await.unwrap().is_none());
    // Any script of Redisson drops those whose deadline has passed.
    assert!(theirs.attempt(3, None).await.unwrap().is_some());
    assert_eq!(stage.queue().await[..3], queue[1..]);
    theirs.give_up(3, None).await.unwrap();
    theirs.unlock(2).await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}

/// Nothing of Java's was queued, so nothing of ours listened to the channel of the waiter that is next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_of_java_woke_ours_only_by_the_next_beat() {
    let stage = Stage::open("fair-java-force").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let ours = client.fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let guard = ours.lock().await.unwrap();
    let waiting = stage.queue_up(&ours, 2).await;
    let channel = theirs.channel_of(&stage.queue().await[0]);
    stage.subscribed_to(&channel, 1).await;
    // As Redisson's `forceUnlock` does.
    let force = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[1], '0')";
    let forced = Instant::now();
    let heard: usize = stage
        .redis(&["EVAL", force, "1", &stage.name, &channel])
        .await;
    assert_eq!(heard, 1);
    pass_all(waiting).await;
    assert!(forced.elapsed() < WAKES, "{:?}", forced.elapsed());
    drop(guard);
    stage.assert_clean().await;
}

/// The one that moved up had no channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_of_ours_that_moved_up_listens_for_a_forced_release_of_java() {
    let stage = Stage::open("fair-java-moved-up").await;
    // A heartbeat every second.
    let client = stage.client_with(|builder| builder.waiter_timeout(Duration::from_secs(3)));
    let ours = client.fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let guard = ours.lock().await.unwrap();
    let mut waiting = stage.queue_up(&ours, 2).await;
    let channel = theirs.channel_of(&stage.queue().await[1]);
    guard.unlock().await.unwrap();
    let held = within(DEADLINE, waiting.remove(0)).await.unwrap().unwrap();
    stage.subscribed_to(&channel, 1).await;
    held.unlock().await.unwrap();
    pass(waiting.remove(0)).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_live_waiter_past_its_deadline_is_kept_and_gets_a_new_one() {
    let stage = Stage::open("fair-past").await;
    let alive = Duration::from_millis(300);
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let ours = client.fair_lock(&stage.name);
    let guard = ours.lock().await.unwrap();
    let waiting = waiter(&ours);
    stage.queued(1).await;
    let owner = stage.queue().await.remove(0);
    let (deadlines, past) = (stage.deadlines_key(), stage.now().await - 1_000.0);
    let past = format!("{past:.0}");
    let _: i64 = stage
        .redis(&["ZADD", &deadlines, "XX", &past, &owner])
        .await;
    // Our scripts read the entry, and leave it there.
    assert!(ours.try_lock().await.unwrap().is_none());
    eventually(DEADLINE, async || {
        let deadline = stage.deadline(&owner).await;
        let left = deadline.unwrap() - stage.now().await;
        if left > 0.0 {
            Ok(())
        } else {
            Err(format!("{left} ms are left"))
        }
    })
    .await;
    assert_eq!(stage.queue().await, [owner]);
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

/// Deadlines that are never reduced would end days later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_thousand_hand_overs_a_java_waiter_gets_a_sane_deadline() {
    const ROUNDS: usize = 1000;
    let stage = Stage::open("fair-sane").await;
    let ours = stage.client().fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = ours.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS / 4 {
                    lock_and_unlock(&lock).await;
                }
            })
        })
        .collect();
    for task in tasks {
        within(3 * DEADLINE, task).await.unwrap();
    }
    let guard = ours.lock().await.unwrap();
    let waiting = waiter(&ours);
    stage.queued(1).await;
    assert!(theirs.attempt(1, None).await.unwrap().is_some());
    let deadline = stage.deadline(&theirs.owner(1)).await.unwrap();
    let left = deadline - stage.now().await;
    // The lease of the holder, and the wait of each of the two.
    assert!(
        (2.0 * PLACE - 5_000.0..=30_000.0 + 2.0 * PLACE).contains(&left),
        "{left}"
    );
    theirs.give_up(1, None).await.unwrap();
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_leaving_waiter_shortens_the_deadlines_of_java_waiters() {
    let stage = Stage::open("fair-leaves").await;
    let ours = stage.client().fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let guard = ours.lock().await.unwrap();
    let waiting = waiter(&ours);
    stage.queued(1).await;
    assert!(theirs.attempt(1, None).await.unwrap().is_some());
    let before = stage.deadline(&theirs.owner(1)).await.unwrap();
    waiting.abort();
    stage.queued(1).await;
    let after = stage.deadline(&theirs.owner(1)).await.unwrap();
    assert!((before - after - PLACE).abs() < 1.0, "{before} {after}");
    theirs.give_up(1, None).await.unwrap();
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn java_finds_what_it_expects() {
    let stage = Stage::open("fair-shape").await;
    let client = stage.client();
    let ours = client.fair_lock(&stage.name);
    let guard = ours.lock().await.unwrap();
    let hash: Vec<(String, String)> = stage.redis(&["HGETALL", &stage.name]).await;
    assert_eq!(hash, [(guard.hold_id().to_string(), "1".to_owned())]);
    let waiting = waiter(&ours);
    stage.queued(1).await;
    let owner = stage.queue().await.remove(0);
    assert!(owner.starts_with(client.uuid()), "{owner}");
    let left = stage.deadline(&owner).await.unwrap() - stage.now().await;
    assert!((PLACE..=PLACE + 30_000.0).contains(&left), "{left}");
    for key in [stage.queue_key(), stage.deadlines_key()] {
        let ttl: i64 = stage.redis(&["PTTL", &key]).await;
        assert_eq!(ttl, -1, "{key}");
    }
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}
