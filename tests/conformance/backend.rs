//! Where the locks are: real servers, or engines in this process.

use std::sync::OnceLock;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, embedded::Engine};
use tests::{RedisServer, connection_over, shared_server};

pub(crate) trait Backend: Send + Sync + 'static {
    /// So many servers.
    fn open(servers: usize) -> Self;

    /// A client of one of them with default options.
    fn client(&self, server: usize) -> ClientBuilder;

    /// A plain connection to it.
    async fn connect(&self, server: usize) -> MultiplexedConnection;
}

/// The shared server, and others that are shared likewise.
pub(crate) struct Redis;

/// More than one is for locks of several servers.
static OTHERS: [OnceLock<RedisServer>; 2] = [OnceLock::new(), OnceLock::new()];

impl Redis {
    fn url(server: usize) -> String {
        match server.checked_sub(1) {
            None => shared_server().url(),
            Some(other) => OTHERS[other].get_or_init(RedisServer::start).url(),
        }
    }
}

impl Backend for Redis {
    fn open(_servers: usize) -> Self {
        Self
    }

    fn client(&self, server: usize) -> ClientBuilder {
        Client::builder().url(&Self::url(server))
    }

    async fn connect(&self, server: usize) -> MultiplexedConnection {
        let url = Self::url(server);
        let client = redis::Client::open(url).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }
}

/// Engines of the test's own.
pub(crate) struct Embedded(Vec<Engine>);

impl Backend for Embedded {
    fn open(servers: usize) -> Self {
        Self((0..servers).map(|_| Engine::new()).collect())
    }

    fn client(&self, server: usize) -> ClientBuilder {
        Client::builder().embedded(&self.0[server])
    }

    async fn connect(&self, server: usize) -> MultiplexedConnection {
        connection_over(self.0[server].connect()).await.unwrap()
    }
}
