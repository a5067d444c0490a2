//! The servers of a run.

use std::time::Duration;

use tests::{Cluster, Proxy, RedisServer, Replicated, SentinelOptions, Sentinels, ServerOptions};

/// In the order of the page.
pub(crate) const TOPOLOGIES: &[&str] = &[
    "single",
    "single-everysec",
    "single-none",
    "sentinel",
    "ack",
    "cluster",
    "redlock",
];

/// After so long without an answer the others count a server as down.
const DOWN_AFTER: Duration = Duration::from_secs(1);

pub(crate) enum Servers {
    One(RedisServer),
    /// A master, two replicas and three sentinels. With acknowledgements, a server has what it needs to wait
    /// for a replica.
    Watched(Replicated, Sentinels),
    /// Three masters with a replica each.
    Cluster(Cluster),
    /// Independent servers.
    Five(Vec<RedisServer>),
}

pub(crate) struct Topology {
    pub(crate) servers: Servers,
    /// In front of each server, where clients are not led to the servers by others.
    pub(crate) proxies: Vec<Proxy>,
    /// What the workers connect to.
    pub(crate) spec: String,
}

fn options() -> ServerOptions {
    let options = RedisServer::options().own_clock();
    options.args(["--enable-debug-command", "yes"])
}

/// Where the clients of a cluster begin.
pub(crate) fn seeds(cluster: &Cluster) -> String {
    let urls: Vec<String> = (0..3).map(|at| cluster.node(at).url()).collect();
    format!("cluster:{}", urls.join(","))
}

impl Topology {
    pub(crate) async fn start(name: &str) -> Option<Self> {
        Some(match name {
            "single" => Self::one(options().aof()),
            "single-everysec" => Self::one(options().aof().args(["--appendfsync", "everysec"])),
            "single-none" => Self::one(options()),
            "sentinel" => Self::watched(options().aof(), "").await,
            "ack" => {
                let strict = [
                    "--min-replicas-to-write",
                    "1",
                    "--min-replicas-max-lag",
                    "2",
                ];
                Self::watched(options().aof().args(strict), "ack:").await
            }
            "cluster" => {
                let cluster = Cluster::options().node_timeout(DOWN_AFTER);
                let cluster = cluster.each(|_| options()).start();
                Self {
                    spec: seeds(&cluster),
                    servers: Servers::Cluster(cluster),
                    proxies: Vec::new(),
                }
            }
            "redlock" => {
                let servers: Vec<_> = (0..5).map(|_| options().aof().start()).collect();
                let proxies: Vec<_> = servers
                    .iter()
                    .map(|server| Proxy::to(server).by_chance())
                    .collect();
                let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
                let spec = format!("red:{}", urls.join(","));
                Self {
                    servers: Servers::Five(servers),
                    proxies,
                    spec,
                }
            }
            _ => return None,
        })
    }

    fn one(options: ServerOptions) -> Self {
        let server = options.start();
        let proxy = Proxy::to(&server).by_chance();
        let spec = proxy.url();
        Self {
            servers: Servers::One(server),
            proxies: vec![proxy],
            spec,
        }
    }

    async fn watched(options: ServerOptions, prefix: &str) -> Self {
        let replicated = Replicated::start(options, 2).await;
        replicated.is_counted(0, 2).await;
        let sentinels = SentinelOptions::default().down_after(DOWN_AFTER);
        let sentinels = sentinels.watch(replicated.server(0), 2, 3).await;
        let spec = format!("{prefix}{}", sentinels.url(""));
        Self {
            servers: Servers::Watched(replicated, sentinels),
            proxies: Vec::new(),
            spec,
        }
    }

    /// All servers that keep locks.
    pub(crate) fn all(&self) -> Vec<&RedisServer> {
        match &self.servers {
            Servers::One(server) => vec![server],
            Servers::Watched(replicated, _) => (0..3).map(|at| replicated.server(at)).collect(),
            Servers::Cluster(cluster) => cluster.all().map(|at| cluster.node(at)).collect(),
            Servers::Five(servers) => servers.iter().collect(),
        }
    }
}
