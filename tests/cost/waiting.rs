//! The cost of waiting: one task of a process asks, however many wait.

use std::time::{Duration, Instant};

use redlock_rt::RLockGuard;
use tests::{CALL, eventually, lock_and_unlock, within};
use tokio::task::{JoinHandle, JoinSet};

use crate::{Counted, DEADLINE, NEVER, counts};

/// Longer than the pauses within a test.
const LINGER: Duration = Duration::from_millis(1000);
const TASKS: usize = 1_000;

impl Counted {
    fn waiter(&self) -> JoinHandle<RLockGuard> {
        let lock = self.lock();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    }

    async fn waiting(&self, count: usize) {
        eventually(DEADLINE, async || self.client.stats().waiting == count).await;
    }

    async fn sent_of(&mut self, command: &str) -> usize {
        self.sent().await.get(command).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn a_cold_wait_is_three_tries_and_a_subscription() {
    let mut counted = Counted::start_with(|builder| builder.linger(LINGER)).await;
    counted.occupy().await;
    let waiter = counted.waiter();
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    counted.proxy.wait_for_count(CALL, 3).await;
    // The first try is of two commands: the name was not known to be taken.
    let asleep = counts([(CALL, 3), ("SUBSCRIBE", 1)]);
    assert_eq!(counted.sent().await, asleep);
    counted.vacate().await;
    let guard = within(DEADLINE, waiter).await.unwrap();
    let served = counts([(CALL, 4), ("SUBSCRIBE", 1)]);
    assert_eq!(counted.sent().await, served);
    guard.unlock().await.unwrap();
    counted.end().await;
}

#[tokio::test]
async fn a_wait_of_a_subscribed_process_is_two_tries() {
    let mut counted = Counted::start_with(|builder| builder.linger(LINGER)).await;
    counted.occupy().await;
    let first = counted.waiter();
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    // From then on it is known to be taken.
    counted.proxy.wait_for_answer("EVALSHA").await;
    counted.vacate().await;
    let guard = within(DEADLINE, first).await.unwrap();
    guard.unlock().await.unwrap();
    for _ in 0..3 {
        counted.occupy().await;
        counted.mark().await;
        let waiter = counted.waiter();
        counted.proxy.wait_for(CALL).await;
        counted.waiting(1).await;
        assert_eq!(counted.sent().await, counts([(CALL, 1)]), "asleep");
        counted.vacate().await;
        let guard = within(DEADLINE, waiter).await.unwrap();
        assert_eq!(counted.sent().await, counts([(CALL, 2)]));
        guard.unlock().await.unwrap();
    }
    counted.end().await;
}

/// The client itself holds the lock, so a waiter does not try before it is subscribed. What it costs
/// if the guard is handed over inside the process is counted in `hand_over/local.rs`, without a clock.
#[tokio::test]
async fn waiting_for_a_guard_of_the_same_client_begins_with_the_subscription() {
    let mut counted = Counted::start_with(|builder| builder.linger(LINGER).hand_over(None)).await;
    let guard = counted.lock().lock().await.unwrap();
    counted.mark().await;
    let waiter = counted.waiter();
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    counted.proxy.wait_for_count(CALL, 2).await;
    let asleep = counts([(CALL, 2), ("SUBSCRIBE", 1)]);
    assert_eq!(counted.sent().await, asleep);
    counted.mark().await;
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 2)]));
    // If it is already subscribed, it sends no command.
    counted.mark().await;
    let waiter = counted.waiter();
    counted.waiting(1).await;
    assert_eq!(counted.sent().await, counts([]));
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert_eq!(counted.sent().await, counts([(CALL, 2)]));
    guard.unlock().await.unwrap();
    counted.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiting_tasks_are_one_contender() {
    let evals = thousand_turns(None).await;
    let least = 2 * TASKS;
    assert!((least..=2 * least).contains(&evals), "{evals}");
}

/// Each chain of hand-overs is a release and an acquisition, and lasts until its time is over, or until
/// a try is under way when a guard ends: one that was made in vain before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_that_hand_over_cost_a_release_and_an_acquisition_for_each_chain() {
    // The longest time that is allowed, so there are few chains.
    let evals = thousand_turns(Some(Duration::from_secs(1))).await;
    assert!(evals < TASKS / 10, "{evals}");
}

/// A thousand tasks wait and take one turn each; returns the calls from the first turn on.
async fn thousand_turns(hand_over: Option<Duration>) -> usize {
    let mut counted =
        Counted::start_with(|builder| builder.linger(LINGER).hand_over(hand_over)).await;
    counted.occupy().await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = counted.lock();
        tasks.spawn(async move { lock_and_unlock(&lock).await });
    }
    counted.waiting(TASKS).await;
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    counted.proxy.wait_for_count(CALL, 3).await;
    let asleep = counts([(CALL, 3), ("SUBSCRIBE", 1)]);
    assert_eq!(counted.sent().await, asleep);

    counted.mark().await;
    counted.vacate().await;
    within(3 * DEADLINE, tasks.join_all()).await;
    let sent = counted.sent().await;
    let evals = sent[CALL];
    assert_eq!(sent.len(), 1, "no other subscription: {sent:?}");
    assert_eq!(counted.client.stats().waiting, 0);
    counted.end().await;
    evals
}

/// The same limit for hand-overs among processes: each process that is woken tries once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_between_processes_costs_each_a_try() {
    const TASKS: usize = 200;
    let mut counted = Counted::start().await;
    let other = redlock_rt::Client::builder()
        .url(&counted.proxy.url())
        .poll_interval(NEVER)
        .connect()
        .await
        .unwrap();
    counted.occupy().await;
    let mut tasks = JoinSet::new();
    for index in 0..TASKS {
        let client = [&counted.client, &other][index % 2];
        let lock = client.rlock(&counted.name);
        tasks.spawn(async move { lock_and_unlock(&lock).await });
    }
    counted.waiting(TASKS / 2).await;
    eventually(DEADLINE, async || other.stats().waiting == TASKS / 2).await;
    counted.proxy.wait_for_count("SUBSCRIBE", 2).await;
    counted.proxy.wait_for_count("EVALSHA", 4).await;
    counted.mark().await;
    counted.vacate().await;
    within(3 * DEADLINE, tasks.join_all()).await;
    let evals = counted.sent_of(CALL).await;
    println!("{evals} commands for {TASKS} hand-overs of two processes");
    assert!(evals <= 4 * TASKS, "{evals}");
    eventually(DEADLINE, async || other.stats().subscriptions == 0).await;
    counted.end().await;
}

#[tokio::test]
async fn a_subscription_lingers_and_then_ends() {
    let mut counted = Counted::start_with(|builder| builder.linger(LINGER)).await;
    let mut left = Instant::now();
    // Two waits one after the other; in between no task waits.
    for round in 0..2 {
        counted.occupy().await;
        let waiter = counted.waiter();
        if round == 0 {
            counted.proxy.wait_for_answer("SUBSCRIBE").await;
        }
        counted.waiting(1).await;
        left = Instant::now();
        counted.vacate().await;
        let guard = within(DEADLINE, waiter).await.unwrap();
        guard.unlock().await.unwrap();
        assert_eq!(counted.client.stats().subscriptions, 1);
    }
    counted.proxy.wait_for("UNSUBSCRIBE").await;
    let lingered = left.elapsed();
    assert!(lingered >= LINGER, "{lingered:?}");
    eventually(DEADLINE, async || counted.client.stats().subscriptions == 0).await;
    assert_eq!(counted.sent_of("SUBSCRIBE").await, 1);
    assert_eq!(counted.sent_of("UNSUBSCRIBE").await, 1);

    // The next waiter has to subscribe again.
    counted.mark().await;
    counted.occupy().await;
    let waiter = counted.waiter();
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    counted.vacate().await;
    let guard = within(DEADLINE, waiter).await.unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(counted.sent_of("SUBSCRIBE").await, 1);
    counted.end().await;
}

#[tokio::test]
async fn without_a_linger_a_subscription_ends_with_its_last_waiter() {
    let mut counted = Counted::start_with(|builder| builder.linger(Duration::ZERO)).await;
    counted.occupy().await;
    let waiters = [counted.waiter(), counted.waiter()];
    counted.proxy.wait_for_answer("SUBSCRIBE").await;
    counted.waiting(2).await;
    for waiter in waiters {
        assert_eq!(counted.sent_of("UNSUBSCRIBE").await, 0);
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    within(LINGER, counted.proxy.wait_for("UNSUBSCRIBE")).await;
    assert_eq!(counted.sent_of("UNSUBSCRIBE").await, 1);
    counted.vacate().await;
    counted.end().await;
}
