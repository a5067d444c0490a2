//! Other lock crates, used as in their documentation.
//!
//! They differ in what they do: docs/peers.md has the promises and the observed behaviour of each.

use std::time::Duration;

use async_redis_lock::{Locker, Options};
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};
use raw::Raw;
use redisson::{AsyncRLock, AsyncRedissonClient, RedissonConfig};
use rslock::LockManager;
use tests::RedisServer;

use crate::{
    rounds::{Effort, interleaved},
    scenes::{Scene, client},
    sides::{Pair, Side, Tasks},
};

const LEASE: Duration = Duration::from_secs(30);
/// As many tasks as in the scene without peers.
const TASKS: usize = 32;

struct Rslock {
    manager: LockManager,
    name: &'static str,
}

impl Pair for Rslock {
    async fn pair(&mut self) {
        let lock = self.manager.acquire_no_guard(self.name, LEASE).await;
        let lock = lock.expect("it comes free");
        self.manager.unlock(&lock).await;
    }
}

impl Pair for AsyncRLock {
    async fn pair(&mut self) {
        self.lock().await.expect("it comes free");
        // False also after a release.
        self.unlock().await.expect("the server answers");
    }
}

impl Pair for RedisDistributedLock {
    async fn pair(&mut self) {
        let handle = self.try_acquire().await.expect("the server answers");
        let handle = handle.expect("the lock is free");
        handle.release().await.expect("the server answers");
    }
}

struct AsyncRedisLock {
    locker: Locker,
    options: Options,
    name: &'static str,
}

impl Pair for AsyncRedisLock {
    async fn pair(&mut self) {
        let (locker, options) = (&self.locker, &self.options);
        let lock = locker.acquire_with_options(options, self.name).await;
        let lock = lock.expect("it comes free");
        lock.release().await.expect("the server answers");
    }
}

/// The peers connected, each with its defaults, unless that fails.
struct Peers {
    manager: LockManager,
    redisson: AsyncRedissonClient,
    provider: RedisLockProvider,
    locker: Locker,
}

impl Peers {
    async fn connect(server: &RedisServer) -> Self {
        let url = server.url();
        // With its default of 10 connections, its circuit breaker refused 32 tasks.
        let config = RedissonConfig::single_server(&url).with_pool_size(64);
        let redisson = AsyncRedissonClient::new(config).await;
        let provider = RedisLockProvider::new(&url).await;
        let locker = Locker::from_redis_url(&url).await;
        Self {
            manager: LockManager::new(vec![url]),
            redisson: redisson.expect("the server answers"),
            provider: provider.expect("the server answers"),
            locker: locker.expect("the server answers"),
        }
    }

    fn rslock(&self, name: &'static str, tasks: usize) -> Box<dyn Side> {
        let manager = self.manager.clone();
        let lock = |_| Rslock {
            manager: manager.clone(),
            name,
        };
        Tasks::boxed("rslock", (0..tasks).map(lock))
    }

    fn redisson(&self, name: &str, tasks: usize) -> Box<dyn Side> {
        Tasks::boxed("redisson", (0..tasks).map(|_| self.redisson.get_lock(name)))
    }

    fn async_redis_lock(&self, name: &'static str, tasks: usize) -> Box<dyn Side> {
        let lock = |_| AsyncRedisLock {
            locker: self.locker.clone(),
            options: Options::new().timeout(None),
            name,
        };
        Tasks::boxed("async-redis-l.", (0..tasks).map(lock))
    }
}

pub(crate) async fn uncontended(server: &RedisServer, effort: Effort) -> Scene {
    let client = client(server).await;
    let raw = Raw::connect(server.address()).await;
    let raw = raw.expect("the server answers");
    let peers = Peers::connect(server).await;
    let distributed = peers.provider.create_lock("bench:peers:distributed-lock");
    let mut sides = [
        Tasks::boxed("redlock-rt", [client.rlock("bench:peers:ours")].into_iter()),
        peers.rslock("bench:peers:rslock", 1),
        peers.redisson("bench:peers:redisson", 1),
        Tasks::boxed("distributed-l.", [distributed].into_iter()),
        peers.async_redis_lock("bench:peers:async-redis-lock", 1),
        Tasks::boxed("raw redis", [raw.lock("bench:peers:raw", 1)].into_iter()),
    ];
    Scene {
        name: "peers",
        about: "1 task",
        goal: None,
        rates: interleaved(&mut sides, effort).await,
    }
}

/// Without distributed-lock-redis, whose `acquire` does not wait. With long turns, since the others
/// retry after up to a fifth of a second.
pub(crate) async fn contended(server: &RedisServer) -> Scene {
    let client = client(server).await;
    let peers = Peers::connect(server).await;
    let ours = (0..TASKS).map(|_| client.rlock("bench:peers:contended:ours"));
    let mut sides = [
        peers.rslock("bench:peers:contended:rslock", TASKS),
        peers.redisson("bench:peers:contended:redisson", TASKS),
        peers.async_redis_lock("bench:peers:contended:async-redis-lock", TASKS),
        Tasks::boxed("redlock-rt", ours),
    ];
    let effort = Effort {
        rounds: 3,
        turns: 1,
        slice: Duration::from_secs(2),
    };
    Scene {
        name: "peers_contended",
        about: "32 tasks of one process, one key",
        goal: None,
        rates: interleaved(&mut sides, effort).await,
    }
}
