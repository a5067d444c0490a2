//! RLock (`getLock`).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use redis::{FromRedisValue, ParsingError, RedisResult, Value};
use tokio::time::Instant;

use super::{
    Asked, RedissonClient, UNLOCK_MESSAGE, millis, prefixed, script::Script, unlock_latch, waiting,
};
use crate::lock;

/// KEYS name; ARGV lease, owner. Returns nil, or the TTL of another holder.
const ACQUIRE: Script = Script(
    "
    local free = redis.call('exists', KEYS[1]) == 0
    if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    return redis.call('pttl', KEYS[1])",
);

/// KEYS name, channel, latch; ARGV message, lease, owner, publish command, latch time. Returns 1
/// = freed, 0 = still held, nil = not held by this owner.
const RELEASE: Script = Script(
    "
    local done = redis.call('get', KEYS[3])
    if done then
        return tonumber(done)
    end
    if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
        return nil
    end
    local freed = 0
    if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[2])
    else
        redis.call('del', KEYS[1])
        redis.call(ARGV[4], KEYS[2], ARGV[1])
        freed = 1
    end
    redis.call('set', KEYS[3], freed, 'px', ARGV[5])
    return freed",
);

/// KEYS name, channel; ARGV message, publish command. Returns whether there was a lock.
const FORCE_RELEASE: Script = Script(
    "
    local there = redis.call('del', KEYS[1])
    if there == 1 then
        redis.call(ARGV[2], KEYS[2], ARGV[1])
    end
    return there",
);

/// KEYS the locks; ARGV lease, the owner of each. Returns 1 for each renewed lock, else 0.
const RENEW: Script = Script(
    "
    local renewed = {}
    for i, name in ipairs(KEYS) do
        renewed[i] = redis.call('hexists', name, ARGV[i + 1])
        if renewed[i] == 1 then
            redis.call('pexpire', name, ARGV[1])
        end
    end
    return renewed",
);

/// The answer to an unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedissonUnlock {
    /// The last hold was released: the lock is free.
    Freed,
    /// Another hold of this thread remains.
    StillHeld,
    /// `IllegalMonitorStateException`: this thread does not hold the lock.
    NotOwner,
}

impl FromRedisValue for RedissonUnlock {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(match Option::<i64>::from_redis_value(value)? {
            None => Self::NotOwner,
            Some(0) => Self::StillHeld,
            Some(_) => Self::Freed,
        })
    }
}

/// An `RLock` object of Redisson; clones are the same object.
///
/// A lock without an explicit lease is not renewed automatically: see [`renew`](Self::renew).
#[derive(Clone, Debug)]
pub struct RedissonRLock {
    pub(super) client: RedissonClient,
    pub(super) name: String,
    // `internalLockLeaseTime`: the last lease of this object.
    lease: Arc<Mutex<Duration>>,
    pub(super) asked: Asked,
}

impl RedissonRLock {
    pub(super) fn new(client: RedissonClient, name: String) -> Self {
        let lease = Arc::new(Mutex::new(client.watchdog()));
        Self {
            client,
            name,
            lease,
            asked: Asked::default(),
        }
    }

    /// The owner id of a thread in the hash.
    pub fn owner(&self, thread_id: u64) -> String {
        self.client.owner(thread_id)
    }

    /// When a call of this object last asked for the lock.
    pub fn asked_at(&self) -> Option<Instant> {
        self.asked.at()
    }

    /// `tryLock()`, or with a lease as `tryLock(0, lease)`.
    pub async fn try_lock(&self, thread_id: u64, lease: Option<Duration>) -> RedisResult<bool> {
        Ok(self.attempt(thread_id, lease).await?.is_none())
    }

    /// One run of the acquire script: `None` = acquired, else the PTTL of another holder.
    pub async fn attempt(
        &self,
        thread_id: u64,
        lease: Option<Duration>,
    ) -> RedisResult<Option<i64>> {
        let lease = lease.unwrap_or_else(|| self.client.watchdog());
        *lock(&self.lease) = lease;
        let owner = self.owner(thread_id);
        self.asked.now();
        ACQUIRE
            .run(&self.client, &[&self.name], &[&millis(lease), &owner])
            .await
    }

    /// `tryLock(wait)`, or `lock()` when `wait` is `None`: whether it was acquired.
    pub async fn lock(&self, thread_id: u64, wait: Option<Duration>) -> RedisResult<bool> {
        self.lock_for(thread_id, wait, None).await
    }

    /// `tryLock(wait, lease)`, or `lock(lease)` when `wait` is `None`: whether it was acquired.
    ///
    /// Must not be cancelled: like Redisson, it would leave its subscription.
    pub async fn lock_for(
        &self,
        thread_id: u64,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> RedisResult<bool> {
        let attempt = || self.attempt(thread_id, lease).boxed();
        waiting::acquire(&self.client, &self.channel(), wait, attempt).await
    }

    /// `unlock()`.
    pub async fn unlock(&self, thread_id: u64) -> RedisResult<RedissonUnlock> {
        let request = self.client.request_id();
        let unlocked = self.unlock_request(thread_id, &request).await?;
        // Redisson does not wait for this reply, but a test must not leave a command in flight.
        let _: i64 = self
            .client
            .command("DEL", unlock_latch(&self.name, &request))
            .await?;
        Ok(unlocked)
    }

    /// The script of an unlock; a repeat with the same request id returns the same.
    pub async fn unlock_request(
        &self,
        thread_id: u64,
        request: &str,
    ) -> RedisResult<RedissonUnlock> {
        let lease = *lock(&self.lease);
        let keys = [
            &*self.name,
            &self.channel(),
            &unlock_latch(&self.name, request),
        ];
        let (lease, owner) = (millis(lease), self.owner(thread_id));
        let latch_time = self.client.latch_time().to_string();
        let args = [
            UNLOCK_MESSAGE,
            &lease,
            &owner,
            self.client.publish(),
            &latch_time,
        ];
        RELEASE.run(&self.client, &keys, &args).await
    }

    /// `forceUnlock()`: whether there was a lock.
    pub async fn force_unlock(&self) -> RedisResult<bool> {
        let keys = [&*self.name, &self.channel()];
        FORCE_RELEASE
            .run(
                &self.client,
                &keys,
                &[UNLOCK_MESSAGE, self.client.publish()],
            )
            .await
    }

    /// The watchdog's call every third of its time; with several threads of the client that hold this
    /// lock, it names the first. Returns whether the hold still exists.
    pub async fn renew(&self, thread_ids: &[u64]) -> RedisResult<bool> {
        let first = *thread_ids.first().expect("a thread to renew for");
        let renewed = self.client.renew(&[(&self.name, first)]).await?;
        Ok(renewed == [true])
    }

    /// `isLocked()`.
    pub async fn is_locked(&self) -> RedisResult<bool> {
        self.client.command("EXISTS", &self.name).await
    }

    /// `isHeldByThread(threadId)`.
    pub async fn is_held_by(&self, thread_id: u64) -> RedisResult<bool> {
        self.client
            .command("HEXISTS", &[&self.name, &self.owner(thread_id)])
            .await
    }

    /// `getHoldCount()` of a thread.
    pub async fn hold_count(&self, thread_id: u64) -> RedisResult<u64> {
        let args = [&self.name, &self.owner(thread_id)];
        let count: Option<u64> = self.client.command("HGET", &args).await?;
        Ok(count.unwrap_or_default())
    }

    /// `remainTimeToLive()`: PTTL, -2 when there is no lock.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn remaining_ttl(&self) -> RedisResult<i64> {
        self.client.command("PTTL", &self.name).await
    }

    /// The channel of releases.
    pub fn channel(&self) -> String {
        prefixed("redisson_lock__channel", &self.name)
    }
}

impl RedissonClient {
    /// The watchdog's renewal of several locks at once: for each (name, thread) whether it is
    /// still held.
    pub async fn renew(&self, holds: &[(&str, u64)]) -> RedisResult<Vec<bool>> {
        let fields: Vec<_> = holds
            .iter()
            .map(|(name, thread_id)| (*name, self.owner(*thread_id)))
            .collect();
        self.renew_fields(&fields).await
    }

    /// As [`renew`](Self::renew), by the fields in the hashes: with another client's, what that one
    /// would send.
    pub async fn renew_fields(&self, holds: &[(&str, String)]) -> RedisResult<Vec<bool>> {
        let keys: Vec<_> = holds.iter().map(|(name, _)| *name).collect();
        let lease = millis(self.watchdog());
        let args: Vec<_> = [&*lease]
            .into_iter()
            .chain(holds.iter().map(|(_, field)| &**field))
            .collect();
        RENEW.run(self, &keys, &args).await
    }
}
