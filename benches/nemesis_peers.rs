//! A worker of `nemesis` with another crate's lock, used as in its documentation:
//!
//! ```text
//! nemesis peer rslock
//! ```
//!
//! starts it, and docs/under-faults.md has what was seen. Two tasks take turns at a lock, and a third
//! counts under another one. A body runs to its end, whatever its lock says, as those of `nemesis` do.

#[allow(
    dead_code,
    reason = "only nemesis itself reads and exports what is written"
)]
#[path = "../tests/bin/nemesis/event.rs"]
mod event;

use std::{
    env,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_redis_lock::{Locker, Options};
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};
use futures::future::{BoxFuture, join_all};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use redisson::{AsyncRLock, AsyncRedissonClient, RedissonConfig};
use rslock::{LockError, LockManager};
use tests::{connection_to, stdin_is_closed};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use self::event::{Act, Journal, Stage, now};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LEASE: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);
/// Between two tries of a crate that does not wait.
const PAUSE: Duration = Duration::from_millis(20);

/// One held lock.
trait Held: Send + Sync {
    /// `None`: the crate does not offer that.
    fn is_valid(&self) -> Option<bool>;
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Failure>>;
}

trait Peer: Send + Sync {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn Held>, Failure>>;
}

/// By `using`, which renews, and drops its body at a loss. That body waits here for the end of the real one.
struct Rslock(LockManager, String);

struct RslockHeld {
    valid: Arc<AtomicBool>,
    end: oneshot::Sender<()>,
    used: JoinHandle<Result<(), LockError>>,
}

/// Its lock is lost when the body is dropped.
struct Used(Arc<AtomicBool>);

impl Drop for Used {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Peer for Rslock {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn Held>, Failure>> {
        Box::pin(async move {
            let (manager, name) = (self.0.clone(), self.1.clone());
            let valid = Arc::new(AtomicBool::new(true));
            let used = Used(Arc::clone(&valid));
            let (acquired, held) = oneshot::channel();
            let (end, ended) = oneshot::channel();
            let used = tokio::spawn(async move {
                let body = async move || {
                    let _used = used;
                    let _ = acquired.send(());
                    let _ = ended.await;
                };
                manager.using(name.as_bytes(), LEASE, body).await
            });
            // Its wait has no limit.
            let Ok(Ok(())) = timeout(WAIT, held).await else {
                used.abort();
                return Err("TimedOut".into());
            };
            Ok(Box::new(RslockHeld { valid, end, used }) as _)
        })
    }
}

impl Held for RslockHeld {
    fn is_valid(&self) -> Option<bool> {
        Some(self.valid.load(Ordering::Relaxed))
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move {
            let _ = self.end.send(());
            Ok(self.used.await??)
        })
    }
}

struct Redisson(Arc<AsyncRedissonClient>, String);
struct RedissonHeld(AsyncRLock);

impl Peer for Redisson {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn Held>, Failure>> {
        Box::pin(async move {
            let lock = self.0.get_lock(&self.1);
            match lock.try_lock_with_timeout(WAIT).await? {
                true => Ok(Box::new(RedissonHeld(lock)) as _),
                false => Err("TimedOut".into()),
            }
        })
    }
}

impl Held for RedissonHeld {
    fn is_valid(&self) -> Option<bool> {
        // `is_held_by_current_thread` reads a flag, which is true also when the key is gone.
        None
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { Ok(self.0.unlock().await.map(drop)?) })
    }
}

struct Distributed(RedisDistributedLock);

impl Peer for Distributed {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn Held>, Failure>> {
        Box::pin(async move {
            let until = Instant::now() + WAIT;
            // `acquire` of a held lock fails at once, whatever its time-out.
            while Instant::now() < until {
                if let Some(handle) = self.0.try_acquire().await? {
                    return Ok(Box::new(handle) as _);
                }
                sleep(PAUSE).await;
            }
            Err("TimedOut".into())
        })
    }
}

impl<H: LockHandle + Send + Sync + 'static> Held for H {
    fn is_valid(&self) -> Option<bool> {
        Some(!*self.lost_token().borrow())
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { Ok(self.release().await?) })
    }
}

struct AsyncRedisLock(Locker, String);
struct AsyncRedisLockHeld(async_redis_lock::Lock);

impl Peer for AsyncRedisLock {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn Held>, Failure>> {
        Box::pin(async move {
            let options = Options::new().ttl(LEASE).extend(LEASE / 3);
            let options = options.timeout(Some(WAIT));
            let lock = self
                .0
                .acquire_with_options(&options, self.1.as_str())
                .await?;
            Ok(Box::new(AsyncRedisLockHeld(lock)) as _)
        })
    }
}

impl Held for AsyncRedisLockHeld {
    fn is_valid(&self) -> Option<bool> {
        Some(!self.0.is_lost())
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { Ok(self.0.release().await?) })
    }
}

/// The lock of this name, by the crate of that name.
async fn peer(of: &str, urls: &[&str], name: &str) -> Result<Box<dyn Peer>, Failure> {
    let name = name.to_owned();
    Ok(match of {
        "rslock" => Box::new(Rslock(LockManager::new(urls.to_vec()), name)),
        "redisson" => {
            let config = RedissonConfig::single_server(urls[0]).with_watchdog_timeout(LEASE);
            let client = AsyncRedissonClient::new(config).await?;
            Box::new(Redisson(Arc::new(client), name))
        }
        "distributed-lock-redis" => {
            let builder = RedisLockProvider::builder().urls(urls).expiry(LEASE);
            // By default 27 s of 30.
            let builder = builder.min_validity(LEASE * 9 / 10);
            let provider = builder.extension_cadence(LEASE / 3).build().await?;
            Box::new(Distributed(provider.create_lock(&name)))
        }
        "async-redis-lock" => {
            Box::new(AsyncRedisLock(Locker::from_redis_url(urls[0]).await?, name))
        }
        _ => return Err(format!("no crate {of:?}").into()),
    })
}

async fn acquire(peer: &dyn Peer, journal: &Journal<'_>) -> Option<Box<dyn Held>> {
    journal.note(Act::Lock, Stage::Invoke);
    match peer.acquire().await {
        Ok(held) => {
            journal.note(Act::Lock, Stage::Ok);
            Some(held)
        }
        Err(error) => {
            let error = Some(error.to_string());
            journal.note_at(now(), Act::Lock, Stage::Fail, None, error);
            sleep(PAUSE).await;
            None
        }
    }
}

async fn body(held: &dyn Held, journal: &Journal<'_>, lasts: Duration) {
    let (mut valid, end) = (held.is_valid().is_some(), Instant::now() + lasts);
    while Instant::now() < end {
        let at = now();
        if valid && held.is_valid() == Some(false) {
            valid = false;
            journal.note(Act::Lost, Stage::Ok);
        } else if valid {
            journal.note_at(at, Act::Valid, Stage::Ok, None, None);
        }
        sleep(LOOK).await;
    }
}

/// The end of an act whose failure leaves its outcome unknown.
fn ended(journal: &Journal<'_>, act: Act, result: Result<(), Failure>) {
    let error = result.err().map(|error| error.to_string());
    let stage = error.as_ref().map_or(Stage::Ok, |_| Stage::Info);
    journal.note_at(now(), act, stage, None, error);
}

async fn end(held: Box<dyn Held>, journal: &Journal<'_>) {
    journal.note(Act::End, Stage::Invoke);
    ended(journal, Act::End, held.end().await);
}

async fn contend(peer: Box<dyn Peer>, journal: Journal<'static>, stopped: Arc<AtomicBool>) {
    while !stopped.load(Ordering::Relaxed) {
        if let Some(held) = acquire(&*peer, &journal).await {
            let lasts = match fastrand::u8(..100) {
                ..90 => fastrand::u64(1..12),
                90..98 => fastrand::u64(20..80),
                _ => fastrand::u64(1000..1500),
            };
            body(&*held, &journal, Duration::from_millis(lasts)).await;
            end(held, &journal).await;
        }
        sleep(Duration::from_millis(fastrand::u64(..10))).await;
    }
}

async fn count(
    peer: Box<dyn Peer>,
    mut store: MultiplexedConnection,
    key: String,
    journal: Journal<'static>,
    stopped: Arc<AtomicBool>,
) {
    while !stopped.load(Ordering::Relaxed) {
        let Some(held) = acquire(&*peer, &journal).await else {
            continue;
        };
        journal.note(Act::Count, Stage::Invoke);
        let counted = async {
            let before: Option<u64> = store.get(&key).await?;
            sleep(Duration::from_millis(fastrand::u64(5..40))).await;
            let () = store.set(&key, before.unwrap_or(0) + 1).await?;
            Ok(())
        };
        ended(&journal, Act::Count, counted.await);
        end(held, &journal).await;
        sleep(Duration::from_millis(fastrand::u64(..20))).await;
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let [of, servers, store, start, tasks, log] = arguments[..] else {
        return Err("usage: CRATE SERVERS STORE START TASKS LOG".into());
    };
    let urls: Vec<_> = servers.trim_start_matches("red:").split(',').collect();
    let file: &'static File = Box::leak(Box::new(event::open(Path::new(log))?));
    let journal = |task, subject: &str| Journal {
        file,
        task,
        subject: subject.to_owned(),
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let (mut all, tasks) = (Vec::new(), tasks.parse()?);
    for task in 0..tasks {
        let peer = peer(of, &urls, &format!("{start}:rlock")).await?;
        let contending = contend(peer, journal(task, "rlock"), Arc::clone(&stopped));
        all.push(tokio::spawn(contending));
    }
    let counting = count(
        peer(of, &urls, &format!("{start}:count:rlock")).await?,
        connection_to(store).await?,
        format!("{start}:counter:rlock"),
        journal(tasks, "count:rlock"),
        Arc::clone(&stopped),
    );
    all.push(tokio::spawn(counting));
    writeln!(io::stdout(), "ready")?;
    stdin_is_closed().await;
    stopped.store(true, Ordering::Relaxed);
    for ended in join_all(all).await {
        ended?;
    }
    Ok(())
}
