//! Where the locks are: a real server, or an engine in this process.

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, embedded::Engine};
use tests::{connection_over, shared_server};

pub(crate) trait Backend: Send + Sync + 'static {
    fn open() -> Self;

    /// A client of it with default options.
    fn client(&self) -> ClientBuilder;

    /// A plain connection to it.
    async fn connect(&self) -> MultiplexedConnection;
}

/// The shared server.
pub(crate) struct Redis;

impl Backend for Redis {
    fn open() -> Self {
        Self
    }

    fn client(&self) -> ClientBuilder {
        Client::builder().url(&shared_server().url())
    }

    async fn connect(&self) -> MultiplexedConnection {
        shared_server().connect().await.unwrap()
    }
}

/// An engine of the test's own.
pub(crate) struct Embedded(Engine);

impl Backend for Embedded {
    fn open() -> Self {
        Self(Engine::new())
    }

    fn client(&self) -> ClientBuilder {
        Client::builder().embedded(&self.0)
    }

    async fn connect(&self) -> MultiplexedConnection {
        connection_over(self.0.connect()).await.unwrap()
    }
}
