//! The locks that one writes before one has a library, with what is wrong with each of them.
//!
//! They are here to be seen failing (`--lock setnx`, `setnx-ttl`, `token`) and for nothing else.

use std::fmt;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{LockKind, ShopError};

/// The time to live of the locks that have one.
const TIME_TO_LIVE: Duration = Duration::from_millis(150);

/// How long a request waits for the lock, and how far apart its tries are.
const WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Deletes the key if it has the token still.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A connection to Redis, made when first needed, and where keys of this shop begin.
pub(super) struct RawLocks {
    redis: Option<(String, String)>,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// A lock that is held, as far as its holder knows: nothing tells it otherwise.
#[derive(Debug)]
pub(super) struct Held {
    kind: LockKind,
    key: String,
    token: String,
}

impl RawLocks {
    pub(super) fn new(redis: Option<(String, String)>) -> Self {
        Self {
            redis,
            connection: Mutex::default(),
        }
    }

    /// Tries until the key could be set, for a second at most.
    pub(super) async fn lock(&self, kind: LockKind, name: &str) -> Result<Held, ShopError> {
        let prefix = self.redis.as_ref().map_or("", |(_, prefix)| prefix);
        let held = Held {
            kind,
            key: format!("{prefix}:{name}"),
            token: Uuid::new_v4().to_string(),
        };
        let mut set = redis::cmd("SET");
        set.arg(&held.key).arg(&held.token).arg("NX");
        if kind != LockKind::Setnx {
            set.arg("PX").arg(TIME_TO_LIVE.as_millis() as u64);
        }
        let began = Instant::now();
        loop {
            let done: Option<String> = self.send(&set).await?;
            if done.is_some() {
                return Ok(held);
            }
            if began.elapsed() >= WAIT {
                return Err(ShopError::RawLockTaken);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes the key. Without a token to compare, this may be the key of another request.
    pub(super) async fn unlock(&self, held: Held) -> Result<(), ShopError> {
        let mut end = match held.kind {
            LockKind::Token => redis::cmd("EVAL"),
            _ => redis::cmd("DEL"),
        };
        match held.kind {
            LockKind::Token => end
                .arg(COMPARE_AND_DELETE)
                .arg(1)
                .arg(&held.key)
                .arg(&held.token),
            _ => end.arg(&held.key),
        };
        let _: u64 = self.send(&end).await?;
        Ok(())
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ShopError> {
        let mut redis = self.connection().await?;
        let sent = command.query_async(&mut redis).await;
        if sent.is_err() {
            // The next call makes another one.
            *self.connection.lock().await = None;
        }
        Ok(sent?)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, ShopError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let missing = || (redis::ErrorKind::InvalidClientConfig, "no Redis to lock on");
        let (url, _) = self
            .redis
            .as_ref()
            .ok_or_else(|| redis::RedisError::from(missing()))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        let made = redis::Client::open(url.as_str())?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(connection.insert(made).clone())
    }
}

impl fmt::Debug for RawLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLocks").finish_non_exhaustive()
    }
}
