//! `RSemaphore` and `RPermitExpirableSemaphore`.

use std::time::Duration;

use futures::FutureExt;
use redis::RedisResult;
use tokio::time::Instant;

use super::{Asked, RedissonClient, millis, prefixed, script::Script, waiting};

/// Redisson's mark of a permit without a lease.
const NO_LEASE: &str = "922337203685477";

/// KEYS name, channel; ARGV permits, publish command.
const SET: Script = Script(
    "
    if redis.call('exists', KEYS[1]) == 1 then
        return 0
    end
    redis.call('set', KEYS[1], ARGV[1])
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return 1",
);

/// KEYS name; ARGV permits. Returns 1 or 0.
const ACQUIRE: Script = Script(
    "
    local free = tonumber(redis.call('get', KEYS[1]) or '0')
    if free < tonumber(ARGV[1]) then
        return 0
    end
    redis.call('decrby', KEYS[1], ARGV[1])
    return 1",
);

/// KEYS name, channel; ARGV permits, publish command.
const RELEASE: Script = Script(
    "
    local free = redis.call('incrby', KEYS[1], ARGV[1])
    redis.call(ARGV[2], KEYS[2], free)",
);

/// KEYS name, zset, channel; ARGV n, expiry, now, no lease, publish command, ids. Returns OK, a colon
/// and the lowest score, or nil.
const ACQUIRE_LEASED: Script = Script(
    "
    local over = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
    if #over > 0 then
        redis.call('zrem', KEYS[2], unpack(over))
        local free = redis.call('incrby', KEYS[1], #over)
        if free > 0 then
            redis.call(ARGV[5], KEYS[3], free)
        end
    end
    if tonumber(redis.call('get', KEYS[1]) or '0') >= tonumber(ARGV[1]) then
        redis.call('decrby', KEYS[1], ARGV[1])
        for i = 6, #ARGV do
            redis.call('zadd', KEYS[2], ARGV[2], ARGV[i])
        end
        local ttl = redis.call('pttl', KEYS[1])
        if ttl > 0 then
            redis.call('pexpire', KEYS[2], ttl)
        end
        return 'OK'
    end
    local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
    if first[2] and first[2] ~= ARGV[4] then
        return ':' .. first[2]
    end
    return nil",
);

/// KEYS name, channel, zset; ARGV id, 1, now, publish command. Returns 1 or 0.
const RELEASE_LEASED: Script = Script(
    "
    local score = redis.call('zscore', KEYS[3], ARGV[1])
    if redis.call('zrem', KEYS[3], ARGV[1]) == 0 then
        return 0
    end
    local free = redis.call('incrby', KEYS[1], ARGV[2])
    redis.call(ARGV[4], KEYS[2], free)
    return tonumber(score) <= tonumber(ARGV[3]) and 0 or 1",
);

/// An `RSemaphore` object of Redisson.
#[derive(Clone, Debug)]
pub struct RedissonSemaphore {
    client: RedissonClient,
    name: String,
}

impl RedissonSemaphore {
    pub(super) fn new(client: RedissonClient, name: String) -> Self {
        Self { client, name }
    }

    /// `trySetPermits(permits)`.
    pub async fn try_set_permits(&self, permits: u32) -> RedisResult<bool> {
        let keys = [&*self.name, &self.channel()];
        let args = [&*permits.to_string(), self.client.publish()];
        SET.run(&self.client, &keys, &args).await
    }

    /// `tryAcquire(permits)`.
    pub async fn try_acquire(&self, permits: u32) -> RedisResult<bool> {
        let permits = permits.to_string();
        ACQUIRE.run(&self.client, &[&self.name], &[&permits]).await
    }

    /// `tryAcquire(permits, wait)`, or `acquire(permits)` when `wait` is `None`.
    pub async fn acquire(&self, permits: u32, wait: Option<Duration>) -> RedisResult<bool> {
        let attempt = || {
            // After a refusal it waits only for a message.
            let tried = self.try_acquire(permits);
            async { Ok((!tried.await?).then_some(-1)) }.boxed()
        };
        waiting::acquire(&self.client, &self.channel(), wait, attempt).await
    }

    /// `release(permits)`.
    pub async fn release(&self, permits: u32) -> RedisResult<()> {
        let keys = [&*self.name, &self.channel()];
        let args = [&*permits.to_string(), self.client.publish()];
        RELEASE.run(&self.client, &keys, &args).await
    }

    /// `availablePermits()`.
    pub async fn available(&self) -> RedisResult<i64> {
        let free: Option<i64> = self.client.command("GET", &self.name).await?;
        Ok(free.unwrap_or_default())
    }

    /// The channel of permits.
    pub fn channel(&self) -> String {
        prefixed("redisson_sc", &self.name)
    }
}

/// An `RPermitExpirableSemaphore` object of Redisson.
#[derive(Clone, Debug)]
pub struct RedissonPermits {
    plain: RedissonSemaphore,
    /// The time by which the clock of this client is ahead.
    ahead: Duration,
    asked: Asked,
}

impl RedissonPermits {
    pub(super) fn new(client: RedissonClient, name: String, ahead: Duration) -> Self {
        Self {
            plain: RedissonSemaphore::new(client, name),
            ahead,
            asked: Asked::default(),
        }
    }

    fn now(&self) -> Duration {
        self.plain.client.now() + self.ahead
    }

    fn leases(&self) -> String {
        let name = &self.plain.name;
        if name.contains('{') {
            format!("{name}:timeout")
        } else {
            format!("{{{name}}}:timeout")
        }
    }

    /// `trySetPermits(permits)`.
    pub async fn try_set_permits(&self, permits: u32) -> RedisResult<bool> {
        self.plain.try_set_permits(permits).await
    }

    /// One run of the acquire script: the id, or the longest sleep of a waiter.
    pub async fn attempt(
        &self,
        lease: Option<Duration>,
    ) -> RedisResult<Result<[u8; 16], Option<Duration>>> {
        let mut id = [0; 16];
        let client = &self.plain.client;
        id[..8].copy_from_slice(&client.random().to_be_bytes());
        id[8..].copy_from_slice(&client.random().to_be_bytes());
        self.asked.now();
        let now = self.now();
        let expiry = lease.map_or_else(|| NO_LEASE.to_owned(), |lease| millis(now + lease));
        let (keys, now_ms) = (
            [&*self.plain.name, &self.leases(), &self.plain.channel()],
            millis(now),
        );
        let mut args: Vec<&[u8]> = [b"1".as_slice(), expiry.as_bytes(), now_ms.as_bytes()].to_vec();
        args.extend([
            NO_LEASE.as_bytes(),
            self.plain.client.publish().as_bytes(),
            &id,
        ]);
        let answer: Option<String> = ACQUIRE_LEASED
            .run_raw(&self.plain.client, &keys, &args)
            .await?;
        Ok(match answer.as_deref() {
            Some("OK") => Ok(id),
            Some(score) => {
                let score = score.trim_start_matches(':').parse().expect("a score");
                Err(Some(Duration::from_millis(score).saturating_sub(now)))
            }
            None => Err(None),
        })
    }

    /// When a call of this object last asked for a permit.
    pub fn asked_at(&self) -> Option<Instant> {
        self.asked.at()
    }

    /// `acquire(lease)`: waits without a limit; returns the id in hexadecimal.
    pub async fn acquire(&self, lease: Option<Duration>) -> RedisResult<String> {
        let id = self.try_acquire(None, lease).await?;
        Ok(id.expect("it waits until it has one"))
    }

    /// `tryAcquire(wait, lease)`, or `acquire(lease)` when `wait` is `None`: the id in hexadecimal,
    /// if it had a permit in time.
    pub async fn try_acquire(
        &self,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> RedisResult<Option<String>> {
        let ms = |rest: Duration| i64::try_from(rest.as_millis()).expect("it is not so far away");
        let attempt = || {
            async {
                let tried = self.attempt(lease).await?;
                let tried = tried.map_err(|rest| rest.map_or(-1, ms));
                Ok(tried.map(|id| hex(&id)))
            }
            .boxed()
        };
        waiting::wait_for(&self.plain.client, &self.plain.channel(), wait, attempt).await
    }

    /// `tryRelease(id)`.
    pub async fn try_release(&self, id: &str) -> RedisResult<bool> {
        let digits = |at| u8::from_str_radix(&id[at..at + 2], 16).expect("hexadecimal");
        let id: Vec<u8> = (0..id.len()).step_by(2).map(digits).collect();
        let keys = [&*self.plain.name, &self.plain.channel(), &self.leases()];
        let now = millis(self.now());
        let args = [
            &*id,
            b"1",
            now.as_bytes(),
            self.plain.client.publish().as_bytes(),
        ];
        RELEASE_LEASED
            .run_raw(&self.plain.client, &keys, &args)
            .await
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
