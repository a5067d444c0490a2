//! RFairLock (`getFairLock`).

use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use redis::RedisResult;
use tokio::time::Instant;

use super::{
    Asked, RedissonClient, RedissonUnlock, UNLOCK_MESSAGE, millis, prefixed, script::Script,
    unlock_latch, waiting::subscribed,
};

/// The default `fairLockWaitTimeout`, for waiters without a limit.
const FAIR_WAIT: Duration = Duration::from_secs(300);

/// KEYS name, queue, deadlines; ARGV lease, owner, wait, now. Returns nil, or how long to sleep.
const ACQUIRE: Script = Script(
    "
    local first = redis.call('lindex', KEYS[2], 0)
    while first do
        local score = redis.call('zscore', KEYS[3], first)
        if not score or tonumber(score) > tonumber(ARGV[4]) then
            break
        end
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
        first = redis.call('lindex', KEYS[2], 0)
    end
    if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[2]) then
        redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], ARGV[2])
        for _, waiter in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
            redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), waiter)
        end
        redis.call('hset', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    local rest = redis.call('pttl', KEYS[1])
    if redis.call('zscore', KEYS[3], ARGV[2]) then
        return math.max(0, rest)
    end
    local last = redis.call('lindex', KEYS[2], -1)
    if last then
        rest = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
    end
    redis.call('zadd', KEYS[3], rest + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2])
    redis.call('rpush', KEYS[2], ARGV[2])
    return rest",
);

/// KEYS name, queue, deadlines, channel prefix, latch; ARGV message, lease, owner, now, publish
/// command, latch time. Returns as RLock's.
const RELEASE: Script = Script(
    "
    local done = redis.call('get', KEYS[5])
    if done then
        return tonumber(done)
    end
    local first = redis.call('lindex', KEYS[2], 0)
    while first do
        local score = redis.call('zscore', KEYS[3], first)
        if not score or tonumber(score) > tonumber(ARGV[4]) then
            break
        end
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
        first = redis.call('lindex', KEYS[2], 0)
    end
    local freed = 1
    if redis.call('exists', KEYS[1]) == 1 then
        if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
            return nil
        end
        if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
            freed = 0
        else
            redis.call('del', KEYS[1])
        end
    end
    redis.call('set', KEYS[5], freed, 'px', ARGV[6])
    if freed == 1 and first then
        redis.call(ARGV[5], KEYS[4] .. ':' .. first, ARGV[1])
    end
    return freed",
);

/// KEYS queue, deadlines; ARGV owner, wait. A waiter gives up.
const GIVE_UP: Script = Script(
    "
    local behind = false
    for _, waiter in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
        if behind then
            redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), waiter)
        end
        behind = behind or waiter == ARGV[1]
    end
    redis.call('zrem', KEYS[2], ARGV[1])
    redis.call('lrem', KEYS[1], 0, ARGV[1])",
);

/// An `RFairLock` object of Redisson.
#[derive(Clone, Debug)]
pub struct RedissonFairLock {
    client: RedissonClient,
    name: String,
    wait_timeout: Duration,
    asked: Asked,
}

impl RedissonFairLock {
    pub(super) fn new(client: RedissonClient, name: String) -> Self {
        let wait_timeout = FAIR_WAIT;
        Self {
            client,
            name,
            wait_timeout,
            asked: Asked::default(),
        }
    }

    /// With another `fairLockWaitTimeout`.
    #[must_use]
    pub fn wait_timeout(mut self, wait_timeout: Duration) -> Self {
        self.wait_timeout = wait_timeout;
        self
    }

    /// The owner id of a thread in the queue and the hash.
    pub fn owner(&self, thread_id: u64) -> String {
        self.client.owner(thread_id)
    }

    /// When a call of this object last asked for the lock.
    pub fn asked_at(&self) -> Option<Instant> {
        self.asked.at()
    }

    /// The list of waiting owners.
    pub fn queue_key(&self) -> String {
        prefixed("redisson_lock_queue", &self.name)
    }

    /// Their deadlines.
    pub fn deadlines_key(&self) -> String {
        prefixed("redisson_lock_timeout", &self.name)
    }

    /// The channel of one waiter.
    pub fn channel_of(&self, owner: &str) -> String {
        format!("{}:{owner}", self.channel_prefix())
    }

    fn channel_prefix(&self) -> String {
        prefixed("redisson_lock__channel", &self.name)
    }

    /// One run of the acquire script, which queues the thread: `None` = acquired, else how long
    /// Redisson would sleep.
    pub async fn attempt(
        &self,
        thread_id: u64,
        wait: Option<Duration>,
    ) -> RedisResult<Option<i64>> {
        self.asked.now();
        let (queue, deadlines) = (self.queue_key(), self.deadlines_key());
        let lease = millis(self.client.watchdog());
        let wait = millis(wait.unwrap_or(self.wait_timeout));
        let args = [&*lease, &self.owner(thread_id), &wait, &self.now()];
        ACQUIRE
            .run(&self.client, &[&self.name, &queue, &deadlines], &args)
            .await
    }

    /// `tryLock(wait)`, or `lock()` when `wait` is `None`: whether it was acquired.
    pub async fn lock(&self, thread_id: u64, wait: Option<Duration>) -> RedisResult<bool> {
        let start = Instant::now();
        if self.attempt(thread_id, wait).await?.is_none() {
            return Ok(true);
        }
        let channel = self.channel_of(&self.owner(thread_id));
        let attempt = || {
            let tried = self.attempt(thread_id, wait);
            tried.map_ok(|ttl| ttl.map_or(Ok(()), Err)).boxed()
        };
        let acquired = subscribed(&self.client, &channel, (start, wait), attempt).await?;
        if acquired.is_none() {
            self.give_up(thread_id, wait).await?;
        }
        Ok(acquired.is_some())
    }

    /// The watchdog's call every third of its time. Returns whether the hold still exists.
    pub async fn renew(&self, thread_id: u64) -> RedisResult<bool> {
        let renewed = self.client.renew(&[(&self.name, thread_id)]).await?;
        Ok(renewed == [true])
    }

    /// The call of a waiter whose time is over.
    pub async fn give_up(&self, thread_id: u64, wait: Option<Duration>) -> RedisResult<()> {
        let wait = millis(wait.unwrap_or(self.wait_timeout));
        let keys = [&*self.queue_key(), &self.deadlines_key()];
        GIVE_UP
            .run(&self.client, &keys, &[&self.owner(thread_id), &wait])
            .await
    }

    /// `unlock()`.
    pub async fn unlock(&self, thread_id: u64) -> RedisResult<RedissonUnlock> {
        let latch = unlock_latch(&self.name, &self.client.request_id());
        let (queue, deadlines) = (self.queue_key(), self.deadlines_key());
        let prefix = self.channel_prefix();
        let keys = [&*self.name, &queue, &deadlines, &prefix, &latch];
        let (lease, owner) = (millis(self.client.watchdog()), self.owner(thread_id));
        let latch_time = self.client.latch_time().to_string();
        let args = [
            UNLOCK_MESSAGE,
            &lease,
            &owner,
            &self.now(),
            self.client.publish(),
            &latch_time,
        ];
        let unlocked = RELEASE.run(&self.client, &keys, &args).await?;
        let _: i64 = self.client.command("DEL", latch).await?;
        Ok(unlocked)
    }

    /// The client's clock.
    fn now(&self) -> String {
        millis(self.client.now())
    }
}
