//! Where the locks are: real servers, or engines in this process.

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, embedded::Engine};
use tokio::runtime::{Builder, Runtime};

use crate::{
    Cluster, RedisServer, Replicated, Sentinels, Wires, cluster::blocking, connection_over,
    connection_to, shared_server,
};

/// So many servers of one kind are shared.
const MOST: usize = 3;

/// A place that clients connect to.
pub trait Backend: Send + Sync + 'static {
    /// The runtime of a test. Not that of `#[tokio::test]`: of the async functions that it makes there would be
    /// thousands to compile.
    fn runtime() -> Runtime {
        let threads = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        threads.unwrap()
    }

    /// Opens this many servers for one test.
    fn open(servers: usize) -> Self;

    /// A client of one server, with default options.
    fn client(&self, server: usize) -> ClientBuilder;

    /// Connections to one server that a test can disturb.
    fn wires(&self, server: usize) -> Wires;

    /// A plain connection to one server.
    fn connect(&self, server: usize) -> impl Future<Output = MultiplexedConnection> + Send;
}

/// The tests of a suite wherever clients connect to, each place as a module. `$suite!` makes those of
/// one place of a [`Backend`] and a kind of lock; `$short!` those of places where
/// only the way to the server is another one.
#[macro_export]
macro_rules! everywhere {
    ($suite:ident, $short:ident, $kind:path) => {
        $crate::where_servers_are_independent!($suite, $short, $kind);
        $crate::where_servers_are_independent!(@ $suite, $kind, cluster = OneMaster);
    };
}

/// As [`everywhere!`], for a kind of lock that no cluster has.
#[macro_export]
macro_rules! where_servers_are_independent {
    ($suite:ident, $short:ident, $kind:path) => {
        mod embedded {
            $suite!($crate::Embedded, $kind);
        }
        $crate::where_servers_are_independent!(@ $suite, $kind, redis = Redis);
        $crate::where_servers_are_independent!(@ $short, $kind, tls = Tls, sentinel = Watched);
    };
    (@ $suite:ident, $kind:path, $($place:ident = $backend:ident),+) => {
        $(mod $place {
            $suite!($crate::$backend, $kind);
        })+
    };
}

/// One test for each behaviour of a suite on this backend, by `world::run` of the suite.
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "it is that of the suite")]
macro_rules! behaviours {
    ($backend:ty, $($module:ident: $($behaviour:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $behaviour() {
                crate::world::run::<$backend>(stringify!($behaviour), |world| {
                    Box::pin(crate::$module::$behaviour(world))
                });
            })+
        })+
    };
}

/// Real servers, which tests share, and a way in which clients find them.
pub trait RealServers: Default + Send + Sync + 'static {
    /// So many a test may have.
    const MOST: usize = MOST;

    /// Asks one of the servers; its connections need no TLS.
    fn with<T>(server: usize, ask: impl FnOnce(&RedisServer) -> T) -> T;

    /// A client of one server, with default options.
    fn builder(server: usize) -> ClientBuilder;
}

impl<S: RealServers> Backend for S {
    fn open(servers: usize) -> Self {
        assert!(servers <= S::MOST, "there are {} servers", S::MOST);
        Self::default()
    }

    fn client(&self, server: usize) -> ClientBuilder {
        S::builder(server)
    }

    fn wires(&self, server: usize) -> Wires {
        Wires::to_address(S::with(server, RedisServer::address))
    }

    async fn connect(&self, server: usize) -> MultiplexedConnection {
        let connected = connection_to(&S::with(server, RedisServer::url)).await;
        connected.expect("the server answers")
    }
}

/// The shared server, and further shared servers.
#[derive(Debug, Default)]
pub struct Redis;

/// For locks over several servers.
static OTHERS: [OnceLock<RedisServer>; MOST - 1] = [const { OnceLock::new() }; MOST - 1];

impl RealServers for Redis {
    fn with<T>(server: usize, ask: impl FnOnce(&RedisServer) -> T) -> T {
        match server.checked_sub(1) {
            None => ask(&shared_server()),
            Some(other) => ask(OTHERS[other].get_or_init(RedisServer::start)),
        }
    }

    fn builder(server: usize) -> ClientBuilder {
        Client::builder().url(&Self::with(server, RedisServer::url))
    }
}

/// A shared cluster of one master, which has all slots: so a test can look at all keys with one
/// connection.
#[derive(Debug, Default)]
pub struct OneMaster;

impl OneMaster {
    fn cluster() -> &'static Cluster {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(|| {
            let options = Cluster::options().masters(1).replicas(0);
            // Nothing is to be given up on a busy machine.
            options.node_timeout(Duration::from_secs(30)).start()
        })
    }
}

impl RealServers for OneMaster {
    /// A quorum needs servers that are independent.
    const MOST: usize = 1;

    fn with<T>(_server: usize, ask: impl FnOnce(&RedisServer) -> T) -> T {
        ask(Self::cluster().node(0))
    }

    fn builder(_server: usize) -> ClientBuilder {
        Client::builder().url(&Self::cluster().url())
    }
}

/// Shared servers to which clients speak TLS.
#[derive(Debug, Default)]
pub struct Tls;

impl Tls {
    fn server(at: usize) -> &'static RedisServer {
        static SERVERS: [OnceLock<RedisServer>; MOST] = [const { OnceLock::new() }; MOST];
        SERVERS[at].get_or_init(|| RedisServer::options().tls().start())
    }
}

impl RealServers for Tls {
    fn with<T>(server: usize, ask: impl FnOnce(&RedisServer) -> T) -> T {
        ask(Self::server(server))
    }

    fn builder(server: usize) -> ClientBuilder {
        let server = Self::server(server);
        let builder = Client::builder().url(&server.tls_url());
        builder.tls_roots(server.ca_pem())
    }
}

/// Shared masters, which clients find by asking sentinels: the first with a replica and three
/// sentinels.
#[derive(Debug, Default)]
pub struct Watched;

impl Watched {
    fn servers(at: usize) -> &'static (Replicated, Sentinels) {
        static SERVERS: [OnceLock<(Replicated, Sentinels)>; MOST] =
            [const { OnceLock::new() }; MOST];
        let (replicas, sentinels) = if at == 0 { (1, 3) } else { (0, 1) };
        SERVERS[at].get_or_init(|| {
            blocking(|| async {
                let servers = Replicated::start(RedisServer::options(), replicas).await;
                // Nothing is to be given up on a busy machine.
                let options = Sentinels::options().down_after(Duration::from_secs(30));
                let watched = options.watch(servers.server(0), replicas, sentinels).await;
                (servers, watched)
            })
        })
    }
}

impl RealServers for Watched {
    fn with<T>(server: usize, ask: impl FnOnce(&RedisServer) -> T) -> T {
        let (servers, _) = Self::servers(server);
        ask(servers.server(0))
    }

    fn builder(server: usize) -> ClientBuilder {
        let (_, sentinels) = Self::servers(server);
        Client::builder().url(&sentinels.url(""))
    }
}

/// Engines of the test's own.
pub struct Embedded(Vec<Engine>);

impl Backend for Embedded {
    /// With a paused clock, since the engine is in the same process.
    fn runtime() -> Runtime {
        let paused = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        paused.unwrap()
    }

    fn open(servers: usize) -> Self {
        Self((0..servers).map(|_| Engine::new()).collect())
    }

    fn client(&self, server: usize) -> ClientBuilder {
        Client::builder().embedded(&self.0[server])
    }

    fn wires(&self, server: usize) -> Wires {
        Wires::to_engine(&self.0[server])
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
