//! One lock over several servers: held while a majority has it, then lost for ever.

mod basics;
mod cancel;
mod contention;
mod keeper;
mod outages;
mod safety;

use std::time::Duration;

use redlock_rt::{Client, Quorum, RedLock};
use tests::{DEADLINE, Proxy, RedisServer, ask, eventually};

const NAME: &str = "red";
/// Renewed in time also where threads have to wait for a processor.
const LEASE: Duration = Duration::from_secs(6);
/// More than a busy machine needs, and far below the lease.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Separate servers for the test.
struct Servers(Vec<RedisServer>);

/// A quorum over the servers, and its clients.
struct Party {
    quorum: Quorum,
    clients: Vec<Client>,
}

impl Servers {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::start()).collect())
    }

    fn party(&self) -> Party {
        Party::of(self.0.iter().map(RedisServer::url))
    }

    /// A party that reaches the servers by proxies.
    fn party_by_proxies(&self) -> (Party, Vec<Proxy>) {
        let proxies: Vec<_> = self.0.iter().map(Proxy::to).collect();
        let party = Party::of(proxies.iter().map(Proxy::url));
        (party, proxies)
    }

    fn each<const N: usize>(&self, places: [usize; N], act: fn(&RedisServer)) {
        places.into_iter().for_each(|at| act(&self.0[at]));
    }

    /// The owner of the lock on this server.
    async fn owner(&self, at: usize) -> Option<String> {
        let redis = self.0[at].connect().await.unwrap();
        let owners: Vec<String> = ask(&redis, &["HKEYS", NAME]).await;
        assert!(owners.len() <= 1, "{owners:?}");
        owners.into_iter().next()
    }

    /// Waits until nothing is left in the party's clients of these servers, and then on the servers.
    async fn assert_left_by(&self, party: &Party, places: impl IntoIterator<Item = usize> + Clone) {
        party.assert_idle(places.clone()).await;
        self.assert_free(places).await;
    }

    /// Waits until no key is left on any of these servers.
    async fn assert_free(&self, places: impl IntoIterator<Item = usize>) {
        for at in places {
            let redis = self.0[at].connect().await.unwrap();
            eventually(DEADLINE, async || {
                let size = redis::cmd("DBSIZE").query_async(&mut redis.clone()).await;
                match size {
                    Ok(0) => Ok(()),
                    Ok::<usize, _>(keys) => Err(format!("{keys} keys on server {at}")),
                    Err(error) => Err(error.to_string()),
                }
            })
            .await;
        }
    }
}

impl Party {
    fn of(urls: impl IntoIterator<Item = String>) -> Self {
        let client = |url: String| Client::builder().url(&url).lease(LEASE).build().unwrap();
        let clients: Vec<_> = urls.into_iter().map(client).collect();
        let quorum = Quorum::new(clients.clone()).unwrap();
        Self {
            quorum: quorum.server_timeout(SERVER_TIMEOUT),
            clients,
        }
    }

    fn lock(&self) -> RedLock {
        self.quorum.redlock(NAME)
    }

    /// Waits until its clients have nothing left.
    async fn assert_idle(&self, places: impl IntoIterator<Item = usize>) {
        for at in places {
            let client = &self.clients[at];
            eventually(DEADLINE, async || {
                let stats = client.stats();
                match (stats.held, stats.releases, stats.names, stats.waiting) {
                    (0, 0, 0, 0) => Ok(()),
                    _ => Err(format!("client {at}: {stats:?}")),
                }
            })
            .await;
        }
    }
}
