//! Waits like a thread of Redisson for a lock that announces its releases.

use std::time::Duration;

use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use redis::RedisResult;
use tokio::time::{Instant, timeout};

use super::RedissonClient;

/// As [`wait_for`], for scripts that return nil if they acquired; returns whether that was in time.
pub(super) async fn acquire<'a>(
    client: &RedissonClient,
    channel: &str,
    wait: Option<Duration>,
    attempt: impl Fn() -> BoxFuture<'a, RedisResult<Option<i64>>>,
) -> RedisResult<bool> {
    let attempt = || attempt().map_ok(|ttl| ttl.map_or(Ok(()), Err)).boxed();
    let acquired = wait_for(client, channel, wait, attempt).await?;
    Ok(acquired.is_some())
}

/// One run of an acquire script: acquired, or the TTL of another holder.
pub(super) type Attempt<T> = Result<T, i64>;

/// Tries, subscribes, and tries again after each message and at the end of the TTL; `None` at the end
/// of the wait.
///
/// Must not be cancelled: like Redisson, it would leave its subscription.
pub(super) async fn wait_for<'a, T>(
    client: &RedissonClient,
    channel: &str,
    wait: Option<Duration>,
    attempt: impl Fn() -> BoxFuture<'a, RedisResult<Attempt<T>>>,
) -> RedisResult<Option<T>> {
    let start = Instant::now();
    if let Ok(acquired) = attempt().await? {
        return Ok(Some(acquired));
    }
    if wait.is_some_and(|wait| start.elapsed() >= wait) {
        return Ok(None);
    }
    subscribed(client, channel, (start, wait), attempt).await
}

/// The rest of that, after a first try, for a wait that began at `start`.
pub(super) async fn subscribed<'a, T>(
    client: &RedissonClient,
    channel: &str,
    (start, wait): (Instant, Option<Duration>),
    attempt: impl Fn() -> BoxFuture<'a, RedisResult<Attempt<T>>>,
) -> RedisResult<Option<T>> {
    let rest = || wait.map(|wait| wait.saturating_sub(start.elapsed()));
    let latch = client.subscriptions().join(channel).await?;
    let acquired = async {
        while rest() != Some(Duration::ZERO) {
            let ttl = match attempt().await? {
                Ok(acquired) => return Ok(Some(acquired)),
                // For a lock without a TTL, which Redisson never creates, it waits only for a message.
                Err(ttl) => u64::try_from(ttl).ok().map(Duration::from_millis),
            };
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
        Ok(None)
    }
    .await;
    client.subscriptions().leave(channel).await?;
    acquired
}
