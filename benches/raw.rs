//! The cost of lock and unlock with only the `redis` crate: the baseline of the benchmarks.
//!
//! The two scripts do the same as Redisson's for an RLock, without the unlock latch. **Their text is
//! frozen**, so that figures of different versions can be compared. They are sent as a good user of
//! the crate would send them: loaded once, then EVALSHA on one multiplexed connection with the default
//! configuration, over a stream without Nagle's delay.
//!
//! There is no guard, no renewal, no queue, no time-out except the crate's, and no recovery from a lost
//! reply.

use std::{fmt, net::SocketAddr, sync::Arc};

use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// KEYS: 1 the lock; ARGV: 1 lease in ms, 2 owner. Returns nil = taken, else the holder's PTTL.
const ACQUIRE: &str = "\
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
return redis.call('PTTL', KEYS[1])
";

/// KEYS: 1 the lock, 2 its channel; ARGV: 1 message, 2 lease in ms, 3 owner, 4 publish command.
/// Returns nil = not the holder, 0 = still held, 1 = free.
const RELEASE: &str = "\
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local count = redis.call('HINCRBY', KEYS[1], ARGV[3], -1)
if count > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
return 1
";

const LEASE: u64 = 30_000;

/// A connection on which both scripts are loaded. Clones share it.
#[derive(Clone)]
pub struct Raw {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

impl Raw {
    /// Connects to a server, without Nagle's delay.
    ///
    /// # Errors
    ///
    /// If no server answers.
    pub async fn connect(address: SocketAddr) -> RedisResult<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream).await
    }

    /// Connects over any stream.
    ///
    /// # Errors
    ///
    /// If the other end is not a Redis.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> RedisResult<Self> {
        let mut connection = tests::connection_over(stream).await?;
        let mut load = async |text: &str| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(text);
            let sha: String = command.query_async(&mut connection).await?;
            RedisResult::Ok(sha.into())
        };
        let (acquire, release) = (load(ACQUIRE).await?, load(RELEASE).await?);
        Ok(Self {
            connection,
            acquire,
            release,
        })
    }

    /// The lock of a name, for one owner.
    #[must_use]
    pub fn lock(&self, name: &str, owner: u64) -> RawLock {
        RawLock {
            raw: self.clone(),
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            owner: format!("0f8fad5b-d9cb-469f-a165-70867728950e:{owner}"),
        }
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").finish_non_exhaustive()
    }
}

/// A lock name and an owner.
#[derive(Debug)]
pub struct RawLock {
    raw: Raw,
    name: String,
    channel: String,
    owner: String,
}

impl RawLock {
    /// Returns `None` if it was acquired, otherwise the remaining lease of the holder.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn acquire(&mut self) -> RedisResult<Option<i64>> {
        redis::cmd("EVALSHA")
            .arg(&*self.raw.acquire)
            .arg(1)
            .arg(&self.name)
            .arg(LEASE)
            .arg(&self.owner)
            .query_async(&mut self.raw.connection)
            .await
    }

    /// Returns `None` if the owner does not hold it, otherwise whether it is free now.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn release(&mut self) -> RedisResult<Option<bool>> {
        redis::cmd("EVALSHA")
            .arg(&*self.raw.release)
            .arg(2)
            .arg(&self.name)
            .arg(&self.channel)
            .arg(0)
            .arg(LEASE)
            .arg(&self.owner)
            .arg("PUBLISH")
            .query_async(&mut self.raw.connection)
            .await
    }
}
