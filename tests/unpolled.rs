//! A future that waits, is kept, and is not polled: others of its client and of other processes go on.
//!
//! The clock stands still while anything can run.

use std::{fmt, pin::pin, time::Duration};

use redlock_rt::{Client, Kind, Lock, LockOptions, PermitOptions, Quorum, embedded::Engine};
use tests::{DEADLINE, RedisServer, eventually, settle, told};
use tokio::time::{Instant, sleep, timeout};
use tokio_test::{assert_pending, assert_ready, task::Spawn};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const NAME: &str = "kept";

/// A client, and another one of the same server.
fn clients() -> [Client; 2] {
    let engine = Engine::new();
    [(); 2].map(|()| Client::builder().embedded(&engine).build().unwrap())
}

fn wait(wait: Duration) -> LockOptions {
    LockOptions::new().wait(wait)
}

/// Polls a waiter so often, each time until nothing more can run.
async fn kept<F: Future<Output: fmt::Debug>>(waiter: F, polls: usize) -> Spawn<F> {
    let mut waiter = tokio_test::task::spawn(waiter);
    for _ in 0..polls {
        assert_pending!(waiter.poll());
        settle().await;
    }
    waiter
}

/// Others get the lock although the first in the queue is not polled, whoever held it, and however far
/// the first has come. It has its turn when it is polled.
async fn others_go_on<K: Kind>(open: impl Fn(&Client) -> Lock<K>) {
    let [client, other] = clients();
    let [lock, others] = [&client, &other].map(open);
    for (holder, polls) in [(&lock, 1), (&lock, 8), (&others, 1), (&others, 8)] {
        let guard = holder.lock().await.unwrap();
        let own = lock.clone();
        let mut first = kept(async move { own.lock().await }, polls).await;
        guard.unlock().await.unwrap();
        for at in 0..3 {
            let began = Instant::now();
            let second = lock.lock_with(wait(2 * S)).await;
            let second = second.unwrap_or_else(|error| panic!("{polls}, {at}: {}", told(&error)));
            assert!(at == 0 || began.elapsed() < 100 * MS, "once is enough");
            second.unlock().await.unwrap();
        }
        let first = within(&mut first).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        first.unlock().await.unwrap();
        settle().await;
    }
}

/// What a kept waiter returns, now that it is polled.
async fn within<T: fmt::Debug, F>(waiter: &mut Spawn<F>) -> T
where
    F: Future<Output = Result<T, redlock_rt::Error>>,
{
    let done = async {
        loop {
            if let std::task::Poll::Ready(done) = waiter.poll() {
                return done;
            }
            sleep(MS).await;
        }
    };
    timeout(20 * S, done).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_future_that_was_not_polled_held_up_all_others_of_its_client() {
    others_go_on(|client| client.rlock(NAME)).await;
    others_go_on(|client| client.fenced_lock(NAME)).await;
    others_go_on(|client| client.spin_lock(NAME)).await;
    others_go_on(|client| client.read_write_lock(NAME).write_lock()).await;
}

/// Nobody looked at it any more, since it had been passed over before.
#[tokio::test(start_paused = true)]
async fn a_future_that_was_polled_once_more_held_up_the_one_behind_it() {
    let [client, other] = clients();
    let [lock, others] = [&client, &other].map(|client| client.rlock(NAME));
    let guard = others.lock().await.unwrap();
    let mut first = kept(lock.lock(), 8).await;
    let own = lock.clone();
    let second = tokio::spawn(async move { own.lock().await });
    // It is passed over, and then nobody is behind the second.
    sleep(5 * S).await;
    for _ in 0..8 {
        assert_pending!(first.poll());
        settle().await;
    }
    guard.unlock().await.unwrap();
    let second = timeout(3 * S, second).await.unwrap().unwrap().unwrap();
    second.unlock().await.unwrap();
    within(&mut first).await.unlock().await.unwrap();
}

/// The reply to it was read behind that to the thief.
#[tokio::test(start_paused = true)]
async fn a_stolen_lock_was_lost_to_the_acquisition_that_it_was_stolen_from() {
    let [client, _] = clients();
    let lock = client.rlock(NAME);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let mut first = kept(lock.lock(), 1).await;
    sleep(MS).await;
    let thief = lock.steal("stuck").await.unwrap();
    for _ in 0..8 {
        assert_pending!(first.poll());
        settle().await;
    }
    assert!(thief.is_valid());
    thief.unlock().await.unwrap();
    within(&mut first).await.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readers_waited_behind_one_that_was_not_polled() {
    let [client, other] = clients();
    let [lock, others] = [&client, &other].map(|client| client.read_write_lock(NAME));
    let guard = others.write().await.unwrap();
    let first = kept(lock.read(), 8).await;
    guard.unlock().await.unwrap();
    let second = lock.read_with(wait(2 * S)).await.unwrap();
    let mut first = first;
    let first = within(&mut first).await;
    second.unlock().await.unwrap();
    first.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn permits_waited_for_one_that_was_not_polled() {
    let [client, other] = clients();
    let limited = |client: &Client| client.semaphore(NAME).limit(1);
    let [permits, others] = [&client, &other].map(limited);
    let permit = others.acquire().await.unwrap();
    let mut first = kept(permits.acquire(), 8).await;
    permit.release().await.unwrap();
    let options = || PermitOptions::new().wait(2 * S);
    let second = permits.acquire_with(options()).await.unwrap();
    second.release().await.unwrap();
    within(&mut first).await.release().await.unwrap();

    let limited = |client: &Client| client.permit_expirable_semaphore("leased").limit(1);
    let [permits, others] = [&client, &other].map(limited);
    let permit = others.acquire().await.unwrap();
    let mut first = kept(permits.acquire(), 8).await;
    permit.release().await.unwrap();
    let second = permits.acquire_with(options()).await.unwrap();
    second.release().await.unwrap();
    within(&mut first).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_had_opened_stayed_closed_behind_one_that_was_not_polled() {
    let [client, other] = clients();
    let [latch, others] = [&client, &other].map(|client| client.count_down_latch(NAME));
    for polls in [1, 8] {
        assert!(others.try_set_count(1).await.unwrap());
        let mut first = kept(latch.wait(), polls).await;
        let second = kept(latch.wait_with(2 * S), 8).await;
        others.count_down().await.unwrap();
        timeout(3 * S, second).await.unwrap().unwrap();
        latch.wait_with(2 * S).await.unwrap();
        within(&mut first).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_waited_for_a_round_that_was_not_polled() {
    let engines = [(); 3].map(|()| Engine::new());
    let quorum = || {
        let clients = engines
            .iter()
            .map(|engine| Client::builder().embedded(engine).build());
        Quorum::new(clients.map(Result::unwrap)).unwrap()
    };
    let [quorum, other] = [quorum(), quorum()];
    let (lock, others) = (quorum.redlock(NAME), other.redlock(NAME));
    let guard = others.lock().await.unwrap();
    let mut first = kept(lock.lock(), 8).await;
    guard.unlock().await.unwrap();
    let second = lock.lock_with(wait(2 * S)).await.unwrap();
    second.unlock().await.unwrap();
    within(&mut first).await.unlock().await.unwrap();
}

/// Its own wait was over long before.
#[tokio::test(start_paused = true)]
async fn a_wait_that_was_over_held_up_those_behind_it() {
    let [client, other] = clients();
    let (lock, others) = (client.rlock(NAME), other.rlock(NAME));
    let guard = others.lock().await.unwrap();
    let mut first = kept(lock.lock_with(wait(S)), 8).await;
    let behind = lock.clone();
    let second = tokio::spawn(async move { behind.lock_with(wait(5 * S)).await });
    sleep(2 * S).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(freed.elapsed() < S, "{:?}", freed.elapsed());
    let error = assert_ready!(first.poll()).unwrap_err();
    assert!(error.is_timed_out(), "{}", told(&error));
    second.unlock().await.unwrap();
}

/// Redis answers, and nobody holds the lock.
#[tokio::test(start_paused = true)]
async fn who_waited_behind_a_future_that_was_not_polled_was_told_that_redis_is_silent() {
    let [client, other] = clients();
    let (lock, others) = (client.rlock(NAME), other.rlock(NAME));
    for (holder, polls) in [(&lock, 1), (&lock, 8), (&others, 1), (&others, 8)] {
        let guard = holder.lock().await.unwrap();
        let first = kept(lock.lock(), polls).await;
        guard.unlock().await.unwrap();
        settle().await;
        let error = lock.lock_with(wait(400 * MS)).await.unwrap_err();
        let text = told(&error);
        assert!(
            error.is_timed_out() && text.contains("is not polled"),
            "{text}"
        );
        drop(first);
        settle().await;
    }
}

/// Whoever is polled keeps its place.
#[tokio::test(start_paused = true)]
async fn waiters_that_are_polled_are_served_in_the_order_of_their_coming() {
    let [client, other] = clients();
    let (lock, others) = (client.rlock(NAME), other.rlock(NAME));
    let guard = others.lock().await.unwrap();
    let stuck: Vec<_> = [kept(lock.lock(), 8).await, kept(lock.lock(), 1).await].into();
    let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..4 {
        let (lock, told) = (lock.clone(), told.clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            told.send(at).unwrap();
            guard.unlock().await.unwrap();
        });
        settle().await;
    }
    sleep(30 * S).await;
    guard.unlock().await.unwrap();
    for at in 0..4 {
        let served = timeout(2 * S, order.recv()).await;
        assert_eq!(served.expect("two are passed over"), Some(at));
    }
    drop(stuck);
}

/// Told that it was next, by a holder in another process.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_that_was_not_polled_held_up_all_processes() {
    let [client, other] = clients();
    let (lock, others) = (client.fair_lock(NAME), other.fair_lock(NAME));
    let guard = others.lock().await.unwrap();
    fair_others_go_on(&lock, &others, guard).await;
}

/// Given the lock by a release of its own process.
#[tokio::test(start_paused = true)]
async fn a_fair_lock_given_to_a_waiter_that_was_not_polled_was_taken_for_a_lease() {
    let [client, other] = clients();
    let (lock, others) = (client.fair_lock(NAME), other.fair_lock(NAME));
    let guard = lock.lock().await.unwrap();
    fair_others_go_on(&lock, &others, guard).await;
}

async fn fair_others_go_on(
    lock: &Lock<redlock_rt::Fair>,
    others: &Lock<redlock_rt::Fair>,
    guard: redlock_rt::FairLockGuard,
) {
    let mut first = kept(lock.lock(), 8).await;
    let behind = others.clone();
    let second = tokio::spawn(async move { behind.lock().await });
    sleep(S).await;
    assert_eq!(lock.queue_len().await.unwrap(), 2);
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    let second = timeout(8 * S, second).await.unwrap().unwrap().unwrap();
    assert!(
        freed.elapsed() >= 5 * S,
        "within the waiter time-out it keeps its place"
    );
    // The first enters again, and is not the holder by what it was given before.
    assert!(first.is_woken());
    for _ in 0..8 {
        assert_pending!(first.poll());
        settle().await;
    }
    assert_eq!(lock.queue_len().await.unwrap(), 1);
    assert!(second.is_valid());
    second.unlock().await.unwrap();
    let first = within(&mut first).await;
    assert!(others.try_lock().await.unwrap().is_none());
    first.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.queue_len().await.unwrap(), 0);
}

/// The future is polled, and Redis does not answer: that is no reason to withdraw it.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_that_is_polled_keeps_its_place() {
    let [client, other] = clients();
    let (lock, others) = (client.fair_lock(NAME), other.fair_lock(NAME));
    let guard = others.lock().await.unwrap();
    let first = lock.clone();
    let first = tokio::spawn(async move { first.lock().await.map(|_| Instant::now()) });
    settle().await;
    let mut second = pin!(others.lock());
    assert!(timeout(60 * S, &mut second).await.is_err());
    guard.unlock().await.unwrap();
    let second = second.await.unwrap();
    assert!(first.await.unwrap().unwrap() <= Instant::now());
    second.unlock().await.unwrap();
}

/// The thread of its client goes on, so its heartbeats do.
#[tokio::test]
async fn a_fair_waiter_whose_thread_hung_held_up_other_processes() {
    let server = RedisServer::start();
    let url = server.url();
    let other = Client::connect(&url).await.unwrap().fair_lock(NAME);
    let held = other.lock().await.unwrap();
    let (goes_on, hangs) = std::sync::mpsc::channel::<()>();
    let (hanging, hung_by_now) = tokio::sync::oneshot::channel();
    let hung = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let builder = Client::builder().url(&url).waiter_timeout(S / 2);
            let client = builder.dedicated_thread(true).connect().await.unwrap();
            let lock = client.fair_lock(NAME);
            let waiter = tokio::spawn({
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().unlock().await }
            });
            eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
            hanging.send(()).unwrap();
            hangs.recv().unwrap();
            waiter.await.unwrap().unwrap();
        });
    });
    hung_by_now.await.unwrap();
    let lock = other.clone();
    let second = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || other.queue_len().await.unwrap() == 2).await;
    held.unlock().await.unwrap();
    let second = tests::within(DEADLINE, second).await.unwrap();
    goes_on.send(()).unwrap();
    second.unlock().await.unwrap();
    hung.join().unwrap();
}
