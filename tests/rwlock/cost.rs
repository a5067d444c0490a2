//! The cost in frames at a proxy.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{LockOptions, ReadWriteLock};
use tests::{CALL, Proxy, calls, shared_server, within};
use tokio::{task::JoinSet, time::sleep};

use crate::{DEADLINE, Stage, waits};

/// A client with loaded scripts, and the counting proxy.
async fn counted(stage: &Stage) -> (Proxy, redlock_rt::Client, ReadWriteLock) {
    let proxy = Proxy::to(&shared_server());
    let client = stage.client_with(|builder| builder.url(&proxy.url()).poll_interval(crate::NEVER));
    let lock = stage.lock_of(&client);
    let reading = lock.read().await.unwrap();
    reading.reenter().await.unwrap().unlock().await.unwrap();
    let writing = reading.try_upgrade().await.unwrap();
    writing.reenter().await.unwrap().unlock().await.unwrap();
    writing.downgrade().await.unwrap().unlock().await.unwrap();
    proxy.mark();
    (proxy, client, lock)
}

fn frames(proxy: &Proxy) -> usize {
    let count = proxy.frames().len();
    proxy.mark();
    count
}

#[tokio::test]
async fn each_step_is_one_round_trip() {
    let stage = Stage::set("steps").await;
    let (proxy, _client, lock) = counted(&stage).await;
    let one = lock.read().await.unwrap();
    assert_eq!(frames(&proxy), 1, "read");
    let other = lock.read().await.unwrap();
    assert_eq!(frames(&proxy), 1, "another read");
    let one = one.try_upgrade().await.unwrap_err().into_guard();
    assert_eq!(frames(&proxy), 1, "an upgrade that is refused");
    other.unlock().await.unwrap();
    assert_eq!(frames(&proxy), 1, "unlock");
    let writing = one.try_upgrade().await.unwrap();
    assert_eq!(frames(&proxy), 2, "upgrade");
    let joined = writing.run(lock.read()).await.unwrap().unwrap();
    assert_eq!(frames(&proxy), 1, "join");
    let again = writing.run(lock.try_write()).await.unwrap();
    drop(again.unwrap().expect("re-entered"));
    proxy.wait_for_count(CALL, 2).await;
    assert_eq!(frames(&proxy), 2, "re-entry, and the end of it");
    joined.unlock().await.unwrap();
    assert_eq!(frames(&proxy), 1, "unlock of a joined read");
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(frames(&proxy), 2, "downgrade");
    let refused = reading.run(lock.write()).await.unwrap();
    assert!(refused.unwrap_err().is_upgrade_would_deadlock());
    assert_eq!(frames(&proxy), 0, "known without asking");
    reading.unlock().await.unwrap();
    assert_eq!(frames(&proxy), 1, "unlock");
    stage.end().await;
}

/// One waiter asks for all; when readers are admitted, each asks once.
#[tokio::test]
async fn readers_that_wait_ask_once_each() {
    const READERS: usize = 30;
    let stage = Stage::set("crowd").await;
    let (proxy, client, lock) = counted(&stage).await;
    let writing = stage.lock().write().await.unwrap();
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let lock = lock.clone();
        readers.spawn(async move { lock.read().await.unwrap() });
    }
    waits(&client, READERS).await;
    stage.subscribed(1).await;
    writing.unlock().await.unwrap();
    let guards = within(DEADLINE, readers.join_all()).await;
    let tries = proxy.counts()["EVALSHA"];
    // The tries of the head while it waits, and one more for the message.
    assert!(tries <= READERS + 3, "{tries} tries");
    drop(guards);
    stage.end().await;
}

/// Read holds are verified more often than other holds, in common calls.
#[tokio::test]
async fn many_read_holds_share_their_calls() {
    const HOLDS: usize = 60;
    const INTERVAL: Duration = Duration::from_millis(1500);
    let stage = Stage::set("looks").await;
    let (proxy, client, _) = counted(&stage).await;
    let fixed = LockOptions::new()
        .lease(Duration::from_secs(60))
        .renew(false);
    let begun = Instant::now();
    let guards = join_all((0..HOLDS).map(|number| {
        let lock = client.read_write_lock(format!("{}:{number}", stage.name));
        let fixed = fixed.clone();
        async move { lock.read_with(fixed).await.unwrap() }
    }))
    .await;
    // What was acquired more than a tenth of an interval later is verified apart.
    let apart = begun.elapsed().div_duration_f64(INTERVAL / 10) as usize;
    proxy.wait_for_count(calls("renew"), 1).await;
    proxy.mark();
    let begun = Instant::now();
    sleep(3 * INTERVAL).await;
    let looks = proxy.counts().get("EVALSHA").copied().unwrap_or_default();
    let intervals = begun.elapsed().div_duration_f64(INTERVAL);
    let most = (intervals + 1.0) * (2 + apart.min(10)) as f64;
    assert!(
        (2..=most as usize).contains(&looks),
        "{looks} calls in {intervals} intervals"
    );
    drop(guards);
    stage.end().await;
}
