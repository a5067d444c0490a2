//! Redis answers, and another owner has the lock.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, ErrorKind, LockOptions, Owner, embedded::Engine};
use tests::{
    Proxy, assert_clean, assert_clean_in, lock_and_unlock, shared_server, trace_init, unique,
};
use tokio::time::Instant;

use crate::{assert_kind, ms};

/// The other owner is another client, another task, or another body of this task.
#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_lasts_as_long_as_it_says() {
    let (engine, name) = (Engine::new(), unique("runs-out"));
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    for holder in [&client, &other] {
        let guard = holder.rlock(&name).lock().await.unwrap();
        let lock = client.rlock(&name);
        let waits = (0..40).map(|step| ms(1 + 97 * step));
        let waits = waits.map(async |wait| {
            let start = Instant::now();
            let outcome = lock.lock_with(LockOptions::new().wait(wait)).await;
            assert_eq!(start.elapsed(), wait);
            assert_kind(outcome, ErrorKind::TimedOut);
        });
        join_all(waits).await;
        guard.unlock().await.unwrap();
    }
    assert_clean_in(&engine, &name, [&client, &other]).await;
}

/// A second contender with an owner that is about to acquire the lock.
#[tokio::test(start_paused = true)]
async fn a_wait_behind_the_same_owner_runs_out() {
    let (engine, name) = (Engine::new(), unique("same-owner"));
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let holder = other.rlock(&name).lock().await.unwrap();
    let (lock, owner) = (client.rlock(&name), Owner::new());
    let waits = [500, 700].map(ms).map(async |wait| {
        let options = LockOptions::new().owner(&owner).wait(wait);
        let start = Instant::now();
        let outcome = lock.lock_with(options).await;
        assert_eq!(start.elapsed(), wait);
        assert_kind(outcome, ErrorKind::TimedOut);
    });
    join_all(waits).await;
    holder.unlock().await.unwrap();
    assert_clean_in(&engine, &name, [&client, &other]).await;
}

/// A wait of zero sends one call, and no later one.
#[tokio::test]
async fn a_wait_of_zero_is_one_call() {
    trace_init();
    let (server, name) = (shared_server(), unique("zero"));
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let other = Client::connect(&server.url()).await.unwrap();
    let lock = client.rlock(&name);
    // Loads the scripts.
    lock_and_unlock(&lock).await;
    let guard = other.rlock(&name).lock().await.unwrap();
    let owner = Owner::new();
    // From now on it is known to be taken.
    assert!(lock.try_lock().await.unwrap().is_none());
    for options in [LockOptions::new(), LockOptions::new().owner(&owner)] {
        proxy.mark();
        let outcome = lock.lock_with(options.wait(Duration::ZERO)).await;
        assert_kind(outcome, ErrorKind::Contended);
        assert_eq!(
            proxy.counts().into_iter().collect::<Vec<_>>(),
            [("EVALSHA".to_owned(), 1)]
        );
    }
    proxy.mark();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(proxy.frames().len(), 1);
    guard.unlock().await.unwrap();
    assert_clean(&server, &name, [&client, &other]).await;
}
