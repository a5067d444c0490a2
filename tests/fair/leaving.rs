//! A waiter that stops waiting leaves the queue at once, and the next waiter is woken.

use std::time::Duration;

use redlock_rt::{FairLock, FairLockGuard, LockOptions, Owner, Shutdown};
use tests::{Proxy, RedisServer, calls, eventually, shared_server, within};

use crate::stage::{DEADLINE, NEVER, Stage, pass, pass_all, wait, waiter};

#[tokio::test]
async fn waiters_of_a_client_that_is_shut_down_leave_the_queue() {
    let stage = Stage::open("fair-shutdown").await;
    let (ours, others) = (stage.client(), stage.client());
    let guard = others.fair_lock(&stage.name).lock().await.unwrap();
    let lock = ours.fair_lock(&stage.name);
    let waiting: Vec<_> = (0..5).map(|_| waiter(&lock)).collect();
    stage.queued(5).await;
    ours.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert!(stage.queue().await.is_empty());
    for task in waiting {
        let error = within(DEADLINE, task).await.unwrap().unwrap_err();
        assert!(error.is_shut_down(), "{error}");
    }
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The waiter is queued, but its caller does not know that.
#[tokio::test]
async fn a_waiter_whose_first_answer_was_lost_leaves_the_queue() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-lost").await;
    let guard = stage.client().fair_lock(&stage.name).lock().await.unwrap();
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.response_timeout(Duration::from_millis(300)));
    let lock = client.fair_lock(&stage.name);
    lock.is_locked().await.unwrap();
    proxy.swallow_reply(calls("fair_acquire"), 1);
    let waiting = waiter(&lock);
    stage.queued(1).await;
    waiting.abort();
    stage.queued(0).await;
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// A place in the queue has no lease.
#[tokio::test]
async fn a_waiter_dropped_in_an_outage_leaves_the_queue_after_it() {
    let server = RedisServer::start();
    let stage = Stage::on(&server, "fair-outage").await;
    let client = stage.client_with(|builder| {
        builder
            .lease(Duration::from_secs(1))
            .waiter_timeout(NEVER)
            .response_timeout(Duration::from_millis(200))
            .connect_timeout(Duration::from_millis(200))
    });
    let holder = stage.client();
    let guard = holder.fair_lock(&stage.name).lock().await.unwrap();
    let waiting = waiter(&client.fair_lock(&stage.name));
    stage.queued(1).await;
    server.pause();
    waiting.abort();
    let aborted = std::time::Instant::now();
    // Longer than a lease and all margins.
    eventually(DEADLINE, async || {
        aborted.elapsed() > Duration::from_millis(2500)
    })
    .await;
    server.resume();
    stage.queued(0).await;
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The queue was deleted, or the server was flushed.
#[tokio::test]
async fn waiters_that_are_not_queued_any_more_queue_again() {
    let stage = Stage::open("fair-flushed").await;
    let short = Duration::from_millis(300);
    let client = stage.client_with(|builder| builder.waiter_timeout(short));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting: Vec<_> = (0..120).map(|_| waiter(&lock)).collect();
    stage.queued(120).await;
    let keys = [stage.queue_key(), stage.deadlines_key()];
    let _: i64 = stage.redis(&["DEL", &keys[0], &keys[1]]).await;
    stage.queued(120).await;
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_wait_in_vain_for_a_dead_redis_is_unavailable() {
    let server = RedisServer::start();
    let stage = Stage::on(&server, "fair-unavailable").await;
    let client = stage.client_with(|builder| {
        builder
            .waiter_timeout(Duration::from_millis(300))
            .response_timeout(Duration::from_millis(200))
    });
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    // Behind another waiter, so that it has no timer.
    let first = waiter(&lock);
    stage.queued(1).await;
    let options = LockOptions::new().wait(Duration::from_secs(2));
    let second = wait(&lock, &Owner::new(), options);
    stage.queued(2).await;
    server.pause();
    let error = within(DEADLINE, second).await.unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    server.resume();
    drop(guard);
    pass(first).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn without_the_right_to_subscribe_waiters_hear_from_their_beats() {
    let server = shared_server();
    let mut stage = Stage::on(&server, "fair-acl").await;
    let user = stage.name.replace(':', "-");
    let rules = ["ACL", "SETUSER", &user, "on", ">secret", "~*", "+@all"];
    let _: () = stage.redis(&[&rules[..], &["-subscribe"]].concat()).await;
    let own = stage.url.clone();
    stage.url = own.replace("redis://", &format!("redis://{user}:secret@"));
    let short = Duration::from_millis(300);
    let client = stage.client_with(|builder| builder.waiter_timeout(short));
    stage.url = own;
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 2).await;
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    let _: i64 = stage.redis(&["ACL", "DELUSER", &user]).await;
    eventually(DEADLINE, async || client.stats().subscriptions == 0).await;
    stage.assert_clean().await;
}

/// A lock that another client holds, and a handle of a client behind the proxy, whose beats come
/// five times a second.
async fn held_behind(
    server: &RedisServer,
    proxy: &Proxy,
    what: &str,
) -> (Stage, FairLockGuard, FairLock) {
    let mut stage = Stage::on(server, what).await;
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let guard = holder.fair_lock(&stage.name).lock().await.unwrap();
    stage.url = proxy.url();
    let alive = Duration::from_millis(600);
    let ours = stage.client_with(|builder| builder.waiter_timeout(alive));
    let lock = ours.fair_lock(&stage.name);
    (stage, guard, lock)
}

/// Once, its leave failed, and beats for its client's other waiters kept it alive. It stayed next as
/// long as any of them waited, and no waiter got the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_a_task_blocked_everybody() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (stage, guard, lock) = held_behind(&server, &proxy, "fair-phantom").await;
    let cancelled = waiter(&lock);
    stage.queued(1).await;
    proxy.wait_for_answer(calls("fair_beat")).await;
    let waiting = waiter(&lock);
    stage.queued(2).await;
    proxy.answer(calls("fair_release"), "-NOPERM not now\r\n", 1);
    cancelled.abort();
    // The leave is refused by now, or soon: the next waiter in the queue has no task.
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

/// As above, without announcements: each beat finds one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_tasks_are_taken_out_one_after_the_other() {
    const GONE: usize = 20;
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (stage, guard, lock) = held_behind(&server, &proxy, "fair-phantoms").await;
    let waiting: Vec<_> = (0..GONE).map(|_| waiter(&lock)).collect();
    stage.queued(GONE).await;
    let last = waiter(&lock);
    stage.queued(GONE + 1).await;
    proxy.answer(calls("fair_release"), "-NOPERM not now\r\n", GONE);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    // The lock is held, so no waiter is woken, and only beats show the next waiter.
    stage.queued(1).await;
    guard.unlock().await.unwrap();
    pass(last).await;
    stage.assert_clean().await;
}

/// The first script of this lock at the proxy, which is a try.
fn a_try(proxy: &Proxy, name: &str) -> Vec<String> {
    let frames = proxy.frames();
    let of = |frame: &&tests::Frame| frame.is_call() && frame.text(3) == name;
    let call = frames.iter().find(of);
    call.map_or_else(Vec::new, |frame| {
        (0..frame.args.len()).map(|at| frame.text(at)).collect()
    })
}

/// CLIENT KILL is forbidden, so the call may run after the leave: an entry in the queue without a
/// waiter.
async fn a_call_that_queues_after_its_leave(waits_besides: bool) {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-late").await;
    let alive = Duration::from_millis(600);
    let others = stage.client_with(|builder| builder.waiter_timeout(alive));
    let held = others.fair_lock(&stage.name);
    let guard = held.lock().await.unwrap();
    stage.url = proxy.url();
    let ours = stage.client_with(|builder| builder.waiter_timeout(alive));
    let lock = ours.fair_lock(&stage.name);
    let cancelled = waiter(&lock);
    stage.queued(1).await;
    let call = a_try(&proxy, &stage.name);
    cancelled.abort();
    stage.queued(0).await;
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    let _: redis::Value = stage.redis(&words).await;
    let late = stage.queue().await;
    assert_eq!(late.len(), 1);
    // Its client sends further beats for another waiter, or does not.
    let waiting = match waits_besides {
        true => waiter(&lock),
        false => waiter(&held),
    };
    // The late entry may be removed as soon as the other waiter is queued.
    eventually(DEADLINE, async || {
        let queued = stage.queue().await;
        match queued.iter().any(|owner| *owner != late[0]) {
            true => Ok(()),
            false => Err(format!("{queued:?} are queued")),
        }
    })
    .await;
    guard.unlock().await.unwrap();
    pass(waiting).await;
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_queues_after_its_leave_blocks_nobody_while_its_client_waits() {
    a_call_that_queues_after_its_leave(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_queues_after_its_leave_blocks_nobody_while_another_waits() {
    a_call_that_queues_after_its_leave(false).await;
}

/// Once, heartbeats started with the subscription, and no wait was long enough for another beat. So
/// the entry stayed next as long as its client continued to ask.
async fn a_waiter_without_a_task_and_short_waits(may_subscribe: bool) {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-short").await;
    let rules = match may_subscribe {
        true => "+subscribe",
        false => "-subscribe",
    };
    let user = [
        "ACL", "SETUSER", "short", "on", ">pw", "~*", "&*", "+@all", rules,
    ];
    let _: () = stage.redis(&user).await;
    let others = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let guard = others.fair_lock(&stage.name).lock().await.unwrap();
    let elsewhere = format!("{}:elsewhere", stage.name);
    let other_guard = others.fair_lock(&elsewhere).lock().await.unwrap();
    stage.url = proxy.url().replace("redis://", "redis://short:pw@");
    let ours = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let lock = ours.fair_lock(&stage.name);
    // During the whole test the client is subscribed, or knows that it may not subscribe.
    let long = waiter(&ours.fair_lock(&elsewhere));
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.mark();
    let cancelled = waiter(&lock);
    stage.queued(1).await;
    let call = a_try(&proxy, &stage.name);
    cancelled.abort();
    stage.queued(0).await;
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    let _: redis::Value = stage.redis(&words).await;
    stage.queued(1).await;
    guard.unlock().await.unwrap();
    let short = || LockOptions::new().wait(Duration::from_millis(300));
    let served = async {
        loop {
            match lock.lock_with(short()).await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_timed_out(), "{error}"),
            }
        }
    };
    let guard = within(DEADLINE, served).await;
    guard.unlock().await.unwrap();
    long.abort();
    other_guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_a_task_is_found_however_short_the_waits_are() {
    a_waiter_without_a_task_and_short_waits(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_a_task_is_found_without_the_right_to_subscribe() {
    a_waiter_without_a_task_and_short_waits(false).await;
}
