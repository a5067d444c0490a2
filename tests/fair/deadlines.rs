//! The deadlines by which Redisson judges waiters, in a queue of both kinds of clients.
//!
//! Redisson gives a waiter the deadline of the waiter before it plus its own wait. When a waiter takes
//! the lock or gives up, it reduces all deadlines by the wait of that waiter.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{FairLock, LockOptions, Owner};
use tests::{RedissonClient, RedissonFairLock, eventually, lock_and_unlock, within};
use tokio::task::JoinHandle;

use crate::stage::{DEADLINE, NEVER, Stage, pass, pass_all, wait, waiter};

const S: Duration = Duration::from_secs(1);
/// The lease of the holder, which is part of the first deadline of a queue.
const LEASE: Duration = S;
/// The wait that counts for a waiter without a limit.
const PLACE: Duration = Duration::from_secs(300);
/// The tolerance beyond Redisson's own deadlines.
const MORE: Duration = Duration::from_secs(5);

async fn java(stage: &Stage) -> (RedissonClient, RedissonFairLock) {
    let client = RedissonClient::connect(&stage.url).await.unwrap();
    let lock = client.fair_lock(&stage.name);
    (client, lock)
}

fn ours(stage: &Stage) -> FairLock {
    let client = stage.client_with(|builder| builder.lease(LEASE));
    client.fair_lock(&stage.name)
}

/// The time until a waiter's deadline, in seconds.
async fn left(stage: &Stage, owner: &str) -> f64 {
    let deadline = stage.deadline(owner).await.unwrap();
    (deadline - stage.now().await) / 1000.0
}

/// Behind waiters of Java it was 4 s, behind `count` waiters of ours 300 s more for each.
async fn a_dead_java_waiter_behind(count: usize) {
    let stage = Stage::open("fair-dead-java").await;
    let lock = ours(&stage);
    let (_client, theirs) = java(&stage).await;
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, count).await;
    // A killed waiter, and a live one behind it.
    assert!(theirs.attempt(1, Some(3 * S)).await.unwrap().is_some());
    assert!(theirs.attempt(2, Some(60 * S)).await.unwrap().is_some());
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    assert_eq!(stage.queue().await[0], theirs.owner(1));
    let left = left(&stage, &theirs.owner(1)).await;
    assert!(left < (LEASE + 3 * S + MORE).as_secs_f64(), "{left} s");
    eventually(DEADLINE, async || {
        theirs.attempt(2, Some(60 * S)).await.unwrap().is_none()
    })
    .await;
    theirs.unlock(2).await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_java_waiter_behind_one_of_ours_blocked_all_for_five_minutes() {
    a_dead_java_waiter_behind(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_java_waiter_behind_five_of_ours_blocked_all_for_twenty_five_minutes() {
    a_dead_java_waiter_behind(5).await;
}

/// Nothing of ours runs any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_waiters_of_ours_with_short_waits_blocked_java_for_ten_minutes() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-dead-ours").await;
    let (_client, theirs) = java(&stage).await;
    assert!(theirs.lock(1, None).await.unwrap());
    let direct = std::mem::replace(&mut stage.url, proxy.url());
    let lock = ours(&stage);
    stage.url = direct;
    let mut dead = Vec::new();
    for queued in 1..=2 {
        let options = LockOptions::new().wait(3 * S);
        dead.push(wait(&lock, &Owner::new(), options));
        stage.queued(queued).await;
    }
    proxy.refuse();
    proxy.cut_all();
    for owner in stage.queue().await {
        let left = left(&stage, &owner).await;
        assert!(left < (3 * S + MORE).as_secs_f64(), "{left} s");
    }
    theirs.unlock(1).await.unwrap();
    eventually(DEADLINE, async || {
        theirs.attempt(2, Some(60 * S)).await.unwrap().is_none()
    })
    .await;
    theirs.unlock(2).await.unwrap();
    proxy.accept();
    for task in dead {
        assert!(within(DEADLINE, task).await.unwrap().is_err());
    }
    // A client of ours finds the queue empty, and deletes the notes.
    lock_and_unlock(&lock).await;
    stage.assert_clean().await;
}

/// The first had 5 s when ours was gone, and the second lost 3 of its own 7 with that.
#[tokio::test]
async fn a_java_waiter_lost_its_place_when_the_one_before_it_gave_up() {
    let stage = Stage::open("fair-java-gives-up").await;
    let lock = ours(&stage);
    let (_client, theirs) = java(&stage).await;
    let guard = lock.lock().await.unwrap();
    let waiting = waiter(&lock);
    stage.queued(1).await;
    for thread in [1, 2] {
        let queued = theirs.attempt(thread, Some(3 * S)).await.unwrap();
        assert!(queued.is_some());
    }
    guard.unlock().await.unwrap();
    pass(waiting).await;
    let [first, second] = [1, 2].map(|thread| theirs.owner(thread));
    let apart = left(&stage, &second).await - left(&stage, &first).await;
    theirs.give_up(1, Some(3 * S)).await.unwrap();
    let rest = left(&stage, &second).await;
    assert!(apart > 2.9 && rest > 4.0, "{apart} {rest}");
    theirs.give_up(2, Some(3 * S)).await.unwrap();
    stage.assert_clean().await;
}

/// A waiter dies behind one of Java that came before any of ours, and nothing of ours runs any more. Returns for
/// how many seconds the dead waiter blocks those behind it, once the one before it has had the lock.
async fn dead_behind_java(is_ours: bool, bound: Option<Duration>) -> f64 {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-dead-behind").await;
    let client = RedissonClient::connect_with_watchdog(&stage.url, 3 * S);
    let theirs = client.await.unwrap().fair_lock(&stage.name);
    assert!(theirs.lock(1, None).await.unwrap());
    assert!(theirs.attempt(2, Some(60 * S)).await.unwrap().is_some());
    let direct = std::mem::replace(&mut stage.url, proxy.url());
    let lock = ours(&stage);
    stage.url = direct;
    let dead = is_ours.then(|| {
        let options = LockOptions::new().wait(bound);
        wait(&lock, &Owner::new(), options)
    });
    if is_ours {
        stage.queued(2).await;
        proxy.refuse();
        proxy.cut_all();
    } else {
        assert!(theirs.attempt(3, bound).await.unwrap().is_some());
    }
    assert!(theirs.attempt(4, Some(60 * S)).await.unwrap().is_some());
    theirs.unlock(1).await.unwrap();
    assert!(theirs.attempt(2, Some(60 * S)).await.unwrap().is_none());
    let left = left(&stage, &stage.queue().await[0]).await;
    theirs.unlock(2).await.unwrap();
    if bound.is_some() && left < DEADLINE.as_secs_f64() {
        eventually(DEADLINE, async || {
            theirs.attempt(4, Some(60 * S)).await.unwrap().is_none()
        })
        .await;
        theirs.unlock(4).await.unwrap();
    }
    for thread in [3, 4] {
        theirs.give_up(thread, bound).await.unwrap();
    }
    proxy.accept();
    if let Some(dead) = dead {
        dead.abort();
    }
    // A client of ours finds the queue empty, and deletes the notes.
    eventually(DEADLINE, async || stage.queue().await.is_empty()).await;
    lock_and_unlock(&lock).await;
    stage.assert_clean().await;
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_of_ours_behind_java_blocked_java_for_four_minutes() {
    for bound in [Some(5 * S), None] {
        let java = dead_behind_java(false, bound).await;
        let ours = dead_behind_java(true, bound).await;
        assert!(ours <= java + MORE.as_secs_f64(), "{ours} s, and {java} s");
    }
}

/// When the waiter of Java takes the lock, Redisson reduces the deadline of ours by its wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_java_under_a_longer_lease_a_waiter_of_ours_was_dropped() {
    let stage = Stage::open("fair-longer").await;
    let client = RedissonClient::connect_with_watchdog(&stage.url, 3 * S);
    let theirs = client.await.unwrap().fair_lock(&stage.name);
    assert!(theirs.lock(1, None).await.unwrap());
    assert!(theirs.attempt(2, Some(60 * S)).await.unwrap().is_some());
    assert!(stage.redis::<bool>(&["EXPIRE", &stage.name, "300"]).await);
    let options = LockOptions::new().wait(10 * S);
    let waiting = wait(&ours(&stage), &Owner::new(), options);
    stage.queued(2).await;
    theirs.unlock(1).await.unwrap();
    assert!(theirs.attempt(2, Some(60 * S)).await.unwrap().is_none());
    assert!(theirs.attempt(3, Some(S)).await.unwrap().is_some());
    assert_eq!(stage.queue().await.len(), 2, "ours, and the last");
    theirs.give_up(3, Some(S)).await.unwrap();
    theirs.unlock(2).await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

type Served = Arc<Mutex<Vec<usize>>>;

/// A task of Java that waits, and reports when it has the lock.
fn java_waits(
    lock: &RedissonFairLock,
    number: usize,
    wait: Option<Duration>,
    served: &Served,
) -> JoinHandle<()> {
    let (lock, served) = (lock.clone(), Arc::clone(served));
    tokio::spawn(async move {
        let thread = number as u64 + 100;
        assert!(lock.lock(thread, wait).await.unwrap());
        served.lock().unwrap().push(number);
        lock.unlock(thread).await.unwrap();
    })
}

fn ours_waits(
    lock: &FairLock,
    number: usize,
    options: LockOptions,
    served: &Served,
) -> JoinHandle<()> {
    let (lock, served) = (lock.clone(), Arc::clone(served));
    tokio::spawn(async move {
        let guard = lock.lock_with(options).await.unwrap();
        served.lock().unwrap().push(number);
        guard.unlock().await.unwrap();
    })
}

/// Once, the second waiter lost its place when the first took the lock, since Redisson reduced its
/// deadline by an hour.
async fn java_waits_of(stage: &Stage, lock: RedissonFairLock, wait: Option<Duration>) {
    let ours = ours(stage);
    assert!(lock.lock(1, None).await.unwrap());
    let served = Served::default();
    let mut tasks = Vec::new();
    for number in 0..4 {
        tasks.push(match number % 2 {
            0 => java_waits(&lock, number, wait, &served),
            _ => ours_waits(&ours, number, LockOptions::new(), &served),
        });
        stage.queued(number + 1).await;
    }
    lock.unlock(1).await.unwrap();
    for task in tasks {
        within(DEADLINE, task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_waiters_that_wait_for_an_hour_made_one_of_ours_lose_its_place() {
    let stage = Stage::open("fair-hour").await;
    let (_client, theirs) = java(&stage).await;
    java_waits_of(&stage, theirs, Some(3600 * S)).await;
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_timeout_of_a_week_made_one_of_ours_lose_its_place() {
    let stage = Stage::open("fair-week").await;
    let (_client, theirs) = java(&stage).await;
    let theirs = theirs.wait_timeout(7 * 24 * 3600 * S);
    java_waits_of(&stage, theirs, None).await;
    stage.assert_clean().await;
}

/// Each waiter of ours counts its wait, up to 300 s, and each of Java's counts its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_busy_mixed_queue_a_java_waiter_had_an_hour_and_more() {
    let stage = Stage::open("fair-mixed").await;
    let lock = ours(&stage);
    let (_client, theirs) = java(&stage).await;
    let guard = lock.lock().await.unwrap();
    let began = stage.now().await;
    let served = Served::default();
    let (mut tasks, mut most) = (Vec::new(), LEASE + MORE);
    let mut bounds = Vec::new();
    for number in 0..12 {
        let (task, counts) = match number % 4 {
            0 => (
                ours_waits(&lock, number, LockOptions::new(), &served),
                PLACE,
            ),
            2 => {
                let options = LockOptions::new().wait(30 * S);
                (ours_waits(&lock, number, options, &served), 30 * S)
            }
            _ => {
                let wait = Some(40 * S);
                (java_waits(&theirs, number, wait, &served), 40 * S)
            }
        };
        tasks.push(task);
        stage.queued(number + 1).await;
        most += counts;
        bounds.push((number % 2 == 1, most));
    }
    // The next script corrects them, at the latest a beat.
    eventually(DEADLINE, async || {
        let mut late = Vec::new();
        for (owner, (is_java, most)) in stage.queue().await.iter().zip(&bounds) {
            let until = stage.deadline(owner).await.unwrap() - began;
            if *is_java && until > most.as_secs_f64() * 1000.0 {
                late.push(format!("{until} ms, and {most:?} at most"));
            }
        }
        match late.is_empty() {
            true => Ok(()),
            false => Err(late.join("; ")),
        }
    })
    .await;
    guard.unlock().await.unwrap();
    for task in tasks {
        within(DEADLINE, task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..12).collect::<Vec<_>>());
    stage.assert_clean().await;
}

/// Once, a waiter without a beat since then counted as a waiter of Java, or as dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_waiters_keep_their_places_when_the_notes_are_evicted() {
    let stage = Stage::open("fair-evicted").await;
    let guard = ours(&stage).lock().await.unwrap();
    let locks = [ours(&stage), ours(&stage)];
    let (_client, theirs) = java(&stage).await;
    let served = Served::default();
    let mut tasks = Vec::new();
    for number in 0..6 {
        tasks.push(match number % 3 {
            2 => java_waits(&theirs, number, Some(60 * S), &served),
            of => ours_waits(&locks[of], number, LockOptions::new(), &served),
        });
        stage.queued(number + 1).await;
    }
    let key = format!("redlock_fair:{{{}}}", stage.name);
    assert!(stage.redis::<bool>(&["DEL", &key]).await);
    // It notes only its own client.
    tasks.push(ours_waits(&locks[0], 6, LockOptions::new(), &served));
    stage.queued(7).await;
    guard.unlock().await.unwrap();
    for task in tasks {
        within(DEADLINE, task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..7).collect::<Vec<_>>());
    stage.assert_clean().await;
}

/// Once, its client looked like a Java client, and the waiter stayed for five minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_of_ours_stayed_until_its_deadline_when_the_notes_were_evicted() {
    let stage = Stage::open("fair-forgotten").await;
    let lock = ours(&stage);
    let guard = lock.lock().await.unwrap();
    // A killed waiter, whose notes are gone.
    let dead = "00000000-0000-8fa1-8000-000000000000:1";
    stage.plant(dead, 300_000.0).await;
    let waiting = waiter(&lock);
    stage.queued(2).await;
    // A live client sends a beat within 35 s. As if these were over:
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let long_ago = format!("{:.0}", stage.now().await - 36_000.0);
    let _: i64 = stage.redis(&["HSET", &key, "since", &long_ago]).await;
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

/// Once, a client that left stayed in the notes as long as any waiter existed.
#[tokio::test]
async fn clients_that_came_and_went_were_noted_for_ever() {
    const CLIENTS: usize = 200;
    let stage = Stage::open("fair-came").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = waiter(&lock);
    stage.queued(1).await;
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let mut most = 0;
    for _ in 0..CLIENTS {
        let alive = Duration::from_millis(100);
        let client = stage.client_with(|builder| builder.waiter_timeout(alive));
        let options = LockOptions::new().wait(Duration::from_millis(5));
        let outcome = client.fair_lock(&stage.name).lock_with(options).await;
        assert!(outcome.is_err());
        most = most.max(stage.redis::<usize>(&["HLEN", &key]).await);
    }
    // At most twenty clients can come within 100 ms; twice as many are noted, and a few more.
    assert!(most <= 100, "{most} notes");
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

/// Once, after five minutes, a waiter without a limit was noted like one whose time was over, and
/// Redisson dropped it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_java_a_live_waiter_without_a_bound_lost_its_place_after_five_minutes() {
    let stage = Stage::open("fair-unbounded").await;
    let client = stage.client_with(|builder| builder.lease(LEASE).waiter_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let (_client, theirs) = java(&stage).await;
    let guard = lock.lock().await.unwrap();
    let mut waiting = vec![waiter(&lock)];
    stage.queued(1).await;
    let first = stage.queue().await.remove(0);
    assert!(theirs.attempt(1, Some(60 * S)).await.unwrap().is_some());
    // Each new waiter of ours reads the queue.
    for queued in 2..=4 {
        waiting.push(waiter(&lock));
        stage.queued(queued + 1).await;
        if queued == 2 {
            // As if the five minutes were over.
            let key = format!("redlock_fair:{{{}}}", stage.name);
            let _: i64 = stage.redis(&["HSET", &key, "surplus", "1000000000"]).await;
        }
    }
    let left = left(&stage, &first).await;
    assert!(left > 30.0, "{left} s");
    assert!(theirs.attempt(1, Some(60 * S)).await.unwrap().is_some());
    assert_eq!(stage.queue().await[0], first);
    theirs.give_up(1, Some(60 * S)).await.unwrap();
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}

/// Once, the script failed, since it mistook the queue that it had read for the present one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_only_dead_waiters_of_a_mixed_queue_got_an_error() {
    let stage = Stage::open("fair-all-dead").await;
    let lock = ours(&stage);
    let guard = lock.lock().await.unwrap();
    // A killed waiter; a waiter of Java behind it has given up.
    let client = "00000000-0000-8fa1-8000-000000000000";
    let dead = format!("{client}:1");
    stage.plant(&dead, 300_000.0).await;
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let _: i64 = stage
        .redis(&["HSET", &key, client, "1", "since", "1", "mixed", "1"])
        .await;
    let waiting = waiter(&lock);
    eventually(DEADLINE, async || {
        let queue = stage.queue().await;
        match queue.len() == 1 && queue[0] != dead {
            true => Ok(()),
            false => Err(format!("{queue:?} are queued")),
        }
    })
    .await;
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}
