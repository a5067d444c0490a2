//! The lock clients, one an instance as in real life, that all meet in one place.

use std::convert::Infallible;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_rt::embedded::{Engine, Listener};
use redlock_rt::{Client, Credentials, Error};
use uuid::Uuid;

/// How long a lock outlives an instance that dies: users wait for it then.
const LEASE: Duration = Duration::from_secs(5);

/// Clients, and where they meet.
#[derive(Debug)]
pub(crate) struct Locks {
    pub(crate) clients: Vec<Client>,
    /// The URL of Redis and the prefix of names, for locks that are taken by a client of their own.
    pub(crate) redis: Option<(String, String)>,
    /// The engine of this process, served for as long as this lives.
    _listener: Option<Listener>,
}

/// Why there are no clients.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocksError {
    #[error("--redis: {0}")]
    Redis(Error),
    #[error("{0}")]
    Embedded(Error),
    #[error("no port for the embedded engine: {0}")]
    NoPort(io::Error),
}

impl Locks {
    /// Makes that many clients of the Redis server at `url`.
    ///
    /// # Errors
    ///
    /// The URL is none, or nothing that speaks Redis answers there.
    pub(crate) async fn connect(
        url: &str,
        namespace: &str,
        count: u32,
    ) -> Result<Self, LocksError> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let client = Client::builder().url(url).namespace(namespace).lease(LEASE);
            clients.push(client.connect().await.map_err(LocksError::Redis)?);
        }
        Ok(Self {
            clients,
            redis: Some((url.to_owned(), namespace.to_owned())),
            _listener: None,
        })
    }

    /// Makes that many clients of a new engine in this process, which listens too if anybody has a
    /// client of their own.
    pub(crate) async fn embedded(count: u32, listen: bool) -> Result<Self, LocksError> {
        // Other users of this machine can connect, too.
        let password = Uuid::new_v4().simple().to_string();
        let engine = Engine::with_password(&password);
        let login = Credentials::new(&password);
        let mut clients = Vec::new();
        for _ in 0..count {
            let login = login.clone();
            let login = move || std::future::ready(Ok::<_, Infallible>(login.clone()));
            let client = Client::builder().embedded(&engine).credentials(login);
            let client = client.lease(LEASE);
            clients.push(client.build().map_err(LocksError::Embedded)?);
        }
        let listener = if listen {
            Some(
                engine
                    .listen("127.0.0.1:0")
                    .await
                    .map_err(LocksError::NoPort)?,
            )
        } else {
            None
        };
        let url = |listener: &Listener| format!("redis://:{password}@{}", listener.local_addr());
        let redis = listener.as_ref().map(url);
        Ok(Self {
            clients,
            redis: redis.map(|url| (url, "raw".to_owned())),
            _listener: listener,
        })
    }
}

/// Keeps the locks of this run apart from those of other runs on the same server.
pub(crate) fn namespace() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("seckill-{}-{}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_on_the_machine_could_free_the_locks_of_an_engine_that_listens() {
        let locks = Locks::embedded(1, true).await.unwrap();
        let _guard = locks.clients[0].rlock("a").lock().await.unwrap();
        let (url, _) = locks.redis.as_ref().unwrap();
        let ask = async |url: &str| -> redis::RedisResult<u64> {
            let redis = redis::Client::open(url)?;
            let mut redis = redis.get_multiplexed_async_connection().await?;
            redis::cmd("EXISTS").arg("a").query_async(&mut redis).await
        };
        assert!(ask(url).await.is_ok());
        let address = url.split('@').next_back().unwrap();
        let address = address.trim_start_matches("redis://");
        assert!(ask(&format!("redis://{address}")).await.is_err());
    }
}
