//! RFencedLock (`getFencedLock`).

use std::time::Duration;

use futures::FutureExt;
use redis::RedisResult;

use super::{
    RedissonClient, RedissonRLock, RedissonUnlock, millis, prefixed,
    script::Script,
    waiting::{Attempt, wait_for},
};

/// KEYS name, counter; ARGV lease, owner. Returns {-1, token}, or {the TTL of another holder, -1}.
const ACQUIRE: Script = Script(
    "
    local mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1
    if mine or redis.call('exists', KEYS[1]) == 0 then
        local token = redis.call('incr', KEYS[2])
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return {-1, token}
    end
    return {redis.call('pttl', KEYS[1]), -1}",
);

/// An `RFencedLock` object of Redisson.
///
/// Except for acquiring, it is the `RLock` of the same name.
#[derive(Clone, Debug)]
pub struct RedissonFencedLock {
    lock: RedissonRLock,
}

impl RedissonFencedLock {
    /// The methods of `RLock`: owners, questions, channel, renewal, `forceUnlock()`.
    pub fn as_rlock(&self) -> &RedissonRLock {
        &self.lock
    }

    /// One run of the script of `tryLockAndGetToken()`: the token, or the PTTL of another holder. A
    /// re-entry counts too.
    pub async fn attempt(
        &self,
        thread_id: u64,
        lease: Option<Duration>,
    ) -> RedisResult<Attempt<i64>> {
        let lease = lease.unwrap_or_else(|| self.lock.client.watchdog());
        self.lock.asked.now();
        let keys = [&*self.lock.name, &self.counter()];
        let args = [&*millis(lease), &self.lock.owner(thread_id)];
        let (ttl, token): (i64, i64) = ACQUIRE.run(&self.lock.client, &keys, &args).await?;
        Ok(if token == -1 { Err(ttl) } else { Ok(token) })
    }

    /// `tryLockAndGetToken(wait)`, or `lockAndGetToken()` when `wait` is `None`: the token, if it
    /// was acquired.
    pub async fn lock_and_get_token(
        &self,
        thread_id: u64,
        wait: Option<Duration>,
    ) -> RedisResult<Option<i64>> {
        let channel = self.lock.channel();
        let attempt = || self.attempt(thread_id, None).boxed();
        wait_for(&self.lock.client, &channel, wait, attempt).await
    }

    /// `unlock()`.
    pub async fn unlock(&self, thread_id: u64) -> RedisResult<RedissonUnlock> {
        self.lock.unlock(thread_id).await
    }

    /// `getToken()`.
    pub async fn token(&self) -> RedisResult<Option<i64>> {
        self.lock.client.command("GET", &self.counter()).await
    }

    /// The key of the counter.
    pub fn counter(&self) -> String {
        prefixed("redisson_lock_token", &self.lock.name)
    }
}

impl RedissonClient {
    /// `getFencedLock(name)`.
    pub fn fenced_lock(&self, name: impl Into<String>) -> RedissonFencedLock {
        RedissonFencedLock {
            lock: self.rlock(name),
        }
    }
}
