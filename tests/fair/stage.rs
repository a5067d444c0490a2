//! A fair lock on a server, and a look into its queue.

use std::time::Duration;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, ClientBuilder, FairLock, LockOptions, Owner};
use tests::{LeakCheck, RedisServer, eventually, shared_server, trace_init, unique, within};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Polling that does not come within a test: whoever wakes was told.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) url: String,
    redis: MultiplexedConnection,
    leaks: Option<LeakCheck>,
}

impl Stage {
    pub(crate) async fn open(what: &str) -> Self {
        Self::on(&shared_server(), what).await
    }

    pub(crate) async fn on(server: &RedisServer, what: &str) -> Self {
        trace_init();
        let name = unique(what);
        Self {
            url: server.url(),
            redis: connect(server).await,
            leaks: Some(LeakCheck::on(server, &name).await),
            name,
        }
    }

    /// A client that is woken by announcements only, and by its beats.
    pub(crate) fn client(&mut self) -> Client {
        self.client_with(|builder| builder)
    }

    pub(crate) fn client_with(
        &mut self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        let builder = Client::builder()
            .url(&self.url)
            .poll_interval(NEVER)
            .linger(Duration::from_millis(20));
        let client = options(builder).build().unwrap();
        self.leaks = self.leaks.take().map(|leaks| leaks.client(&client));
        client
    }

    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    pub(crate) fn queue_key(&self) -> String {
        format!("redisson_lock_queue:{{{}}}", self.name)
    }

    pub(crate) fn deadlines_key(&self) -> String {
        format!("redisson_lock_timeout:{{{}}}", self.name)
    }

    pub(crate) async fn queue(&self) -> Vec<String> {
        self.redis(&["LRANGE", &self.queue_key(), "0", "-1"]).await
    }

    pub(crate) async fn deadline(&self, owner: &str) -> Option<f64> {
        self.redis(&["ZSCORE", &self.deadlines_key(), owner]).await
    }

    pub(crate) async fn now(&self) -> f64 {
        let (seconds, micros): (f64, f64) = self.redis(&["TIME"]).await;
        seconds * 1000.0 + micros / 1000.0
    }

    /// The processor time that the server has used.
    pub(crate) async fn processor_time(&self) -> Duration {
        let info: String = self.redis(&["INFO", "cpu"]).await;
        let used = |what: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(what));
            Duration::from_secs_f64(line.unwrap().trim().parse().unwrap())
        };
        used("used_cpu_user:") + used("used_cpu_sys:")
    }

    pub(crate) async fn evalsha_calls(&self) -> usize {
        let info: String = self.redis(&["INFO", "commandstats"]).await;
        let calls = info.lines().find_map(|line| {
            let rest = line.strip_prefix("cmdstat_evalsha:calls=")?;
            rest.split(',').next()?.parse().ok()
        });
        calls.unwrap_or_default()
    }

    /// Waits until so many are queued.
    pub(crate) async fn queued(&self, count: usize) {
        eventually(DEADLINE, async || {
            let queued: usize = self.redis(&["LLEN", &self.queue_key()]).await;
            if queued == count {
                Ok(())
            } else {
                Err(format!("{queued} are queued"))
            }
        })
        .await;
    }

    pub(crate) async fn assert_clean(mut self) {
        self.leaks.take().unwrap().assert_clean().await;
    }
}

/// A connection that waits for its answers: beside thousands of tasks they take long to be read.
async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(DEADLINE));
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// Waits in a task of its own, and answers when it has the lock.
pub(crate) fn wait(
    lock: &FairLock,
    owner: &Owner,
    options: LockOptions,
) -> tokio::task::JoinHandle<Result<redlock_rt::FairLockGuard, redlock_rt::Error>> {
    let (lock, options) = (lock.clone(), options.owner(owner));
    tokio::spawn(async move { lock.lock_with(options).await })
}

/// Has the lock in time, and gives it back.
pub(crate) async fn pass(
    waiting: tokio::task::JoinHandle<Result<redlock_rt::FairLockGuard, redlock_rt::Error>>,
) {
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}
