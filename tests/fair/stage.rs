//! A fair lock on a server, and its queue.

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, Error, FairLock, FairLockGuard, LockOptions, Owner};
pub(crate) use tests::DEADLINE;
use tests::{Proxy, RedisServer, World, eventually, shared_server, within};
use tokio::task::JoinHandle;

/// A poll interval longer than any test: a waiter wakes by an announcement.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// A task that [waits](wait) for a lock.
pub(crate) type Waiting = JoinHandle<Result<FairLockGuard, Error>>;

pub(crate) struct Stage {
    world: World,
    /// The URL for clients from now on.
    pub(crate) url: String,
    /// Kept running.
    _own: Option<RedisServer>,
}

tests::is_a_world!(Stage);

impl Stage {
    pub(crate) async fn open(what: &str) -> Self {
        Self::on(&shared_server(), what).await
    }

    pub(crate) async fn on(server: &RedisServer, what: &str) -> Self {
        Self {
            world: World::on(server, what).await,
            url: server.url(),
            _own: None,
        }
    }

    /// On a server of its own, with a proxy in front of it for clients that are told its `url`.
    pub(crate) async fn behind_a_proxy(what: &str) -> (Proxy, Self) {
        let server = RedisServer::start();
        let proxy = Proxy::to(&server);
        let mut stage = Self::on(&server, what).await;
        stage._own = Some(server);
        (proxy, stage)
    }

    /// A client whose waiters are woken by announcements and beats only.
    pub(crate) fn client(&self) -> Client {
        self.client_with(|builder| builder)
    }

    pub(crate) fn client_with(
        &self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        let builder = self.world.builder().url(&self.url);
        self.world.client_with(|_| options(builder))
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

    /// Queues a waiter that no task has, whose deadline comes after so many milliseconds.
    pub(crate) async fn plant(&self, owner: &str, millis: f64) {
        let deadline = format!("{:.0}", self.now().await + millis);
        let _: i64 = self.redis(&["RPUSH", &self.queue_key(), owner]).await;
        let key = self.deadlines_key();
        let _: i64 = self.redis(&["ZADD", &key, &deadline, owner]).await;
    }

    /// The processor time of the server.
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

    /// Waits until this many waiters are queued.
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

    /// Starts this many tasks that wait for a lock, one after the other.
    pub(crate) async fn queue_up(&self, lock: &FairLock, count: usize) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for number in 1..=count {
            waiting.push(waiter(lock));
            self.queued(number).await;
        }
        waiting
    }
}

/// Waits for the lock in a separate task.
pub(crate) fn wait(lock: &FairLock, owner: &Owner, options: LockOptions) -> Waiting {
    let (lock, options) = (lock.clone(), options.owner(owner));
    tokio::spawn(async move { lock.lock_with(options).await })
}

/// Likewise, for an owner of its own, for as long as it takes.
pub(crate) fn waiter(lock: &FairLock) -> Waiting {
    wait(lock, &Owner::new(), LockOptions::new())
}

/// Asserts that the task gets the lock in time, and releases it.
pub(crate) async fn pass(waiting: Waiting) {
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

pub(crate) async fn pass_all(waiting: impl IntoIterator<Item = Waiting>) {
    for waiting in waiting {
        pass(waiting).await;
    }
}
