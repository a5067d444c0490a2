//! RReadWriteLock (`getReadWriteLock`).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use redis::RedisResult;
use tokio::time::Instant;

use super::{
    Asked, RedissonClient, RedissonUnlock, UNLOCK_MESSAGE, millis, prefixed, script::Script,
    unlock_latch, waiting,
};
use crate::lock;

/// The message of the write lock, which wakes all waiters.
const READ_UNLOCK_MESSAGE: &str = "1";

/// KEYS name, lease prefix; ARGV lease, owner, owner's write field. Returns nil, or the TTL.
const READ_ACQUIRE: Script = Script(
    "
    local mode = redis.call('hget', KEYS[1], 'mode')
    if not mode then
        redis.call('hset', KEYS[1], 'mode', 'read')
        redis.call('hset', KEYS[1], ARGV[2], 1)
        redis.call('set', KEYS[2] .. ':1', 1)
        redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    local ours = mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1
    if mode == 'read' or ours then
        local key = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('set', key, 1)
        redis.call('pexpire', key, ARGV[1])
        local ttl = redis.call('pttl', KEYS[1])
        redis.call('pexpire', KEYS[1], math.max(ttl, ARGV[1]))
        return nil
    end
    return redis.call('pttl', KEYS[1])",
);

/// KEYS name, channel, lease prefix, {name}, latch; ARGV message, owner, publish command, latch
/// time. Returns 1 when freed, 0 when still held, nil when not held by this owner.
const READ_RELEASE: Script = Script(
    "
    local done = redis.call('get', KEYS[5])
    if done then
        return tonumber(done)
    end
    local mode = redis.call('hget', KEYS[1], 'mode')
    if not mode then
        redis.call(ARGV[3], KEYS[2], ARGV[1])
        redis.call('set', KEYS[5], 1, 'px', ARGV[4])
        return nil
    end
    if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
        return nil
    end
    local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
    if left == 0 then
        redis.call('hdel', KEYS[1], ARGV[2])
    end
    redis.call('del', KEYS[3] .. ':' .. (left + 1))
    if redis.call('hlen', KEYS[1]) > 1 then
        local longest = -3
        for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
            local count = tonumber(redis.call('hget', KEYS[1], field))
            if type(count) == 'number' then
                for i = count, 1, -1 do
                    local ttl = redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i)
                    longest = math.max(ttl, longest)
                end
            end
        end
        if longest > 0 then
            redis.call('pexpire', KEYS[1], longest)
            redis.call('set', KEYS[5], 0, 'px', ARGV[4])
            return 0
        end
        if mode == 'write' then
            redis.call('set', KEYS[5], 0, 'px', ARGV[4])
            return 0
        end
    end
    redis.call('del', KEYS[1])
    redis.call(ARGV[3], KEYS[2], ARGV[1])
    redis.call('set', KEYS[5], 1, 'px', ARGV[4])
    return 1",
);

/// KEYS name; ARGV lease, write field. Returns nil, or the TTL.
const WRITE_ACQUIRE: Script = Script(
    "
    local mode = redis.call('hget', KEYS[1], 'mode')
    if not mode then
        redis.call('hset', KEYS[1], 'mode', 'write')
        redis.call('hset', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
        return nil
    end
    return redis.call('pttl', KEYS[1])",
);

/// KEYS name, channel, latch; ARGV message, lease, write field, publish command, latch time.
/// Returns as READ_RELEASE.
const WRITE_RELEASE: Script = Script(
    "
    local done = redis.call('get', KEYS[3])
    if done then
        return tonumber(done)
    end
    local mode = redis.call('hget', KEYS[1], 'mode')
    if not mode then
        redis.call(ARGV[4], KEYS[2], ARGV[1])
        redis.call('set', KEYS[3], 1, 'px', ARGV[5])
        return nil
    end
    if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
        return nil
    end
    if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[2])
        redis.call('set', KEYS[3], 0, 'px', ARGV[5])
        return 0
    end
    redis.call('hdel', KEYS[1], ARGV[3])
    if redis.call('hlen', KEYS[1]) == 1 then
        redis.call('del', KEYS[1])
        redis.call(ARGV[4], KEYS[2], ARGV[1])
    else
        redis.call('hset', KEYS[1], 'mode', 'read')
    end
    redis.call('set', KEYS[3], 1, 'px', ARGV[5])
    return 1",
);

/// KEYS name, channel; ARGV message, publish command, mode. Returns whether it was in that mode.
const FORCE_RELEASE: Script = Script(
    "
    if redis.call('hget', KEYS[1], 'mode') == ARGV[3] then
        redis.call('del', KEYS[1])
        redis.call(ARGV[2], KEYS[2], ARGV[1])
        return 1
    end
    return 0",
);

/// KEYS name, {name}; ARGV watchdog, number of owners, owners. Returns whether any is there.
const READ_RENEW: Script = Script(
    "
    local there = 0
    for at = 3, 2 + tonumber(ARGV[2]) do
        local count = redis.call('hget', KEYS[1], ARGV[at])
        if count then
            there = 1
            for i = tonumber(count), 1, -1 do
                redis.call('pexpire', KEYS[2] .. ':' .. ARGV[at] .. ':rwlock_timeout:' .. i, ARGV[1])
            end
        end
    end
    if there == 1 then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
    return there",
);

/// KEYS name, the braced name; ARGV the lease, the owner. Before 4.4.0: the leases of all readers become this one.
const READ_RENEW_OF_OLD: Script = Script(
    "
    if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
        return 0
    end
    for _, reader in ipairs(redis.call('hkeys', KEYS[1])) do
        for i = tonumber(redis.call('hget', KEYS[1], reader)) or 0, 1, -1 do
            redis.call('pexpire', KEYS[2] .. ':' .. reader .. ':rwlock_timeout:' .. i, ARGV[1])
        end
    end
    return redis.call('pexpire', KEYS[1], ARGV[1])",
);

/// KEYS name. Returns whether there is a reader.
const READ_IS_LOCKED: Script = Script(
    "
    local mode = redis.call('hget', KEYS[1], 'mode')
    if mode == 'read' or mode == 'write' and redis.call('hlen', KEYS[1]) > 2 then
        return 1
    end
    return 0",
);

/// An `RReadWriteLock` object of Redisson.
#[derive(Clone, Debug)]
pub struct RedissonReadWriteLock {
    /// `readLock()`.
    pub read: RedissonModeLock,
    /// `writeLock()`.
    pub write: RedissonModeLock,
}

/// Its read lock or its write lock; clones are the same object.
///
/// A lock without an explicit lease is not renewed automatically: see [`renew`](Self::renew).
#[derive(Clone, Debug)]
pub struct RedissonModeLock {
    client: RedissonClient,
    name: String,
    writes: bool,
    // `internalLockLeaseTime`: the last lease of this object.
    lease: Arc<Mutex<Duration>>,
    asked: Asked,
}

impl RedissonReadWriteLock {
    pub(super) fn new(client: &RedissonClient, name: &str) -> Self {
        let mode = |writes| RedissonModeLock {
            client: client.clone(),
            name: name.to_owned(),
            writes,
            lease: Arc::new(Mutex::new(client.watchdog())),
            asked: Asked::default(),
        };
        Self {
            read: mode(false),
            write: mode(true),
        }
    }
}

impl RedissonModeLock {
    /// The field of a thread in the hash.
    pub fn field(&self, thread_id: u64) -> String {
        let owner = self.client.owner(thread_id);
        if self.writes {
            format!("{owner}:write")
        } else {
            owner
        }
    }

    /// The start of the keys that carry the leases of a thread's reads.
    pub fn lease_prefix(&self, thread_id: u64) -> String {
        let owner = self.client.owner(thread_id);
        format!("{}:{owner}:rwlock_timeout", self.braced())
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
        let (lease, field) = (millis(lease), self.field(thread_id));
        self.asked.now();
        if self.writes {
            let args = [&*lease, &field];
            return WRITE_ACQUIRE.run(&self.client, &[&self.name], &args).await;
        }
        let keys = [&*self.name, &self.lease_prefix(thread_id)];
        let args = [&*lease, &field, &format!("{field}:write")];
        READ_ACQUIRE.run(&self.client, &keys, &args).await
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
        let latch = unlock_latch(&self.name, &self.client.request_id());
        let (channel, field) = (self.channel(), self.field(thread_id));
        let time = self.client.latch_time().to_string();
        let unlocked = if self.writes {
            let lease = millis(*lock(&self.lease));
            let keys = [&*self.name, &channel, &latch];
            let args = [
                READ_UNLOCK_MESSAGE,
                &lease,
                &field,
                self.client.publish(),
                &time,
            ];
            WRITE_RELEASE.run(&self.client, &keys, &args).await?
        } else {
            let (prefix, braced) = (self.lease_prefix(thread_id), self.braced());
            let keys = [&*self.name, &channel, &prefix, &braced, &latch];
            let args = [UNLOCK_MESSAGE, &field, self.client.publish(), &time];
            READ_RELEASE.run(&self.client, &keys, &args).await?
        };
        // Redisson does not wait for this reply, but a test must not leave a command in flight.
        let _: i64 = self.client.command("DEL", latch).await?;
        Ok(unlocked)
    }

    /// `forceUnlock()`: whether it was held in this mode.
    pub async fn force_unlock(&self) -> RedisResult<bool> {
        let (message, mode) = match self.writes {
            true => (READ_UNLOCK_MESSAGE, "write"),
            false => (UNLOCK_MESSAGE, "read"),
        };
        let keys = [&*self.name, &self.channel()];
        FORCE_RELEASE
            .run(&self.client, &keys, &[message, self.client.publish(), mode])
            .await
    }

    /// The watchdog's call every third of its time; returns whether any of the holds still exists.
    pub async fn renew(&self, thread_ids: &[u64]) -> RedisResult<bool> {
        if self.writes {
            let first = *thread_ids.first().expect("a thread to renew for");
            let fields = [(&*self.name, self.field(first))];
            return Ok(self.client.renew_fields(&fields).await? == [true]);
        }
        let watchdog = millis(self.client.watchdog());
        let owners: Vec<_> = thread_ids.iter().map(|id| self.field(*id)).collect();
        let count = owners.len().to_string();
        let args: Vec<_> = [&*watchdog, &count]
            .into_iter()
            .chain(owners.iter().map(|owner| &**owner))
            .collect();
        let keys = [&*self.name, &self.braced()];
        READ_RENEW.run(&self.client, &keys, &args).await
    }

    /// As [`renew`](Self::renew) of a reader, before 4.4.0.
    pub async fn renew_as_of_old(&self, thread_id: u64) -> RedisResult<bool> {
        let watchdog = millis(self.client.watchdog());
        let keys = [&*self.name, &self.braced()];
        let args = [&*watchdog, &self.field(thread_id)];
        READ_RENEW_OF_OLD.run(&self.client, &keys, &args).await
    }

    /// `isLocked()`.
    pub async fn is_locked(&self) -> RedisResult<bool> {
        if self.writes {
            let mode: Option<String> = self.client.command("HGET", &[&self.name, "mode"]).await?;
            return Ok(mode.as_deref() == Some("write"));
        }
        READ_IS_LOCKED.run(&self.client, &[&self.name], &[]).await
    }

    /// `getHoldCount()` of a thread.
    pub async fn hold_count(&self, thread_id: u64) -> RedisResult<u64> {
        let args = [&self.name, &self.field(thread_id)];
        let count: Option<u64> = self.client.command("HGET", &args).await?;
        Ok(count.unwrap_or_default())
    }

    /// The channel of releases.
    pub fn channel(&self) -> String {
        prefixed("redisson_rwlock", &self.name)
    }

    fn braced(&self) -> String {
        if self.name.contains('{') {
            self.name.clone()
        } else {
            format!("{{{}}}", self.name)
        }
    }
}
