//! Dead waiters delay others by seconds only.

use std::time::{Duration, Instant};

use redlock_rt::{Client, LockOptions, Shutdown, embedded::Engine};
use tests::{Driver, RedisServer, calls, eventually, within};

use crate::stage::{DEADLINE, NEVER, Stage, pass, pass_all, waiter};

/// The delay of the scheduler, and of a beat that was just sent.
/// How late an event may be if threads have to wait for a processor.
const LATE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_waiter_delays_those_behind_it_by_the_waiter_timeout() {
    let alive = Duration::from_secs(2);
    let stage = Stage::open("fair-killed").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let mut driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
    driver
        .ok(&format!("connect {} 30000 waiter_timeout=2000", stage.url))
        .await;
    let _dead = driver.send(&format!("fair.lock {} dead", stage.name));
    stage.queued(1).await;
    let waiting = waiter(&lock);
    stage.queued(2).await;
    driver.kill();
    let killed = Instant::now();
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    let delay = killed.elapsed();
    // Its client counts as alive for this time; then one of our beats, at a third of it, finds out.
    assert!(delay < alive + alive / 3 + LATE, "{delay:?}");
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_finds_that_the_first_waiters_are_dead() {
    let alive = Duration::from_secs(2);
    let stage = Stage::open("fair-dead-heads").await;
    let holder = stage.client().fair_lock(&stage.name);
    let guard = holder.lock().await.unwrap();
    let mut driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
    driver
        .ok(&format!("connect {} 30000 waiter_timeout=2000", stage.url))
        .await;
    let dead: Vec<_> = (0..3)
        .map(|owner| driver.send(&format!("fair.lock {} dead{owner}", stage.name)))
        .collect();
    stage.queued(3).await;
    // Beats are rare, so the release must find out.
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let waiting = waiter(&client.fair_lock(&stage.name));
    stage.queued(4).await;
    driver.kill();
    drop(dead);
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let mut uuids: Vec<String> = stage.redis(&["HKEYS", &key]).await;
    uuids.retain(|field| field.len() == client.uuid().len());
    assert_eq!(uuids.len(), 2, "two clients: {uuids:?}");
    tokio::time::sleep(alive * 2).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    assert!(released.elapsed() < LATE, "{:?}", released.elapsed());
    guard.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The lock is free, the next waiter does not come, and no client asks repeatedly.
#[tokio::test]
async fn nobody_spins_behind_a_head_that_does_not_come() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-spin").await;
    let holder = stage.client().fair_lock(&stage.name);
    let guard = holder.lock().await.unwrap();
    let java = "00000000-0000-0000-0000-000000000000:1";
    stage.plant(java, 4_000.0).await;
    stage.url = proxy.url();
    let alive = Duration::from_millis(1500);
    let client = stage.client_with(|builder| {
        builder
            .waiter_timeout(alive)
            .poll_interval(Duration::from_secs(1))
    });
    let lock = client.fair_lock(&stage.name);
    let waiting: Vec<_> = (0..50).map(|_| waiter(&lock)).collect();
    stage.queued(51).await;
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.mark();
    guard.unlock().await.unwrap();
    // Redisson's deadline of the head, after which the others are served.
    let mut waiting = waiting.into_iter();
    let guard = within(DEADLINE, waiting.next().unwrap())
        .await
        .unwrap()
        .unwrap();
    let counts = proxy.counts();
    let calls = counts.get("EVALSHA").copied().unwrap_or_default();
    // A beat every half second for four seconds, and the tries of the next waiter after that.
    assert!(calls <= 14, "{counts:?}");
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    stage.assert_clean().await;
}

/// A process that was paused for longer than the waiter time-out loses its place, and queues again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_process_queues_again() {
    let stage = Stage::open("fair-paused").await;
    let alive = Duration::from_millis(900);
    let client = stage.client_with(|builder| builder.waiter_timeout(alive));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let mut driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
    driver
        .ok(&format!("connect {} 30000 waiter_timeout=900", stage.url))
        .await;
    let paused = driver.send(&format!("fair.lock {} paused", stage.name));
    stage.queued(1).await;
    let waiting = waiter(&lock);
    stage.queued(2).await;
    driver.pause();
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    assert!(stage.queue().await.is_empty(), "it has lost its place");
    driver.resume();
    stage.queued(1).await;
    guard.unlock().await.unwrap();
    paused.answer_within(DEADLINE).await.ok();
    driver
        .ok(&format!("fair.unlock {} paused", stage.name))
        .await;
    driver.close_stdin();
    driver.wait_exit();
    stage.assert_clean().await;
}

/// The waiter learned its turn only from beats, which came every third of its waiter time-out.
#[tokio::test(start_paused = true)]
async fn after_a_crash_a_patient_fair_waiter_slept_for_twenty_minutes() {
    let engine = Engine::new();
    let patient = || {
        let builder = Client::builder().embedded(&engine);
        builder.waiter_timeout(Duration::from_secs(3600)).build()
    };
    let (holder, crashes, client) = (patient().unwrap(), patient().unwrap(), patient().unwrap());
    let guard = holder.fair_lock("crash").lock().await.unwrap();
    let queued = async |count| {
        let lock = holder.fair_lock("crash");
        within(DEADLINE, async {
            while lock.queue_len().await.unwrap() != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let first = crashes.fair_lock("crash");
    let lease = LockOptions::new()
        .lease(Duration::from_secs(10))
        .renew(false);
    let first = tokio::spawn(async move { first.lock_with(lease).await });
    queued(1).await;
    let second = client.fair_lock("crash");
    let second = tokio::spawn(async move { second.lock().await });
    queued(2).await;
    guard.unlock().await.unwrap();
    let lost = within(DEADLINE, first).await.unwrap().unwrap();
    crashes.shutdown(Shutdown::Abandon).await.unwrap();
    let guard = within(Duration::from_secs(60), second).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
    drop(lost);
}

/// Each heartbeat was refused, so a release took all waiters for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_live_waiters_lost_their_places() {
    let server = RedisServer::start();
    let stage = Stage::on(&server, "fair-full").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(LATE));
    let guard = stage.client().fair_lock(&stage.name).lock().await.unwrap();
    let waiting = waiter(&client.fair_lock(&stage.name));
    stage.queued(1).await;
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let key = format!("redlock_fair:{{{}}}", stage.name);
    let alive = async || stage.redis::<String>(&["HGET", &key, client.uuid()]).await;
    let before = alive().await;
    eventually(DEADLINE, async || alive().await != before).await;
    guard.unlock().await.unwrap();
    stage.queued(1).await;
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    pass(waiting).await;
    stage.assert_clean().await;
}
