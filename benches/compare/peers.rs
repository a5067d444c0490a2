//! Other lock crates, used as in their documentation.
//!
//! They differ in what they do: docs/peers.md has the promises and the observed behaviour of each.

use std::time::{Duration, Instant};

use async_redis_lock::{Locker, Options};
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};
use redisson::{AsyncRLock, AsyncRedissonClient, RedissonConfig};
use rslock::LockManager;

use crate::{
    held::{Keeper, Keepers},
    pair::Pair,
    sides::{Side, Tasks},
};

const LEASE: Duration = Duration::from_secs(30);
/// Redisson's breaker refuses tasks that find no connection: 32 with its default of 10 connections.
const CONNECTIONS: u32 = 256;

struct Rslock {
    manager: LockManager,
    name: String,
}

impl Pair for Rslock {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        let lock = self
            .manager
            .acquire_no_guard(self.name.as_str(), LEASE)
            .await;
        let lock = lock.expect("it comes free");
        let held = Instant::now();
        self.manager.unlock(&lock).await;
        held
    }
}

impl Pair for AsyncRLock {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        self.lock().await.expect("it comes free");
        let held = Instant::now();
        // False also after a release.
        self.unlock().await.expect("the server answers");
        held
    }
}

impl Pair for RedisDistributedLock {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        let handle = self.try_acquire().await.expect("the server answers");
        let handle = handle.expect("the lock is free");
        let held = Instant::now();
        handle.release().await.expect("the server answers");
        held
    }
}

struct AsyncRedisLock {
    locker: Locker,
    options: Options,
    name: String,
}

impl Pair for AsyncRedisLock {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        let (locker, options) = (&self.locker, &self.options);
        let lock = locker.acquire_with_options(options, &self.name).await;
        let lock = lock.expect("it comes free");
        let held = Instant::now();
        lock.release().await.expect("the server answers");
        held
    }
}

/// The peers connected, each with its defaults, unless that fails.
pub(crate) struct Peers {
    manager: LockManager,
    redisson: AsyncRedissonClient,
    provider: RedisLockProvider,
    locker: Locker,
}

impl Peers {
    pub(crate) async fn connect(url: &str) -> Self {
        let config = RedissonConfig::single_server(url).with_pool_size(CONNECTIONS);
        let redisson = AsyncRedissonClient::new(config).await;
        let provider = RedisLockProvider::new(url).await;
        let locker = Locker::from_redis_url(url).await;
        Self {
            manager: LockManager::new(vec![url.to_owned()]),
            redisson: redisson.expect("the server answers"),
            provider: provider.expect("the server answers"),
            locker: locker.expect("the server answers"),
        }
    }

    /// Ways to lock a name and to keep the lock, as each crate does by default.
    pub(crate) async fn keepers(url: &str) -> Keepers {
        let Self {
            manager,
            redisson,
            provider,
            locker,
        } = Self::connect(url).await;
        let rslock = Keeper::new(true, move |name: String| {
            let manager = manager.clone();
            async move {
                let lock = manager.acquire_no_guard(name.as_str(), LEASE).await;
                lock.expect("it comes free")
            }
        });
        let redisson = Keeper::new(true, move |name: String| {
            let lock = redisson.get_lock(&name);
            async move {
                lock.lock().await.expect("it comes free");
                lock
            }
        });
        let distributed = Keeper::new(false, move |name: String| {
            let lock = provider.create_lock(&name);
            async move {
                let handle = lock.try_acquire().await.expect("the server answers");
                handle.expect("it is free")
            }
        });
        let async_redis_lock = Keeper::new(true, move |name: String| {
            let locker = locker.clone();
            async move {
                let options = Options::new().timeout(None);
                let lock = locker.acquire_with_options(&options, &name).await;
                lock.expect("it comes free")
            }
        });
        Keepers::from([
            ("rslock", rslock),
            ("redisson", redisson),
            ("distributed-lock-redis", distributed),
            ("async-redis-lock", async_redis_lock),
        ])
    }

    /// Tasks with a key each.
    pub(crate) fn distinct(&self, tasks: u64) -> Vec<Box<dyn Side>> {
        let names: Vec<String> = (0..tasks).map(|task| format!("{task:03}")).collect();
        let distributed = names.iter().map(|name| {
            self.provider
                .create_lock(&format!("bench:distributed:{name}"))
        });
        let distributed = Tasks::boxed("distributed-lock-redis", distributed);
        let mut sides = self.waiting(&names);
        sides.push(distributed);
        sides
    }

    /// Tasks that want one key. Without distributed-lock-redis, whose `acquire` does not wait.
    pub(crate) fn contended(&self, tasks: usize) -> Vec<Box<dyn Side>> {
        self.waiting(&vec!["one".to_owned(); tasks])
    }

    fn waiting(&self, names: &[String]) -> Vec<Box<dyn Side>> {
        let rslock = |name| Rslock {
            manager: self.manager.clone(),
            name: format!("bench:rslock:{name}"),
        };
        let redisson = |name| self.redisson.get_lock(&format!("bench:redisson:{name}"));
        let async_redis_lock = |name| AsyncRedisLock {
            locker: self.locker.clone(),
            options: Options::new().timeout(None),
            name: format!("bench:async-redis-lock:{name}"),
        };
        vec![
            Tasks::boxed("rslock", names.iter().map(rslock)),
            Tasks::boxed("redisson", names.iter().map(redisson)),
            Tasks::boxed("async-redis-lock", names.iter().map(async_redis_lock)),
        ]
    }
}
