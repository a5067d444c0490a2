//! Servers whose clients come through proxies, so that the same faults can be tried wherever a client
//! connects to.

use std::{sync::Mutex, thread, time::Duration};

use redlock_rt::{Client, ClientBuilder};

use crate::{Cluster, Proxy, RedisServer, Sentinels, lock};

/// Nothing is to be given up because of a fault, or on a busy machine.
const UNDISTURBED: Duration = Duration::from_secs(30);

/// What a client connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One server.
    Single,
    /// One server, whose clients speak TLS.
    Tls,
    /// A master that a sentinel names.
    Sentinel,
    /// A cluster of three masters.
    Cluster,
}

/// The servers of a place, for one test, and a proxy in front of each.
#[derive(Debug)]
pub struct Proxied {
    place: Place,
    /// `None` when it is dropped.
    servers: Option<Servers>,
    proxies: Vec<Proxy>,
}

#[derive(Debug)]
enum Servers {
    One(RedisServer),
    Watched(RedisServer, Sentinels),
    Cluster(Cluster),
}

/// Clusters that no test uses at present, with their proxies: one takes seconds to start.
static IDLE: Mutex<Vec<(Cluster, Vec<Proxy>)>> = Mutex::new(Vec::new());

impl Proxied {
    /// Starts the servers, or takes a cluster that another test has left.
    pub async fn at(place: Place) -> Self {
        let (servers, proxies) = match place {
            Place::Single => {
                let server = RedisServer::start();
                let proxy = Proxy::to(&server);
                (Servers::One(server), vec![proxy])
            }
            Place::Tls => {
                let server = RedisServer::options().tls().start();
                let proxy = Proxy::with_tls(&server);
                (Servers::One(server), vec![proxy])
            }
            Place::Sentinel => {
                let server = RedisServer::start();
                let proxy = Proxy::to(&server);
                // It names the address at which it watches the master.
                let port = proxy.address().port();
                let sentinels = Sentinels::options().down_after(UNDISTURBED);
                let sentinels = sentinels.watch_at(port, &server, 0, 1).await;
                (Servers::Watched(server, sentinels), vec![proxy])
            }
            Place::Cluster => {
                let (cluster, proxies) = cluster();
                (Servers::Cluster(cluster), proxies)
            }
        };
        Self {
            place,
            servers: Some(servers),
            proxies,
        }
    }

    /// What a client connects to.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The number of servers, each of which has a proxy of the same number.
    pub fn count(&self) -> usize {
        self.proxies.len()
    }

    /// A server by its number.
    pub fn server(&self, at: usize) -> &RedisServer {
        match self.servers() {
            Servers::One(server) | Servers::Watched(server, _) => server,
            Servers::Cluster(cluster) => cluster.node(at),
        }
    }

    /// The proxy in front of a server.
    pub fn proxy(&self, at: usize) -> &Proxy {
        &self.proxies[at]
    }

    /// All proxies.
    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.iter()
    }

    /// The server that has this key.
    pub async fn server_of(&self, key: &str) -> usize {
        match self.servers() {
            Servers::One(_) | Servers::Watched(..) => 0,
            Servers::Cluster(cluster) => cluster.master_of(key).await,
        }
    }

    /// A client, which comes through the proxies.
    pub fn client(&self) -> ClientBuilder {
        let builder = Client::builder();
        match self.servers() {
            Servers::Watched(_, sentinels) => builder.url(&sentinels.url("")),
            Servers::One(server) => self.trusting(builder.url(&self.proxies[0].url()), server),
            Servers::Cluster(_) => {
                let proxies = self.proxies().map(|proxy| proxy.address().to_string());
                let proxies: Vec<String> = proxies.collect();
                builder.url(&format!("redis+cluster://{}", proxies.join(",")))
            }
        }
    }

    /// A client to which the faults do not apply, except in a cluster, which announces one address of
    /// each node: faults that concern one client are to mention its uuid there.
    pub fn undisturbed(&self) -> ClientBuilder {
        let builder = Client::builder();
        match self.servers() {
            Servers::One(server) if self.place == Place::Tls => {
                self.trusting(builder.url(&server.tls_url()), server)
            }
            Servers::One(server) | Servers::Watched(server, _) => builder.url(&server.url()),
            Servers::Cluster(_) => self.client(),
        }
    }

    fn trusting(&self, builder: ClientBuilder, server: &RedisServer) -> ClientBuilder {
        match self.place {
            Place::Tls => builder.tls_roots(server.ca_pem()),
            _ => builder,
        }
    }

    fn servers(&self) -> &Servers {
        self.servers.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        let servers = self.servers.take();
        if let Some(Servers::Cluster(cluster)) = servers
            && !thread::panicking()
        {
            for proxy in &self.proxies {
                proxy.clear();
                proxy.assert_met();
                proxy.cut_all();
                proxy.mark();
            }
            let left = (cluster, std::mem::take(&mut self.proxies));
            let mut idle = lock(&IDLE);
            idle.push(left);
        }
    }
}

fn cluster() -> (Cluster, Vec<Proxy>) {
    let left = lock(&IDLE).pop();
    if let Some(left) = left {
        return left;
    }
    // A replica would connect to its master through the proxy.
    let options = Cluster::options().replicas(0).behind_proxies();
    let cluster = options.node_timeout(UNDISTURBED).start();
    let proxies = cluster.proxies();
    (cluster, proxies)
}
