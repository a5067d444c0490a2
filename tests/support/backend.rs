//! Where the things under test are: a real server, or an engine in this process.

use std::future::Future;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, embedded::Engine};

use crate::{connection_over, shared_server};

/// A place that clients connect to.
pub trait Backend: Send + Sync + 'static {
    /// The place, for one test.
    fn open() -> Self;

    /// A client of it with default options.
    fn client(&self) -> ClientBuilder;

    /// A plain connection to it.
    fn connect(&self) -> impl Future<Output = MultiplexedConnection> + Send;
}

/// The shared server.
#[derive(Debug)]
pub struct Redis;

impl Backend for Redis {
    fn open() -> Self {
        Self
    }

    fn client(&self) -> ClientBuilder {
        Client::builder().url(&shared_server().url())
    }

    async fn connect(&self) -> MultiplexedConnection {
        let connected = shared_server().connect().await;
        connected.expect("the server answers")
    }
}

/// An engine of the test's own.
#[derive(Debug)]
pub struct Embedded(Engine);

impl Backend for Embedded {
    fn open() -> Self {
        Self(Engine::new())
    }

    fn client(&self) -> ClientBuilder {
        Client::builder().embedded(&self.0)
    }

    async fn connect(&self) -> MultiplexedConnection {
        let connected = connection_over(self.0.connect()).await;
        connected.expect("the engine answers")
    }
}
