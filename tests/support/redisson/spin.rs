//! RSpinLock (`getSpinLock`).

use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;

use super::{RedissonClient, RedissonRLock, RedissonUnlock, millis, script::Script, unlock_latch};

/// KEYS name, latch; ARGV lease, owner, latch time. Returns 1 = freed, 0 = still held, nil = not held
/// by this owner.
const RELEASE: Script = Script(
    "
    local done = redis.call('get', KEYS[2])
    if done then
        return tonumber(done)
    end
    if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
        return nil
    end
    local freed = 0
    if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[1])
    else
        redis.call('del', KEYS[1])
        freed = 1
    end
    redis.call('set', KEYS[2], freed, 'px', ARGV[3])
    return freed",
);

/// The pauses of the default back-off: they double.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(128);

/// An `RSpinLock` object of Redisson.
///
/// Acquiring, questions and renewal are those of the `RLock` of the same name.
#[derive(Clone, Debug)]
pub struct RedissonSpinLock {
    lock: RedissonRLock,
}

impl RedissonSpinLock {
    /// The common part with `RLock`: owners, attempts, questions, renewal.
    pub fn as_rlock(&self) -> &RedissonRLock {
        &self.lock
    }

    /// `tryLock(wait, lease)`, or `lock(lease)` when `wait` is `None`: whether it was acquired.
    pub async fn lock(
        &self,
        thread_id: u64,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> RedisResult<bool> {
        let start = Instant::now();
        let mut pause = FIRST;
        while !self.lock.try_lock(thread_id, lease).await? {
            if wait.is_some_and(|wait| start.elapsed() >= wait) {
                return Ok(false);
            }
            let random = self.lock.client.random() % u64::try_from(pause.as_millis()).unwrap_or(1);
            tokio::time::sleep(pause + Duration::from_millis(random)).await;
            pause = (pause * 2).min(LONGEST);
        }
        Ok(true)
    }

    /// `unlock()`.
    pub async fn unlock(&self, thread_id: u64) -> RedisResult<RedissonUnlock> {
        let latch = unlock_latch(&self.lock.name, &self.lock.client.request_id());
        let (lease, owner) = (
            millis(self.lock.client.watchdog()),
            self.lock.owner(thread_id),
        );
        let args = [&*lease, &owner, &self.lock.client.latch_time().to_string()];
        let unlocked = RELEASE
            .run(&self.lock.client, &[&self.lock.name, &latch], &args)
            .await?;
        let _: i64 = self.lock.client.command("DEL", latch).await?;
        Ok(unlocked)
    }

    /// `forceUnlock()`: whether there was a lock.
    pub async fn force_unlock(&self) -> RedisResult<bool> {
        self.lock.client.command("DEL", &self.lock.name).await
    }
}

impl RedissonClient {
    /// `getSpinLock(name)`.
    pub fn spin_lock(&self, name: impl Into<String>) -> RedissonSpinLock {
        RedissonSpinLock {
            lock: self.rlock(name),
        }
    }
}
