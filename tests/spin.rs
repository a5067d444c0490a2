//! SpinLock: how often a waiter tries, when it gives up, and that nothing is announced.
//!
//! Counted on in-process streams, with a paused clock.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlock_rt::{
    Backoff, Client, Error, ErrorKind, LockOptions, SpinLock, Unlocked, embedded::Engine,
};
use tests::{
    CALL, DEADLINE, Monitor, Proxy, Wires, ask, assert_clean, connection_over, eventually,
    lock_and_unlock, shared_server, unique, within,
};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// A client whose commands are counted, and a lock of another owner.
struct Counted {
    client: Client,
    lock: SpinLock,
    wires: Wires,
    redis: MultiplexedConnection,
}

impl Counted {
    async fn start() -> Self {
        let engine = Engine::new();
        let wires = Wires::to_engine(&engine);
        let client = wires.builder().poll_interval(LONG).connect();
        let client = client.await.unwrap();
        let lock = client.spin_lock("n");
        let counted = Self {
            client,
            lock,
            wires,
            redis: connection_over(engine.connect()).await.unwrap(),
        };
        counted.occupy(LONG).await;
        // Loads the script, so that a try is one command.
        assert!(counted.lock.try_lock().await.unwrap().is_none());
        counted.wires.mark();
        counted
    }

    async fn occupy(&self, lease: Duration) {
        let millis = lease.as_millis().to_string();
        let (mut set, mut expire) = (redis::cmd("HSET"), redis::cmd("PEXPIRE"));
        for command in [
            set.arg(&["n", "somebody:1", "1"]),
            expire.arg(&["n", &millis]),
        ] {
            command.exec_async(&mut self.redis.clone()).await.unwrap();
        }
    }

    async fn vacate(&self) {
        ask::<()>(&self.redis, &["DEL", "n"]).await;
    }

    /// The number of tries since the last mark; asserts that nothing else was sent.
    fn tries(&self) -> usize {
        let mut counts = self.wires.counts();
        let tries = counts.remove("EVALSHA").unwrap_or_default();
        assert!(counts.is_empty(), "{counts:?}");
        tries
    }
}

#[track_caller]
fn assert_gave_up<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(error.name(), Some("n"));
}

/// The clock jumps to timers, which may be a millisecond late.
#[track_caller]
fn assert_took(since: Instant, expected: Duration) {
    let took = since.elapsed();
    assert!(
        took >= expected && took < expected + 20 * MS,
        "{took:?}, not {expected:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_constant_back_off_tries_so_often_and_gives_up() {
    let counted = Counted::start().await;
    for retries in [0, 1, 5] {
        let backoff = Backoff::constant(50 * MS).max_retries(retries);
        let start = Instant::now();
        let outcome = counted.lock.clone().backoff(backoff).lock().await;
        assert_took(start, 50 * MS * retries);
        let error = outcome.as_ref().unwrap_err().to_string();
        assert!(
            error.contains("all retries of the back-off were refused"),
            "{error}"
        );
        assert_gave_up(outcome);
        assert_eq!(counted.tries(), 1 + retries as usize);
        counted.wires.mark();
    }
    assert_eq!(counted.client.stats().names, 0);
}

#[tokio::test(start_paused = true)]
async fn an_exponential_back_off_doubles_up_to_the_longest() {
    let counted = Counted::start().await;
    // 20, 40, 80, 160, 200, 200.
    let doubles = Backoff::exponential(20 * MS, 200 * MS).max_retries(6);
    let start = Instant::now();
    assert_gave_up(
        counted
            .lock
            .clone()
            .backoff(doubles.jitter(0.0))
            .lock()
            .await,
    );
    assert_took(start, 700 * MS);
    assert_eq!(counted.tries(), 7);
    // With full jitter each pause may be twice as long.
    let start = Instant::now();
    assert_gave_up(counted.lock.clone().backoff(doubles).lock().await);
    let took = start.elapsed();
    assert!(took >= 700 * MS && took <= 1420 * MS, "{took:?}");
}

/// The default: 1 to 128 ms, plus up to the same time.
#[tokio::test(start_paused = true)]
async fn the_default_is_redissons() {
    let counted = Counted::start().await;
    let wait = Duration::from_secs(60);
    let start = Instant::now();
    let options = LockOptions::new().wait(wait);
    assert_gave_up(counted.lock.lock_with(options).await);
    assert_took(start, wait);
    let tries = counted.tries();
    // 192 ms on average.
    assert!((270..=360).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_bounds_the_tries_too() {
    let counted = Counted::start().await;
    let patient = Backoff::constant(30 * MS).max_retries(1000);
    let lock = counted.lock.clone().backoff(patient);
    let start = Instant::now();
    let options = LockOptions::new().wait(100 * MS);
    assert_gave_up(lock.lock_with(options).await);
    assert_took(start, 100 * MS);
    assert_eq!(counted.tries(), 4, "at 0, 30, 60 and 90 ms");
    // Tried once, without a pause.
    counted.wires.mark();
    let start = Instant::now();
    let at_once = LockOptions::new().wait(Duration::ZERO);
    let error = lock.lock_with(at_once).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_took(start, Duration::ZERO);
    assert_eq!(counted.tries(), 2);
}

/// The head of the local queue tries for all waiters; each gives up by its own count.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_another_gives_up_after_its_own_retries() {
    let counted = Counted::start().await;
    let (patient, lock) = (
        counted.lock.clone().backoff(Backoff::constant(40 * MS)),
        counted.lock.clone(),
    );
    let head = tokio::spawn(async move { patient.lock().await.unwrap() });
    eventually(DEADLINE, async || counted.client.stats().waiting == 1).await;
    let start = Instant::now();
    let thrice = Backoff::constant(100 * MS).max_retries(3);
    let lock = lock.backoff(thrice);
    let (behind, third) = tokio::join!(lock.lock(), lock.lock_with(LockOptions::new().wait(LONG)),);
    assert_took(start, 300 * MS);
    assert_gave_up(behind);
    assert_gave_up(third);
    let tries = counted.tries();
    assert!((7..=9).contains(&tries), "{tries} by the head alone");
    assert!(!head.is_finished());
    counted.vacate().await;
    let guard = head.await.unwrap();
    guard.unlock().await.unwrap();
}

/// Retries behind a hold of the same client are counted, but not sent.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_its_own_client_gives_up_after_its_retries() {
    let counted = Counted::start().await;
    counted.vacate().await;
    let guard = counted.lock.lock().await.unwrap();
    counted.wires.mark();
    let thrice = Backoff::constant(100 * MS).max_retries(3);
    let lock = counted.lock.clone().backoff(thrice);
    let start = Instant::now();
    assert_gave_up(lock.lock().await);
    assert_took(start, 300 * MS);
    let options = LockOptions::new().wait(150 * MS);
    assert_gave_up(lock.lock_with(options).await);
    assert_took(start, 450 * MS);
    assert_eq!(counted.tries(), 0);

    // The release wakes the waiter, which keeps its remaining retries.
    let waits = {
        let lock = lock.clone();
        tokio::spawn(async move { (lock.lock().await, Instant::now()) })
    };
    tokio::time::sleep(250 * MS).await;
    let freed = Instant::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let (guard, taken) = waits.await.unwrap();
    assert!(taken - freed < 20 * MS, "{:?}", taken - freed);
    guard.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_is_a_release() {
    let proxy = Proxy::to(&shared_server());
    let name = unique("lost-reply");
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.spin_lock(&name);
    // Loads the scripts.
    lock_and_unlock(&lock).await;
    proxy.cut_after_request(CALL);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    proxy.cut_after_request(CALL);
    let unlocked = within(DEADLINE, guard.unlock()).await.unwrap();
    assert_eq!(unlocked, Unlocked::Released);
    // A repeat of an old release does not free a newer hold.
    let guard = lock.lock().await.unwrap();
    let gate = proxy.hold_reply(CALL);
    let release = tokio::spawn(guard.unlock());
    let other = Client::connect(&shared_server().url()).await.unwrap();
    let newer = other.spin_lock(&name);
    let newer = within(DEADLINE, newer.lock()).await.unwrap();
    gate.reached().await;
    proxy.cut_all();
    gate.open();
    let released = within(DEADLINE, release).await.unwrap();
    assert_eq!(released.unwrap(), Unlocked::Released);
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    assert_clean(&shared_server(), &name, [&client]).await;
}

/// The commands at the server, with contention, hand-overs, drops and forced releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_subscribed_to_or_published() {
    let server = tests::RedisServer::start();
    let connect = async || Client::connect(&server.url()).await.unwrap();
    let (one, other) = (connect().await, connect().await);
    let mut monitor = Monitor::start(&server).await;
    for round in 0..6 {
        let lock = one.spin_lock("quiet");
        let guard = lock.lock().await.unwrap();
        let inner = guard.reenter().await.unwrap();
        let elsewhere = other.spin_lock("quiet");
        let waits = tokio::spawn(async move { elsewhere.lock().await.unwrap() });
        let here = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually(DEADLINE, async || {
            (one.stats().waiting, other.stats().waiting) == (1, 1)
        })
        .await;
        drop(inner);
        match round % 3 {
            0 => drop(guard),
            1 => assert!(one.spin_lock("quiet").force_unlock().await.unwrap()),
            _ => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
        }
        let unlock = async |guard: redlock_rt::SpinLockGuard| guard.unlock().await.unwrap();
        let both = async {
            let (first, second) =
                tokio::join!(async { unlock(waits.await.unwrap()).await }, async {
                    unlock(here.await.unwrap()).await
                },);
            assert_eq!((first, second), (Unlocked::Released, Unlocked::Released));
        };
        within(DEADLINE, both).await;
    }
    let counts = monitor.counts().await;
    // In each round three acquisitions, three releases and a re-entry.
    assert!(counts.values().sum::<usize>() > 6 * 7, "{counts:?}");
    let lines = monitor.lines().await;
    let told: Vec<_> = lines
        .iter()
        .filter(|line| line.command().contains("PUBLISH") || line.command().contains("SUBSCRIBE"))
        .collect();
    assert!(told.is_empty(), "{told:?}");
    for client in [one, other] {
        assert_eq!(client.stats().subscriptions, 0);
    }
}

#[tokio::test]
async fn a_back_off_that_cannot_be_one_is_refused() {
    let client = Client::embedded();
    let day = Duration::from_secs(24 * 60 * 60);
    for (backoff, says) in [
        (
            Backoff::constant(Duration::ZERO),
            "shorter than a millisecond",
        ),
        (
            Backoff::constant(MS - Duration::from_nanos(1)),
            "shorter than a millisecond",
        ),
        (
            Backoff::exponential(Duration::ZERO, MS),
            "shorter than a millisecond",
        ),
        (Backoff::exponential(2 * MS, MS), "shorter than the first"),
        (Backoff::constant(day + MS), "longer than a day"),
        (
            Backoff::constant(Duration::MAX).max_retries(9),
            "longer than a day",
        ),
        (Backoff::exponential(MS, Duration::MAX), "longer than a day"),
    ] {
        let lock = client.spin_lock("n").backoff(backoff);
        let errors = [
            lock.lock().await.map(|_| ()).unwrap_err(),
            lock.try_lock().await.map(|_| ()).unwrap_err(),
            lock.lock_with(LockOptions::new().wait(Duration::ZERO))
                .await
                .map(|_| ())
                .unwrap_err(),
            lock.with(async |_| ()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.name(), Some("n"));
        }
        // Calls that do not need the right work.
        assert!(!lock.is_locked().await.unwrap());
    }
    for backoff in [
        Backoff::constant(day).max_retries(u32::MAX),
        Backoff::exponential(MS, day)
            .max_retries(u32::MAX)
            .jitter(f64::NAN),
        Backoff::constant(MS).jitter(f64::INFINITY),
        Backoff::constant(MS).jitter(-1.0),
    ] {
        let lock = client.spin_lock("n").backoff(backoff);
        let guard = lock.lock().await.unwrap();
        let again = lock.lock_with(LockOptions::new().wait(5 * MS)).await;
        assert!(again.is_err_and(|error| error.is_timed_out()));
        guard.unlock().await.unwrap();
    }
    assert_eq!(client.stats().names, 0);
}
