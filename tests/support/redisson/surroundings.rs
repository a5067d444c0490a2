//! What a client has of its machine: how it connects, what its clock says, and random numbers.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::{CONNECT, timeouts};
use crate::random::random_u64;

/// A connection to a server.
pub trait RedissonStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> RedissonStream for S {}

/// Makes a connection.
type Dial = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn RedissonStream>>> + Send + Sync;

/// What a client has of its machine.
#[derive(Clone)]
pub struct Surroundings {
    reach: Reach,
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Clone)]
enum Reach {
    Url(Box<redis::Client>),
    Dial(Arc<Dial>),
}

impl Surroundings {
    /// Those of this process, with a server at this URL.
    pub(super) fn of_process(url: &str) -> RedisResult<Self> {
        Ok(Self::here(Reach::Url(Box::new(redis::Client::open(url)?))))
    }

    /// Those of this process, which connects like this.
    pub(crate) fn dialing(
        dial: impl Fn() -> BoxFuture<'static, io::Result<Box<dyn RedissonStream>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::here(Reach::Dial(Arc::new(dial)))
    }

    /// Those of a machine that connects, reads its clock (the time since the Unix epoch) and draws
    /// numbers like this.
    pub fn new(
        dial: impl Fn() -> BoxFuture<'static, io::Result<Box<dyn RedissonStream>>>
        + Send
        + Sync
        + 'static,
        now: impl Fn() -> Duration + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            reach: Reach::Dial(Arc::new(dial)),
            now: Arc::new(now),
            random: Arc::new(random),
        }
    }

    fn here(reach: Reach) -> Self {
        let now = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.expect("the clock is past 1970")
        };
        Self {
            reach,
            now: Arc::new(now),
            random: Arc::new(random_u64),
        }
    }

    /// The time since the Unix epoch, by the machine's clock.
    pub(super) fn now(&self) -> Duration {
        (self.now)()
    }

    /// 64 random bits.
    pub(super) fn random(&self) -> u64 {
        (self.random)()
    }

    /// A connection for commands.
    pub(super) async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let dial = match &self.reach {
            Reach::Url(client) => {
                return client
                    .get_multiplexed_async_connection_with_config(&timeouts())
                    .await;
            }
            Reach::Dial(dial) => dial,
        };
        in_time(async {
            let (info, stream) = (RedisConnectionInfo::default(), dial().await?);
            let made = MultiplexedConnection::new_with_config(&info, stream, timeouts()).await?;
            let (connection, driver) = made;
            tokio::spawn(driver);
            Ok(connection)
        })
        .await
    }

    /// A connection for subscriptions.
    pub(super) async fn pubsub(&self) -> RedisResult<PubSub> {
        match &self.reach {
            Reach::Url(client) => client.get_async_pubsub().await,
            Reach::Dial(dial) => {
                in_time(async {
                    let (info, stream) = (RedisConnectionInfo::default(), dial().await?);
                    PubSub::new(&info, stream).await
                })
                .await
            }
        }
    }
}

async fn in_time<T>(connecting: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match timeout(CONNECT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}
