//! How `lock()` and `tryLock(wait)` wait, for locks of every kind.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use redis::RedisResult;
use tokio::time::timeout;

use super::RedissonClient;

/// Attempts until one succeeds (`None`) or the wait is over: at first, when subscribed, and then
/// upon each message or when the TTL is over that the last attempt was told.
///
/// Must not be cancelled: like Redisson's it leaves its subscription then.
pub(super) async fn acquire<'a>(
    client: &RedissonClient,
    channel: &str,
    wait: Option<Duration>,
    mut attempt: impl FnMut() -> BoxFuture<'a, RedisResult<Option<i64>>>,
) -> RedisResult<bool> {
    let start = Instant::now();
    let rest = || wait.map(|wait| wait.saturating_sub(start.elapsed()));
    if attempt().await?.is_none() {
        return Ok(true);
    }
    if rest() == Some(Duration::ZERO) {
        return Ok(false);
    }
    let latch = client.subscriptions().join(channel).await?;
    let acquired = async {
        while rest() != Some(Duration::ZERO) {
            let Some(ttl) = attempt().await? else {
                return Ok(true);
            };
            // A lock without a TTL, which Redisson never makes, is waited for by message only.
            let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
            let sleep = rest().into_iter().chain(ttl).min();
            let message = latch.acquire();
            let message = match sleep {
                Some(sleep) => timeout(sleep, message).await.ok(),
                None => Some(message.await),
            };
            if let Some(permit) = message {
                permit.expect("the latch is never closed").forget();
            }
        }
        Ok(false)
    }
    .await;
    client.subscriptions().leave(channel).await?;
    acquired
}
