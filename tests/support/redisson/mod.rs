//! A player of Redisson 4.7 on the wire, with raw commands and separate scripts.
//!
//! It shares neither scripts nor key names with redlock-rt, so that a mistake there shows here. Each
//! primitive has a file; this one has the common parts: the client, its subscriptions, and EVALSHA
//! with SCRIPT LOAD after NOSCRIPT.

// All methods have the errors of Redis, so a section about that in each would say nothing.
#![allow(clippy::missing_errors_doc)]

mod fair;
mod fenced;
mod latch;
mod pubsub;
mod rlock;
mod rw;
mod script;
mod semaphore;
mod spin;
mod surroundings;
mod waiting;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, FromRedisValue, RedisResult, ToRedisArgs, aio::MultiplexedConnection,
};
use tokio::time::Instant;

use self::pubsub::Subscriptions;
pub use self::{
    fair::RedissonFairLock,
    fenced::RedissonFencedLock,
    latch::RedissonCountDownLatch,
    rlock::{RedissonRLock, RedissonUnlock},
    rw::{RedissonModeLock, RedissonReadWriteLock},
    semaphore::{RedissonPermits, RedissonSemaphore},
    spin::RedissonSpinLock,
    surroundings::{RedissonStream, Surroundings},
};
use crate::{lock, random::uuid_of};

/// `lockWatchdogTimeout`, the default lease of a lock.
const WATCHDOG: Duration = Duration::from_secs(30);
/// `timeout` and `connectTimeout`: for a reply, and for a connection.
const REPLY: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(10);
/// The number of attempts of a command, since a reply may be lost.
const ATTEMPTS: usize = 4;
/// The channel's messages.
const UNLOCK_MESSAGE: &str = "0";

/// One Redisson instance: a UUID, a connection for commands and one for subscriptions.
#[derive(Clone, Debug)]
pub struct RedissonClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    uuid: String,
    surroundings: Surroundings,
    connection: Mutex<MultiplexedConnection>,
    subscriptions: Subscriptions,
    watchdog: Duration,
    /// The command that scripts publish with.
    publish: &'static str,
}

impl RedissonClient {
    /// Connects as Redisson does to a single server.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect(url: &str) -> RedisResult<Self> {
        Self::connect_with_watchdog(url, WATCHDOG).await
    }

    /// As [`connect`](Self::connect), with another `lockWatchdogTimeout`.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect_with_watchdog(url: &str, watchdog: Duration) -> RedisResult<Self> {
        Self::connect_from(Surroundings::of_process(url)?, watchdog).await
    }

    /// As [`connect_with_watchdog`](Self::connect_with_watchdog), on a machine like this.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect_from(surroundings: Surroundings, watchdog: Duration) -> RedisResult<Self> {
        let mut connection = surroundings.connection().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        let probe = "return {redis.call('get', KEYS[1]), redis.call('get', KEYS[2])}";
        redis::cmd("EVAL")
            .arg(&[probe, "2", "test1", "test2"])
            .exec_async(&mut connection)
            .await?;
        let subscriptions = Subscriptions::connect(&surroundings).await?;
        Ok(Self::over(
            surroundings,
            connection,
            subscriptions,
            watchdog,
            "PUBLISH",
        ))
    }

    /// Connects as Redisson does to a cluster without replicas, for names in the slots of one master,
    /// at this URL.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect_to_shard(url: &str) -> RedisResult<Self> {
        let surroundings = Surroundings::of_process(url)?;
        let mut connection = surroundings.connection().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        let mut asks = redis::cmd("PUBSUB");
        let sharded = asks.arg("SHARDNUMSUB").exec_async(&mut connection).await;
        let (subscriptions, publish) = match sharded {
            Ok(()) => {
                let resp3 = format!("{url}/?protocol=resp3");
                (Subscriptions::connect_to_shard(&resp3).await?, "SPUBLISH")
            }
            // Below Redis 7.0.
            Err(_) => (Subscriptions::connect(&surroundings).await?, "PUBLISH"),
        };
        Ok(Self::over(
            surroundings,
            connection,
            subscriptions,
            WATCHDOG,
            publish,
        ))
    }

    fn over(
        surroundings: Surroundings,
        connection: MultiplexedConnection,
        subscriptions: Subscriptions,
        watchdog: Duration,
        publish: &'static str,
    ) -> Self {
        let inner = Inner {
            uuid: uuid_of(surroundings.random(), surroundings.random()),
            surroundings,
            connection: Mutex::new(connection),
            subscriptions,
            watchdog,
            publish,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The UUID of this instance, the first half of its owner ids.
    pub fn uuid(&self) -> &str {
        &self.inner.uuid
    }

    /// `getLock(name)`.
    pub fn rlock(&self, name: impl Into<String>) -> RedissonRLock {
        RedissonRLock::new(self.clone(), name.into())
    }

    /// `getFairLock(name)`.
    pub fn fair_lock(&self, name: impl Into<String>) -> RedissonFairLock {
        RedissonFairLock::new(self.clone(), name.into())
    }

    /// `getSemaphore(name)`.
    pub fn semaphore(&self, name: impl Into<String>) -> RedissonSemaphore {
        RedissonSemaphore::new(self.clone(), name.into())
    }

    /// `getPermitExpirableSemaphore(name)`.
    pub fn permits(&self, name: impl Into<String>) -> RedissonPermits {
        self.permits_ahead(name, Duration::ZERO)
    }

    /// As [`permits`](Self::permits), for a client whose clock is ahead by this time.
    pub fn permits_ahead(&self, name: impl Into<String>, ahead: Duration) -> RedissonPermits {
        RedissonPermits::new(self.clone(), name.into(), ahead)
    }

    /// `getReadWriteLock(name)`.
    pub fn read_write_lock(&self, name: &str) -> RedissonReadWriteLock {
        RedissonReadWriteLock::new(self, name)
    }

    /// `getCountDownLatch(name)`.
    pub fn count_down_latch(&self, name: impl Into<String>) -> RedissonCountDownLatch {
        RedissonCountDownLatch::new(self.clone(), name.into())
    }

    /// The present subscriptions of this client.
    pub fn channels(&self) -> Vec<String> {
        self.inner.subscriptions.channels()
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.inner.subscriptions
    }

    fn publish(&self) -> &'static str {
        self.inner.publish
    }

    fn watchdog(&self) -> Duration {
        self.inner.watchdog
    }

    /// The id of a thread of this instance.
    fn owner(&self, thread_id: u64) -> String {
        format!("{}:{thread_id}", self.inner.uuid)
    }

    /// A plain command.
    async fn command<T: FromRedisValue>(
        &self,
        name: &str,
        args: impl ToRedisArgs,
    ) -> RedisResult<T> {
        let mut command = redis::cmd(name);
        command.arg(args);
        self.query(&command).await
    }

    /// Sends a command; repeats it on a new connection if the connection breaks.
    async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> RedisResult<T> {
        let mut attempt = 1;
        loop {
            let mut connection = self.connection();
            let result = command.query_async(&mut connection).await;
            match result {
                Err(error) if error.is_io_error() && attempt < ATTEMPTS => attempt += 1,
                other => return other,
            }
            let fresh = self.inner.surroundings.connection().await?;
            *lock(&self.inner.connection) = fresh;
        }
    }

    /// 32 hex digits.
    fn request_id(&self) -> String {
        format!("{:016x}{:016x}", self.random(), self.random())
    }

    /// How long an unlock latch lives: (timeout + a retry delay of 1 to 2 s) for each attempt.
    fn latch_time(&self) -> u64 {
        (3000 + 1000 + self.random() % 1001) * ATTEMPTS as u64
    }

    fn random(&self) -> u64 {
        self.inner.surroundings.random()
    }

    /// The client's wall clock, which Redisson passes to the scripts of fair locks and permits.
    fn now(&self) -> Duration {
        self.inner.surroundings.now()
    }

    fn connection(&self) -> MultiplexedConnection {
        lock(&self.inner.connection).clone()
    }
}

/// `prefix:{name}`, or `prefix:name` if the name has a brace.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// The key that marks a repeated unlock, one for each request.
fn unlock_latch(name: &str, request: &str) -> String {
    format!("{}:{request}", prefixed("redisson_unlock_latch", name))
}

fn timeouts() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(Some(REPLY))
        .set_connection_timeout(Some(CONNECT))
}

/// When an object last asked for its lock: the lease that it then had runs from a later moment.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Option<Instant>>>);

impl Asked {
    fn now(&self) {
        *lock(&self.0) = Some(Instant::now());
    }

    fn at(&self) -> Option<Instant> {
        *lock(&self.0)
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
