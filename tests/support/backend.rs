//! Where the locks are: real servers, or engines in this process.

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, embedded::Engine};

use crate::{RedisServer, connection_over, connection_to, shared_server};

/// A place that clients connect to.
pub trait Backend: Send + Sync + 'static {
    /// So many servers, for one test.
    fn open(servers: usize) -> Self;

    /// A client of one of them with default options.
    fn client(&self, server: usize) -> ClientBuilder;

    /// A plain connection to it.
    fn connect(&self, server: usize) -> impl Future<Output = MultiplexedConnection> + Send;
}

/// The shared server, and others that are shared likewise.
#[derive(Debug)]
pub struct Redis;

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
        let connected = connection_to(&Self::url(server)).await;
        connected.expect("the server answers")
    }
}

/// Engines of the test's own.
pub struct Embedded(Vec<Engine>);

impl Backend for Embedded {
    fn open(servers: usize) -> Self {
        Self((0..servers).map(|_| Engine::new()).collect())
    }

    fn client(&self, server: usize) -> ClientBuilder {
        Client::builder().embedded(&self.0[server])
    }

    async fn connect(&self, server: usize) -> MultiplexedConnection {
        let connected = connection_over(self.0[server].connect()).await;
        connected.expect("the engine answers")
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}
