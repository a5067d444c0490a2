//! RCountDownLatch (`getCountDownLatch`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use redis::RedisResult;
use tokio::time::{Instant, timeout};

use super::{RedissonClient, script::Script};

/// The channel's messages.
const ZERO: &str = "0";
const NEW_COUNT: &str = "1";

/// KEYS name, channel; ARGV message, count, publish command. Returns whether there was none.
const TRY_SET_COUNT: Script = Script(
    "
    if redis.call('exists', KEYS[1]) == 1 then
        return 0
    end
    redis.call('set', KEYS[1], ARGV[2])
    redis.call(ARGV[3], KEYS[2], ARGV[1])
    return 1",
);

/// KEYS name, channel; ARGV message, publish command.
const COUNT_DOWN: Script = Script(
    "
    local left = redis.call('decr', KEYS[1])
    if left <= 0 then
        redis.call('del', KEYS[1])
    end
    if left == 0 then
        redis.call(ARGV[2], KEYS[2], ARGV[1])
    end",
);

/// KEYS name, channel; ARGV message, publish command. Returns whether there was one.
const DELETE: Script = Script(
    "
    local there = redis.call('del', KEYS[1])
    if there == 1 then
        redis.call(ARGV[2], KEYS[2], ARGV[1])
    end
    return there",
);

/// An `RCountDownLatch` object of Redisson.
#[derive(Clone, Debug)]
pub struct RedissonCountDownLatch {
    client: RedissonClient,
    name: String,
    channel: String,
    waiting: Arc<AtomicBool>,
}

impl RedissonCountDownLatch {
    pub(super) fn new(client: RedissonClient, name: String) -> Self {
        Self {
            client,
            // Whatever the name contains.
            channel: format!("redisson_countdownlatch__channel__{{{name}}}"),
            name,
            waiting: Arc::default(),
        }
    }

    /// `trySetCount(count)`.
    pub async fn try_set_count(&self, count: i64) -> RedisResult<bool> {
        let args = [NEW_COUNT, &count.to_string(), self.client.publish()];
        let keys = [&*self.name, &self.channel];
        TRY_SET_COUNT.run(&self.client, &keys, &args).await
    }

    /// `countDown()`.
    pub async fn count_down(&self) -> RedisResult<()> {
        let keys = [&*self.name, &self.channel];
        COUNT_DOWN
            .run(&self.client, &keys, &[ZERO, self.client.publish()])
            .await
    }

    /// `getCount()`.
    pub async fn count(&self) -> RedisResult<i64> {
        let count: Option<i64> = self.client.command("GET", &self.name).await?;
        Ok(count.unwrap_or_default())
    }

    /// `delete()`.
    pub async fn delete(&self) -> RedisResult<bool> {
        let keys = [&*self.name, &self.channel];
        DELETE
            .run(&self.client, &keys, &[NEW_COUNT, self.client.publish()])
            .await
    }

    /// Whether a call of [`wait`](Self::wait) has looked twice, and sleeps.
    pub fn is_asleep(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// `await(wait)`: looks, subscribes, looks again, and then looks only after a message that opens it.
    pub async fn wait(&self, wait: Duration) -> RedisResult<bool> {
        let end = Instant::now() + wait;
        if self.count().await? == 0 {
            return Ok(true);
        }
        let mut pubsub = self.client.inner.surroundings.pubsub().await?;
        pubsub.subscribe(&self.channel).await?;
        let mut messages = pubsub.into_on_message();
        while self.count().await? > 0 {
            // The local latch: 0 opens it, and 1 closes it.
            self.waiting.store(true, Ordering::Release);
            let rest = end.saturating_duration_since(Instant::now());
            let opened = async {
                while let Some(message) = messages.next().await {
                    if message.get_payload::<String>().as_deref() == Ok(ZERO) {
                        return;
                    }
                }
            };
            let opened = timeout(rest, opened).await;
            self.waiting.store(false, Ordering::Release);
            if opened.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
