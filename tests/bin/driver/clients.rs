//! The clients of the process, and the servers of their URLs.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use redlock_rt::{
    Client, ClientBuilder, Error, Quorum, Shutdown, Stats,
    embedded::{Engine, Listener},
};
use tests::lock;
use tokio::sync::{OnceCell, SetOnce};

use super::{
    answer::{Failure, Outcome},
    owners::Owners,
    semaphores::Permits,
    servers::{Server, publish_in_shard, sentinel_url},
    service::Services,
};

/// The limit for releases when a client is closed.
const DRAIN: Duration = Duration::from_secs(10);

/// A client's name, reserved from the moment that its `connect` is read: later commands wait for the
/// connection.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) owners: Owners,
    pub(crate) permits: Permits,
    pub(crate) services: Services,
    connected: SetOnce<Result<Connected, Failure>>,
}

/// A client that was connected.
#[derive(Debug)]
pub(crate) struct Connected {
    /// The client of the first server.
    pub(crate) client: Client,
    /// The clients of the other servers.
    others: Vec<Client>,
    /// Only for a client with several servers.
    pub(crate) quorum: Option<Quorum>,
    server: Server,
    tls_roots: Option<String>,
    raw: OnceCell<MultiplexedConnection>,
}

/// The options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) watchdog: Option<Duration>,
    pub(crate) options: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_name: Mutex<HashMap<String, Arc<Slot>>>,
    embedded: Embedded,
}

/// The engine of the process, and its listeners.
#[derive(Debug, Default)]
struct Embedded {
    engine: std::sync::OnceLock<Engine>,
    listeners: Mutex<Vec<Listener>>,
}

impl Clients {
    /// Reserves the name for a client that will connect.
    pub(crate) fn reserve(&self, name: &str) -> Result<Arc<Slot>, Failure> {
        match lock(&self.by_name).entry(name.to_owned()) {
            Entry::Occupied(_) => Err(Failure::usage(format!(
                "{name} is connected: close it first"
            ))),
            Entry::Vacant(free) => Ok(Arc::clone(free.insert(Arc::default()))),
        }
    }

    /// Connects the client with the reserved name, or frees the name.
    pub(crate) async fn connect(&self, name: &str, slot: &Arc<Slot>, target: &Target) -> Outcome {
        let attempt = Attempt {
            clients: self,
            name,
            slot,
        };
        let connected = self.connected(target).await;
        let outcome = connected
            .as_ref()
            .map(|_| "ok".to_owned())
            .map_err(Failure::clone);
        attempt.end(connected);
        outcome
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<Slot>, Failure> {
        let slot = lock(&self.by_name).get(name).cloned();
        slot.ok_or_else(|| Failure::usage(format!("{name} is not connected")))
    }

    /// Takes the client off the list; its name is free again.
    pub(crate) fn remove(&self, name: &str) -> Result<Arc<Slot>, Failure> {
        let slot = lock(&self.by_name).remove(name);
        slot.ok_or_else(|| Failure::usage(format!("{name} is not connected")))
    }

    /// Closes all clients.
    pub(crate) async fn close_all(&self) {
        let all: Vec<_> = lock(&self.by_name).drain().collect();
        let close = |(name, slot): (String, Arc<Slot>)| async move {
            if let Err(failure) = slot.close().await {
                tracing::debug!(client = name, %failure, "was not connected");
            }
        };
        futures::future::join_all(all.into_iter().map(close)).await;
    }

    async fn connected(&self, target: &Target) -> Result<Connected, Failure> {
        match target.url.strip_prefix("red:") {
            Some(urls) => self.connected_to_several(urls, target).await,
            None => {
                let (builder, server) = self.builder(&target.url, target).await?;
                Ok(Connected {
                    client: builder.connect().await?,
                    others: Vec::new(),
                    quorum: None,
                    server,
                    tls_roots: tls_roots(target)?,
                    raw: OnceCell::new(),
                })
            }
        }
    }

    /// A majority of the servers must answer.
    async fn connected_to_several(
        &self,
        urls: &str,
        target: &Target,
    ) -> Result<Connected, Failure> {
        let (mut clients, mut first) = (Vec::new(), None);
        let mut target = target.clone();
        let timeout = target
            .options
            .extract_if(.., |(key, _)| key == "server_timeout")
            .last();
        for url in urls.split(',') {
            let (builder, server) = self.builder(url, &target).await?;
            clients.push(builder.build()?);
            first.get_or_insert(server);
        }
        let mut quorum = Quorum::new(clients.clone())?;
        if let Some((key, value)) = timeout {
            quorum = quorum.server_timeout(millis(&key, &value)?);
        }
        let answered = clients
            .iter()
            .map(|client| async { client.rlock("connect").is_locked().await.map(|_| ()) });
        let answered: Vec<Result<(), Error>> = futures::future::join_all(answered).await;
        let failed = answered.iter().filter(|answer| answer.is_err()).count();
        if clients.len() - failed < quorum.majority() {
            return Err(Failure::quorum(format!("{failed} servers do not answer")));
        }
        let others = clients.split_off(1);
        Ok(Connected {
            client: clients.swap_remove(0),
            others,
            quorum: Some(quorum),
            server: first.expect("there is a first url"),
            tls_roots: tls_roots(&target)?,
            raw: OnceCell::new(),
        })
    }

    async fn builder(
        &self,
        url: &str,
        target: &Target,
    ) -> Result<(ClientBuilder, Server), Failure> {
        let mut builder = Client::builder();
        if let Some(watchdog) = target.watchdog {
            builder = builder.lease(watchdog);
        }
        for (key, value) in &target.options {
            builder = set(builder, key, value)?;
        }
        let server = self.server(url).await?;
        let builder = match &server {
            Server::Url(url) => builder.url(url),
            Server::Cluster(urls) => builder.cluster(urls),
            Server::Sentinels(service, urls) => builder.url(&sentinel_url(service, urls)?),
            Server::Embedded(engine) => builder.embedded(engine),
        };
        Ok((builder, server))
    }

    async fn server(&self, url: &str) -> Result<Server, Failure> {
        let Some(port) = url.strip_prefix("embedded") else {
            if let Some(urls) = url.strip_prefix("cluster:") {
                let urls = urls.split(',').map(str::to_owned);
                return Ok(Server::Cluster(urls.collect()));
            }
            if let Some(places) = url.strip_prefix("sentinel:") {
                let mut words = places.split(',').map(str::to_owned);
                let service = words.next().unwrap_or_default();
                return Ok(Server::Sentinels(service, words.collect()));
            }
            return Ok(Server::Url(url.to_owned()));
        };
        let engine = self.embedded.engine.get_or_init(Engine::new).clone();
        if !port.is_empty() {
            let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
            let port: u16 = port.ok_or_else(|| Failure::usage("embedded[:PORT]"))?;
            let listener = engine.listen((Ipv4Addr::LOCALHOST, port)).await;
            let listener = listener.map_err(|error| {
                Failure::unavailable(format!("cannot listen on port {port}: {error}"))
            })?;
            lock(&self.embedded.listeners).push(listener);
        }
        Ok(Server::Embedded(engine))
    }
}

impl Slot {
    /// The client, once it is connected.
    pub(crate) async fn connected(&self) -> Result<&Connected, Failure> {
        self.connected.wait().await.as_ref().map_err(Failure::clone)
    }

    /// Ends the client: held locks are released and lost, waiters get `shut_down`.
    pub(crate) async fn shutdown(&self) -> Outcome {
        self.end(Shutdown::ReleaseAll).await
    }

    /// Drops the owners' holds, waits for their release, and ends the client.
    pub(crate) async fn close(&self) -> Outcome {
        self.owners.drop_all();
        self.permits.drop_all();
        self.services.drop_all();
        self.end(Shutdown::Drain(DRAIN)).await
    }

    async fn end(&self, how: Shutdown) -> Outcome {
        let connected = self.connected().await?;
        let ended = connected.all().map(|client| client.shutdown(how));
        let ended: Vec<_> = futures::future::join_all(ended).await;
        match &connected.quorum {
            // Locks on a silent minority end with their leases.
            Some(quorum) => {
                let told = ended.iter().filter(|end| end.is_ok()).count();
                if told < quorum.majority() {
                    return Err(Failure::quorum("too few servers were told"));
                }
            }
            None => ended.into_iter().collect::<Result<(), _>>()?,
        }
        Ok("ok".to_owned())
    }
}

/// A `connect` in progress; dropped when it is cancelled.
struct Attempt<'a> {
    clients: &'a Clients,
    name: &'a str,
    slot: &'a Arc<Slot>,
}

impl Attempt<'_> {
    fn end(self, connected: Result<Connected, Failure>) {
        // Set once: here, or when dropped.
        let _ = self.slot.connected.set(connected);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let _ = self.slot.connected.set(Err(Failure::cancelled()));
        let failed = self.slot.connected.get().is_some_and(Result::is_err);
        let mut by_name = lock(&self.clients.by_name);
        // The name may have been closed and reserved again meanwhile.
        if failed
            && by_name
                .get(self.name)
                .is_some_and(|slot| Arc::ptr_eq(slot, self.slot))
        {
            by_name.remove(self.name);
        }
    }
}

impl Connected {
    fn all(&self) -> impl Iterator<Item = &Client> {
        std::iter::once(&self.client).chain(&self.others)
    }

    /// Publishes without the library, on a separate connection.
    pub(crate) async fn publish(&self, channel: &str, message: &str) -> Outcome {
        if let Server::Cluster(urls) = &self.server {
            let roots = self.tls_roots.as_deref();
            let receivers = publish_in_shard(roots, urls, channel, message).await;
            return Ok(receivers.map_err(Failure::unavailable)?.to_string());
        }
        let publish = async {
            let mut connection = self
                .raw
                .get_or_try_init(|| self.server.connect(self.tls_roots.as_deref()))
                .await?
                .clone();
            let mut publish = redis::cmd("PUBLISH");
            publish
                .arg(channel)
                .arg(message)
                .query_async::<usize>(&mut connection)
                .await
        };
        let receivers = publish.await.map_err(Failure::unavailable)?;
        Ok(receivers.to_string())
    }

    /// Counts of the client as a JSON object.
    pub(crate) fn stats(&self) -> String {
        let all: Vec<_> = self.all().map(Client::stats).collect();
        let sum = |count: fn(&Stats) -> usize| all.iter().map(count).sum::<usize>();
        serde_json::json!({
            "held": sum(|stats| stats.held),
            "waiting": sum(|stats| stats.waiting),
            "subscriptions": sum(|stats| stats.subscriptions),
            "renewals": sum(|stats| stats.renewals),
            "releases": sum(|stats| stats.releases),
            "tasks": sum(|stats| stats.tasks),
        })
        .to_string()
    }
}

/// The certificates in the file that the client trusts.
fn tls_roots(target: &Target) -> Result<Option<String>, Failure> {
    let named = target.options.iter().rfind(|(key, _)| key == "tls_roots");
    named.map(|(key, file)| read(key, file)).transpose()
}

fn read(key: &str, file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|_| malformed(key, file))
}

fn set(builder: ClientBuilder, key: &str, value: &str) -> Result<ClientBuilder, Failure> {
    let malformed = || malformed(key, value);
    let ms = || millis(key, value);
    Ok(match key {
        "namespace" => builder.namespace(value),
        "poll" => builder.poll_interval(ms()?),
        "linger" => builder.linger(ms()?),
        "waiter_timeout" => builder.waiter_timeout(ms()?),
        "response_timeout" => builder.response_timeout(ms()?),
        "connect_timeout" => builder.connect_timeout(ms()?),
        "tls_roots" => builder.tls_roots(read(key, value)?),
        "dedicated_thread" => builder.dedicated_thread(value.parse().map_err(|_| malformed())?),
        _ => {
            return Err(Failure::usage(format!(
                "unknown option {key}: expected one of namespace, poll, linger, waiter_timeout, response_timeout, \
                 connect_timeout, tls_roots, dedicated_thread"
            )));
        }
    })
}

fn millis(key: &str, value: &str) -> Result<Duration, Failure> {
    let ms = value.parse().map(Duration::from_millis);
    ms.map_err(|_| malformed(key, value))
}

fn malformed(key: &str, value: &str) -> Failure {
    Failure::usage(format!("not a value of {key}: {value}"))
}
