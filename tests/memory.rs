//! The memory that locks take of the client, by an allocator that counts. A count has no noise, but
//! for the buffers of the connection and a timer's wheel, which grow to a usual size.
//!
//! The server is another process, so that its memory is not counted.

use std::{
    alloc::System,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redlock_rt::Client;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tests::{RedisServer, eventually};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocations of a lock and unlock: the queue of the name and the task's place in it, the hold,
/// and the text of each of the two calls.
const OF_A_PAIR: usize = 5;
/// The bytes of a held lock.
const OF_A_HOLD: usize = 600;
/// The bytes of a task that waits, with the task.
const OF_A_WAITER: usize = 1110;

/// The tests of one process run beside each other, and the allocator counts for all.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(test())
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

fn bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// What each of so many takes; `take` adds so many.
async fn each<T>(mut take: impl AsyncFnMut(usize) -> T) -> usize {
    const FEW: usize = 100;
    const MANY: usize = 5000;
    let few = take(FEW).await;
    let before = bytes();
    let many = take(MANY - FEW).await;
    let taken = bytes() - before;
    drop((few, many));
    taken.div_ceil(MANY - FEW)
}

#[test]
fn a_pair_takes_few_allocations() {
    run(async || {
        const PAIRS: usize = 1000;
        let server = RedisServer::start();
        let client = Client::connect(&server.url()).await.unwrap();
        let lock = client.rlock("pair");
        let pairs = async |times| {
            for _ in 0..times {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        };
        pairs(PAIRS).await;
        let before = allocations();
        pairs(PAIRS).await;
        let taken = allocations() - before;
        let of_a_pair = taken as f64 / PAIRS as f64;
        assert_eq!(of_a_pair.round() as usize, OF_A_PAIR, "{of_a_pair}");
    });
}

#[test]
fn a_held_lock_takes_little_memory() {
    run(async || {
        let server = RedisServer::start();
        let client = Client::connect(&server.url()).await.unwrap();
        let mut taken = 0;
        let hold = async |count| {
            let mut guards = Vec::with_capacity(count);
            for _ in 0..count {
                taken += 1;
                let lock = client.rlock(format!("holds:{taken:05}"));
                guards.push(lock.lock().await.unwrap());
            }
            guards
        };
        let each = each(hold).await;
        assert!(each <= OF_A_HOLD, "{each} bytes");
    });
}

#[test]
fn a_task_that_waits_takes_little_memory() {
    run(async || {
        let server = RedisServer::start();
        let [client, other] = [
            Client::connect(&server.url()).await.unwrap(),
            Client::connect(&server.url()).await.unwrap(),
        ];
        let _held = other.rlock("waits").lock().await.unwrap();
        let wait = async |count| {
            let all = client.stats().waiting + count;
            let tasks: Vec<_> = (0..count)
                .map(|_| {
                    let lock = client.rlock("waits");
                    tokio::spawn(async move { lock.lock().await.map(drop) })
                })
                .collect();
            let queued =
                async || client.stats().waiting == all && client.stats().subscriptions == 1;
            eventually(Duration::from_secs(20), queued).await;
            tasks
        };
        let each = each(wait).await;
        assert!(each <= OF_A_WAITER, "{each} bytes");
    });
}
