//! The re-entrant lock: waiting, giving up, re-entering, losing.
//!
//! `cargo run -p examples --example rlock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, LockOptions, Shutdown, Unlocked};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let lock = client.rlock("example:rlock");

    let guard = lock.lock().await?;
    println!("held by {}", guard.hold_id());

    // Another task contends, also in the same process: it waits, and gives up.
    let patience = LockOptions::new().wait(Duration::from_millis(100));
    match lock.lock_with(patience).await {
        Err(error) if error.is_timed_out() => println!("as expected: {error}"),
        other => println!("unexpected: {other:?}"),
    }

    // Inside the guard's body the same lock is re-entered.
    let count = guard
        .run(async {
            let again = lock.lock().await?;
            Ok::<_, Error>(again.hold_count())
        })
        .await??;
    println!("held {count} times inside");
    assert_eq!(guard.unlock().await?, Unlocked::Released);

    // Whoever frees the lock under a holder is noticed: the body is dropped.
    let short = LockOptions::new().lease(Duration::from_millis(300));
    let guard = lock.lock_with(short).await?;
    lock.force_unlock().await?;
    match guard.run(std::future::pending::<()>()).await {
        Err(error) if error.is_lost() => println!("as expected: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    assert_eq!(guard.unlock().await?, Unlocked::AlreadyExpired);
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
