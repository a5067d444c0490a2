//! A saturated lock that tasks of one client share with threads of a client like Redisson's, which
//! hear of a release by its message alone.

use std::time::Duration;

use redlock_rt::{Client, Kind, Lock, LockGuard, LockOptions, embedded::Engine};
use tests::{DEADLINE, RedissonClient, Wires, within};
use tokio::join;
use tokio::time::sleep;

use crate::{
    stage::MS,
    takers::{NAME, Object, Ours, Saturated, Share, Theirs, redisson},
};

const TURNS: usize = 300;
/// A turn takes a millisecond or two.
const AT_MOST: Duration = Duration::from_millis(100);

/// Both clients take turns, where Redisson's has one thread that is far from the server, or several near
/// to it.
async fn share<K: Kind>(
    open: impl Fn(&Client) -> Lock<K>,
    options: LockOptions,
    object: impl Fn(&RedissonClient) -> Object,
) {
    for (tasks, threads) in [(4, 1), (4, 4), (1, 1), (1, 4)] {
        let engine = Engine::new();
        let client = Client::builder().embedded(&engine).build().unwrap();
        let wires = Wires::to_engine(&engine);
        let wires = if threads == 1 { wires.slow() } else { wires };
        let object = object(&redisson(&wires).await);
        let outside = object.outside(&engine).await;
        let mut saturated = Saturated::for_turns(TURNS);
        let ours = || Ours {
            lock: open(&client),
            options: options.clone(),
            outside: outside.clone(),
        };
        saturated.join(0, (0..tasks).map(|_| ours()));
        let theirs = |thread| Theirs {
            lock: object.clone(),
            thread,
            outside: outside.clone(),
        };
        saturated.join(1, (0..threads).map(theirs));
        let shares: [Share; 2] = saturated.shares().await;
        // In percent. A lone task of ours forgot that it had just had the lock, and had nearly all turns.
        let least = match (tasks, threads) {
            (1, 1) => [25, 33],
            (1, _) => [25, 60],
            _ => [25, 25],
        };
        for (share, least) in shares.iter().zip(least) {
            let turns = share.turns * 100 / TURNS;
            assert!(
                turns >= least,
                "{tasks} tasks, {threads} threads: {shares:?}"
            );
            // Threads of one client have no order among each other.
            let fair = threads == 1 || share.longest == shares[0].longest;
            assert!(
                !fair || share.longest <= AT_MOST,
                "{tasks} tasks, {threads} threads: {shares:?}"
            );
        }
    }
}

/// Our tasks hand it over without a call.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_renewed_is_shared_with_redisson() {
    let theirs = |java: &RedissonClient| Object::Lock(java.rlock(NAME), None);
    let open = |client: &Client| client.rlock(NAME);
    share(open, LockOptions::new(), theirs).await;
}

/// Each turn is a release and an acquisition.
#[tokio::test(start_paused = true)]
async fn a_lock_with_a_fixed_lease_is_shared_with_redisson() {
    let lease = MS * 500;
    let theirs = |java: &RedissonClient| Object::Lock(java.rlock(NAME), Some(lease));
    let open = |client: &Client| client.rlock(NAME);
    let options = LockOptions::new().lease(lease).renew(false);
    share(open, options, theirs).await;
}

/// Our tasks hand it over without a call, with tokens of their own.
#[tokio::test(start_paused = true)]
async fn a_fenced_lock_is_shared_with_redisson() {
    let theirs = |java: &RedissonClient| Object::Fenced(java.fenced_lock(NAME));
    let open = |client: &Client| client.fenced_lock(NAME);
    share(open, LockOptions::new(), theirs).await;
}

/// Each turn is a release and an acquisition.
#[tokio::test(start_paused = true)]
async fn a_write_lock_is_shared_with_redisson() {
    let theirs = |java: &RedissonClient| Object::Write(java.read_write_lock(NAME).write);
    let open = |client: &Client| client.read_write_lock(NAME).write_lock();
    share(open, LockOptions::new(), theirs).await;
}

/// 0 wakes one of a client's threads, and the lock is still taken: the others slept for the lease that they had been
/// told.
#[tokio::test]
async fn all_threads_of_redisson_are_told_of_the_rest_of_a_shortest_hold() {
    const LEAST: Duration = Duration::from_secs(3);
    let engine = Engine::new();
    let client = Client::builder().embedded(&engine).build().unwrap();
    let java = redisson(&Wires::to_engine(&engine)).await;
    let options = LockOptions::new().lease(300 * LEAST).renew(false);
    let options = options.min_hold(LEAST);

    let guard = client.rlock(NAME).lock_with(options.clone()).await;
    let lock = java.rlock(NAME);
    let threads = async {
        let ends = ended_soon(guard.unwrap());
        join!(lock.lock(1, Some(MS * 1000)), lock.lock(2, None), ends)
    };
    let (first, second, ()) = within(DEADLINE, threads).await;
    assert_eq!((first.unwrap(), second.unwrap()), (false, true));

    let modes = client.read_write_lock("modes");
    let guard = modes.write_lock().lock_with(options).await;
    let read = java.read_write_lock("modes").read;
    let threads = async {
        let ends = ended_soon(guard.unwrap());
        join!(
            read.lock_for(1, None, None),
            read.lock_for(2, None, None),
            ends
        )
    };
    let (first, second, ()) = within(DEADLINE, threads).await;
    assert_eq!((first.unwrap(), second.unwrap()), (true, true));
}

async fn ended_soon<K: Kind>(guard: LockGuard<K>) {
    sleep(MS * 100).await;
    guard.unlock().await.unwrap();
}
