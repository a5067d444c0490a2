//! Critical cases with other lock crates, each in a few lines:
//!
//! ```text
//! cargo run --release -p benches --features peers --bin peers
//! ```
//!
//! docs/peers.md has the results with the tested versions. Each line prints the observed behaviour, so
//! a better version prints something else.

use std::{
    fmt::Debug,
    io::{self, Write},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_redis_lock::Locker;
use distributed_lock_core::traits::{
    DistributedLock, DistributedReaderWriterLock, LockHandle, LockProvider,
    ReaderWriterLockProvider,
};
use distributed_lock_redis::RedisLockProvider;
use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use redisson::{AsyncRedissonClient, RedissonConfig};
use redlock_rt::Client;
use rslock::LockManager;
use tests::RedisServer;
use tokio::time::{sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

/// A server, and the questions to it.
struct Stage {
    server: RedisServer,
    connection: MultiplexedConnection,
}

impl Stage {
    async fn set() -> Self {
        let server = RedisServer::start();
        let connection = server.connect().await.expect("the server answers");
        Self { server, connection }
    }

    async fn exists(&mut self, key: &str) -> bool {
        let mut exists = redis::cmd("EXISTS");
        let exists = exists.arg(key).query_async(&mut self.connection).await;
        exists.expect("the server answers")
    }

    async fn delete_all(&mut self) {
        let flush = redis::cmd("FLUSHALL")
            .exec_async(&mut self.connection)
            .await;
        flush.expect("the server answers");
    }

    /// The number of times that the server has run this command.
    async fn calls(&mut self, command: &str) -> u64 {
        let mut info = redis::cmd("INFO");
        let info = info.arg("commandstats");
        let info = info.query_async(&mut self.connection).await;
        let info: String = info.expect("the server answers");
        let prefix = format!("cmdstat_{command}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        let count = line.and_then(|line| line.split(',').next()?.parse().ok());
        count.unwrap_or(0)
    }
}

fn seen(who: &str, what: &str, how: impl Debug) {
    let _ = writeln!(io::stdout(), "{who:<22} {what:<66} {how:?}");
}

#[tokio::main]
async fn main() {
    rslock().await;
    redisson().await;
    distributed_lock().await;
    async_redis_lock().await;
    ours().await;
}

/// Polls a call until it is in progress, lets its reply come, and drops the call.
async fn cancelled<T>(call: impl Future<Output = T>) {
    let mut call = pin!(call);
    // As far as possible without a reply.
    for _ in 0..3 {
        let done = futures::poll!(&mut call).is_ready();
        assert!(!done, "it needs an answer");
    }
    sleep(200 * MS).await;
}

async fn rslock() {
    const WHO: &str = "rslock";
    let mut stage = Stage::set().await;
    let mut manager = LockManager::new(vec![stage.server.url()]);
    let guard = manager.acquire("drop", LEASE).await.expect("it is free");
    drop(guard);
    sleep(200 * MS).await;
    let kept = stage.exists("drop").await;
    seen(WHO, "guard dropped: still locked", kept);

    cancelled(manager.acquire("cancel", LEASE)).await;
    sleep(200 * MS).await;
    let kept = stage.exists("cancel").await;
    seen(WHO, "acquire cancelled: still locked, held by nobody", kept);

    let lock = manager.lock("freed", LEASE).await.expect("it is free");
    manager.unlock(&lock).await;
    let freed = manager.is_freed(&lock).await;
    seen(WHO, "is_freed after unlock", freed);

    let before = stage.calls("evalsha").await;
    let used = manager.using(b"short", 300 * MS, async || sleep(S).await);
    let used = std::panic::AssertUnwindSafe(used).catch_unwind().await;
    let used = used.map_err(|_| "panicked");
    let calls = stage.calls("evalsha").await - before;
    let what = format!("using() with a TTL of 300 ms for 1 s: {calls} scripts,");
    seen(WHO, &what, used);

    // One connection breaks shortly before a renewal; a new one succeeds at once.
    let mut connection = stage.connection.clone();
    let finished = Arc::new(AtomicUsize::new(0));
    let (end, start) = (finished.clone(), Instant::now());
    let used = manager.using(b"broken", 2 * S, async move || {
        sleep(S).await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes");
        kill.exec_async(&mut connection).await.expect("it is there");
        sleep(3 * S).await;
        end.store(1, SeqCst);
    });
    let used = used.await;
    let what = format!(
        "using(), one broken connection: body finished {}, after {:.1?}",
        finished.load(SeqCst) == 1,
        start.elapsed()
    );
    seen(WHO, &what, used);

    let holder = manager.lock("zero", LEASE).await.expect("it is free");
    manager.set_retry(3, Duration::ZERO);
    let second = manager.clone();
    let second = tokio::spawn(async move { second.lock("zero", LEASE).await.map(drop) });
    let panicked = second.await.is_err_and(|error| error.is_panic());
    seen(WHO, "retry delay of zero, lock held: panicked", panicked);
    manager.set_retry(3, 200 * MS);

    stage.server.kill();
    let freed = manager.is_freed(&holder).await;
    seen(WHO, "is_freed of a held lock, server gone", freed);
    let outcome = timeout(5 * S, manager.acquire_no_guard("down", LEASE)).await;
    let outcome = outcome.map(|outcome| outcome.map(drop));
    seen(
        WHO,
        "acquire, server gone, after 5 s",
        outcome.is_err().then_some("no answer"),
    );
    let made = std::panic::catch_unwind(|| LockManager::new(vec!["no url"]));
    seen(
        WHO,
        "LockManager::new of a bad URL: panicked",
        made.is_err(),
    );
}

async fn redisson() {
    const WHO: &str = "redisson";
    let mut stage = Stage::set().await;
    let url = stage.server.url();
    let config = || RedissonConfig::single_server(&url);
    let client = AsyncRedissonClient::new(config()).await;
    let client = client.expect("the server answers");
    let lock = client.get_lock("reentry");
    lock.lock().await.expect("it is free");
    let again = timeout(3 * S, lock.lock()).await;
    seen(
        WHO,
        "second lock() of the same lock object, 3 s: no answer",
        again.is_err(),
    );
    let lock = client.get_lock("another");
    lock.lock().await.expect("it is free");
    let other = lock.clone();
    let other = tokio::spawn(async move { other.unlock().await });
    let other = other.await.expect("no panic");
    seen(WHO, "unlock() by another task, through a clone", other);
    let kept = stage.exists("another").await;
    seen(WHO, "… then: key exists", kept);

    let config = config().with_watchdog_timeout(2 * S);
    let short = AsyncRedissonClient::new(config).await;
    let short = short.expect("the server answers");
    let lock = short.get_lock("watchdog");
    lock.lock().await.expect("it is free");
    sleep(3 * S).await;
    let kept = stage.exists("watchdog").await;
    let held = lock.is_held_by_current_thread().await;
    seen(
        WHO,
        "lock() with a watchdog timeout of 2 s, after 3 s: key exists",
        kept,
    );
    seen(WHO, "… and is_held_by_current_thread says", held);
    let lock = client.get_lock("zero");
    lock.lock_with_lease_time(Duration::ZERO)
        .await
        .expect("it is free");
    let kept = stage.exists("zero").await;
    seen(
        WHO,
        "lock_with_lease_time(0), \"renewed\": key exists",
        kept,
    );

    let before = stage.calls("publish").await + stage.calls("spublish").await;
    let lock = client.get_lock("publish");
    lock.lock().await.expect("it is free");
    lock.unlock().await.expect("the server answers");
    let published = stage.calls("publish").await + stage.calls("spublish").await - before;
    seen(
        WHO,
        "announcements of an unlock (Redisson's waiters wait for one)",
        published,
    );

    let lock = client.get_lock("own");
    lock.lock().await.expect("it is free");
    let released = lock.unlock().await;
    seen(WHO, "unlock() of a held lock, by its holder", released);
    let kept = stage.exists("own").await;
    seen(WHO, "… then: key exists", kept);

    let lock = client.get_lock("drop");
    lock.lock().await.expect("it is free");
    drop(lock);
    sleep(200 * MS).await;
    let kept = stage.exists("drop").await;
    seen(WHO, "lock object dropped: still locked", kept);

    let holder = client.get_fair_lock("fair");
    holder.lock().await.expect("it is free");
    let start = Instant::now();
    let second = client.get_fair_lock("fair").lock().await;
    let what = format!("fair lock(), held: returned after {:.0?}", start.elapsed());
    seen(WHO, &what, second);
    holder.unlock().await.expect("the server answers");
    let tried = client.get_fair_lock("fair free").try_lock().await;
    seen(WHO, "fair try_lock() of a free lock", tried);
}

async fn distributed_lock() {
    const WHO: &str = "distributed-lock-redis";
    let mut stage = Stage::set().await;
    let url = stage.server.url();
    let provider = RedisLockProvider::new(&url).await;
    let provider = provider.expect("the server answers");
    let holder = provider.create_lock("wait").try_acquire().await;
    let holder = holder.expect("the server answers").expect("it is free");
    let start = Instant::now();
    let waited = provider.create_lock("wait").acquire(Some(5 * S)).await;
    let what = format!("acquire(5 s), held: returned after {:.0?}", start.elapsed());
    seen(WHO, &what, waited.map(drop));
    drop(holder);
    sleep(200 * MS).await;
    let kept = stage.exists("distributed-lock:wait").await;
    seen(WHO, "handle dropped: still locked", kept);
    cancelled(provider.create_lock("cancel").try_acquire()).await;
    sleep(200 * MS).await;
    let kept = stage.exists("distributed-lock:cancel").await;
    seen(WHO, "acquire cancelled: still locked, held by nobody", kept);

    // No renewal comes in time, as after a stall of the process.
    let slow = RedisLockProvider::builder();
    let slow = slow.url(&url).expiry(2 * S).extension_cadence(20 * S);
    match slow.build().await {
        Ok(slow) => {
            let lock = slow.create_lock("stale");
            let first = lock.try_acquire().await.expect("the server answers");
            let first = first.expect("it is free");
            // The first renewal is at once.
            sleep(3 * S).await;
            let second = lock.try_acquire().await.expect("the server answers");
            let held = second.is_some();
            first.release().await.expect("the server answers");
            let kept = stage.exists("distributed-lock:stale").await;
            let what = format!("old handle released; new one held {held}, then: key exists");
            seen(WHO, &what, kept);
        }
        Err(error) => seen(WHO, "expiry of 2 s refused", error),
    }

    // A reader and a writer that start together.
    let other = RedisLockProvider::new(&url).await;
    let other = other.expect("the server answers");
    let (mut both, rounds) = (0, 500);
    for round in 0..rounds {
        let name = format!("rw{round}");
        let reader = provider.create_reader_writer_lock(&name);
        let writer = other.create_reader_writer_lock(&name);
        let reader = tokio::spawn(async move { reader.try_acquire_read().await });
        let writer = tokio::spawn(async move { writer.try_acquire_write().await });
        let reader = reader.await.expect("no panic").expect("an answer");
        let writer = writer.await.expect("no panic").expect("an answer");
        both += usize::from(reader.is_some() && writer.is_some());
    }
    let what = format!("reader and writer both hold the lock, of {rounds} races");
    seen(WHO, &what, both);
    stage.delete_all().await;
}

async fn async_redis_lock() {
    const WHO: &str = "async-redis-lock";
    let mut stage = Stage::set().await;
    let locker = Locker::from_redis_url(&stage.server.url()).await;
    let locker = locker.expect("the server answers");
    let lock = locker.acquire("drop").await.expect("it is free");
    drop(lock);
    sleep(200 * MS).await;
    let kept = stage.exists("drop").await;
    seen(WHO, "guard dropped: still locked", kept);
    cancelled(locker.acquire("cancel")).await;
    sleep(200 * MS).await;
    let kept = stage.exists("cancel").await;
    seen(WHO, "acquire cancelled: still locked, held by nobody", kept);
    let holder = locker.acquire("lost").await.expect("it is free");
    stage.delete_all().await;
    let next = locker.acquire("lost").await.expect("it is free");
    let what = "deleted and taken by another: first guard's is_lost at that moment";
    seen(WHO, what, holder.is_lost());
    sleep(1200 * MS).await;
    seen(WHO, "… and after its next extension", holder.is_lost());
    drop((holder, next));
    let holder = locker.acquire("outage").await.expect("it is free");
    stage.server.pause();
    // The TTL is 3 s.
    let start = Instant::now();
    sleep(3 * S).await;
    let before = holder.is_lost();
    while !holder.is_lost() && start.elapsed() < 20 * S {
        sleep(10 * MS).await;
    }
    let what = format!(
        "server silent: is_lost {before} after the TTL of 3 s, true after {:.1?}:",
        start.elapsed()
    );
    seen(WHO, &what, holder.is_lost());
    stage.server.resume();
}

/// The same questions to this library.
async fn ours() {
    const WHO: &str = "redlock-rt";
    let mut stage = Stage::set().await;
    let client = Client::connect(&stage.server.url()).await;
    let client = client.expect("the server answers");
    let guard = client.rlock("drop").lock().await.expect("it is free");
    drop(guard);
    sleep(200 * MS).await;
    let kept = stage.exists("drop").await;
    seen(WHO, "guard dropped: still locked", kept);
    cancelled(client.rlock("cancel").lock()).await;
    sleep(200 * MS).await;
    let kept = stage.exists("cancel").await;
    seen(WHO, "lock cancelled: still locked, held by nobody", kept);
    let options = redlock_rt::LockOptions::new().lease(3 * S);
    let guard = client.rlock("outage").lock_with(options).await;
    let guard = guard.expect("it is free");
    stage.server.pause();
    let start = Instant::now();
    guard.lost().await;
    let what = format!(
        "server silent: lost after {:.1?} of a lease of 3 s:",
        start.elapsed()
    );
    seen(WHO, &what, guard.is_valid());
    stage.server.resume();
}
