//! What a client learns from its beats.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock_rt::{Client, ErrorKind, FairLock, FairLockGuard};
use tests::{Frame, Proxy, Which, calls, eventually, within};

use crate::stage::{DEADLINE, NEVER, Stage, Waiting, pass, pass_all, waiter};

/// The subscription was confirmed while a beat was in progress. Only a later beat finds an earlier
/// announcement, and once, no beat was sent before the next regular one, 30 s later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_asked_for_while_one_was_under_way_was_forgotten() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-asked").await;
    let others = stage.client().fair_lock(&stage.name);
    let first = others.lock().await.unwrap();
    let second = waiter(&others);
    stage.queued(1).await;
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER).response_timeout(NEVER));
    let ours = client.fair_lock(&stage.name);
    // The beat that follows the subscription finds that another client is next.
    let under_way = proxy.hold_reply(calls("fair_beat"));
    let third = waiter(&ours);
    stage.queued(2).await;
    under_way.reached().await;
    // The turn of our waiter is announced while the client is not subscribed.
    proxy.refuse();
    proxy.cut(Which::Subscribers);
    first.unlock().await.unwrap();
    pass(second).await;
    proxy.mark();
    proxy.accept();
    proxy.wait_for_answer("SUBSCRIBE").await;
    // The client has read all earlier replies.
    assert!(!ours.is_locked().await.unwrap());
    under_way.open();
    pass(third).await;
    stage.assert_clean().await;
}

/// This many locks that `holder` holds and `client` waits for.
async fn waited_for(
    stage: &Stage,
    holder: &Client,
    client: &Client,
    count: usize,
) -> (Vec<FairLockGuard>, Vec<Waiting>) {
    let name = |at| format!("{}:{at}", stage.name);
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for at in 0..count {
        guards.push(holder.fair_lock(name(at)).lock().await.unwrap());
        let lock: FairLock = client.fair_lock(name(at));
        waiting.push(waiter(&lock));
    }
    for at in 0..count {
        let lock = holder.fair_lock(name(at));
        eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
    }
    (guards, waiting)
}

/// The number of names in a call.
fn names_of(frame: &Frame) -> usize {
    frame.text(2).parse::<usize>().unwrap() / 4
}

/// The number of beats, and the sum of their names.
fn beats(proxy: &Proxy) -> (usize, usize) {
    let names = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&names);
    let calls = proxy.count(calls("fair_beat").and(move |frame| {
        all.fetch_add(names_of(frame), Ordering::Relaxed);
        true
    }));
    (calls, names.load(Ordering::Relaxed))
}

/// Once, ten thousand names cost 12 000 calls a second while nothing happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_name_that_was_waited_for_had_heartbeats_of_its_own() {
    const NAMES: usize = 300;
    const CALLS: usize = 9;
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-batch").await;
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    stage.url = proxy.url();
    let alive = Duration::from_secs(3);
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let (guards, waiting) = waited_for(&stage, &holder, &client, NAMES).await;
    // After a time, names that began at different moments share calls.
    for _ in 0..2 {
        proxy.mark();
        proxy.wait_for_count(calls("fair_beat"), CALLS).await;
    }
    let (sent, names) = beats(&proxy);
    assert!(names >= sent * 60, "{names} names in {sent} calls");
    let large = calls("fair_beat").and(|frame| names_of(frame) > 100);
    assert_eq!(proxy.count(large), 0);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    pass_all(waiting).await;
    stage.assert_clean().await;
}

/// Once, that key failed the call for all names, and each of them tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_beats_are_refused_disturbs_no_other() {
    const NAMES: usize = 9;
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-apart").await;
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    stage.url = proxy.url();
    let alive = Duration::from_millis(900);
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let (mut guards, mut waiting) = waited_for(&stage, &holder, &client, NAMES).await;
    let together = |at_least: usize| {
        let call = calls("fair_beat");
        call.and(move |frame| names_of(frame) >= at_least)
    };
    proxy.wait_for_answer(together(NAMES)).await;
    proxy.mark();
    let (bad, refused) = (NAMES / 2, waiting.remove(NAMES / 2));
    let keys =
        ["queue", "timeout"].map(|of| format!("redisson_lock_{of}:{{{}:{bad}}}", stage.name));
    let _: () = stage.redis(&["SET", &keys[0], "text"]).await;
    let error = within(DEADLINE, refused).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    proxy.wait_for_answer(together(NAMES - 1)).await;
    let tries = proxy.count(calls("fair_acquire"));
    assert_eq!(tries, 1, "of the one whose key that is");
    let notes = format!("redlock_fair:{{{}:{bad}}}", stage.name);
    let _: i64 = stage.redis(&["DEL", &keys[0], &keys[1], &notes]).await;
    guards.remove(bad).unlock().await.unwrap();
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    pass_all(waiting).await;
    stage.assert_clean().await;
}
