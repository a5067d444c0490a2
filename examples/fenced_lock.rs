//! The fenced lock: a holder that comes late, and a resource that refuses it.
//!
//! `cargo run -p examples --example fenced_lock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use redlock_rt::{Error, FenceGate, LockOptions, Reply, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let lock = client.fenced_lock("example:report");
    let report = client.fenced_value("example:report:text");
    // Beside a resource in this process: a file, a device, a connection.
    let gate = FenceGate::new();

    // A holder that is paused for longer than its lease. It cannot know, until it goes on.
    let short = LockOptions::new()
        .lease(Duration::from_millis(100))
        .renew(false);
    let paused = lock.lock_with(short).await?;
    report.set("begun", paused.token()).await?;
    println!("the first has token {}", paused.token());

    let guard = lock.lock().await?;
    println!("the second has token {}, which is greater", guard.token());
    report.set("done", guard.token()).await?;
    if let Err(stale) = gate.run(guard.token(), || println!("the second writes")) {
        println!("unexpected: {stale}");
    }

    // It goes on where it was, with a write that it had under way.
    match report.set("late", paused.token()).await {
        Err(error) if error.is_stale_token() => println!("as expected: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    match gate.run(paused.token(), || println!("unexpected: a late write")) {
        Err(stale) => println!("as expected: {stale}"),
        Ok(()) => println!("unexpected: not refused"),
    }

    // Who has it may write as often as it likes, and do more than to set.
    let append = "redis.call('APPEND', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    let text = report.exec(append, &[", and sent"], guard.token()).await?;
    assert_eq!(text, Reply::Text("done, and sent".to_owned()));
    // What is written stays written, whatever becomes of the release.
    drop(guard);
    drop(paused);
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
