//! Making a client.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::late_loss::{LateLossHook, LateLosses};
use super::{Client, LateLoss, identity};
use crate::connection::{
    Connector, CredentialSource, Credentials, Dialer, Endpoint, RetryPolicy, Spawner, Timeouts,
};
#[cfg(feature = "redis-1")]
use crate::connection::{IntoConnectionInfo, RedisClient, RedisSettings};
use crate::engine::{ClientEngine, Config, Fsync, Handle, ReplicaAck};
use crate::error::{Error, Theft};
use crate::sync::check_lease;

/// Builds a [`Client`].
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    servers: Servers,
    default_wait: Option<Duration>,
    dedicated_thread: bool,
    plain_commands: bool,
    on_late_loss: Option<LateLossHook>,
    config: Config,
}

/// The servers, and how to reach them.
#[derive(Clone, Default)]
struct Servers {
    // Some URLs hold passwords, also URLs that cannot be parsed.
    url: Option<String>,
    urls: Option<Vec<String>>,
    #[cfg(feature = "redis-1")]
    redis: Option<RedisSettings>,
    /// With the name of their service.
    sentinels: Option<(Vec<String>, String)>,
    cluster: Option<Vec<String>>,
    connector: Option<Connector>,
    node_connector: Option<Connector>,
    roots: Option<Vec<u8>>,
    /// Certificates and private key of the client.
    tls_identity: Option<(Vec<u8>, Vec<u8>)>,
    credentials: Option<CredentialSource>,
    /// User and password at the sentinels.
    sentinel_login: Option<(Option<String>, String)>,
    server_name: Option<String>,
    client_name: Option<String>,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            servers: Servers::default(),
            default_wait: Some(Duration::from_secs(1)),
            dedicated_thread: false,
            plain_commands: true,
            on_late_loss: None,
            config: Config {
                id: None,
                timeouts: Timeouts {
                    connect: Duration::from_secs(3),
                    response: Duration::from_secs(3),
                    retry: RetryPolicy::default(),
                },
                linger: Duration::from_secs(1),
                poll_interval: Duration::from_secs(1),
                lease: Duration::from_secs(30),
                namespace: None,
                waiter_timeout: Duration::from_secs(5),
                replica_ack: ReplicaAck::None,
                fsync: Fsync::None,
                replica_timeout: Duration::from_secs(1),
                hand_over: DEFAULT_HAND_OVER,
                identity: None,
                flush_on_drop: None,
                tracking: false,
                sharded_pubsub: true,
            },
        }
    }

    /// Sets the server's URL; see [`Client::connect`].
    ///
    /// If a [`connector`](Self::connector) is set too, in either order, the connector supplies the
    /// streams, and the URL everything else.
    pub fn url(mut self, url: &str) -> Self {
        self.servers.url = Some(url.to_owned());
        self
    }

    /// Sets the URLs of a master and its replicas, each as `redis://host:port` or
    /// `rediss://host:port`, with the same user, password and database. The client finds the master
    /// by its role. The same as one URL `redis://host:port,host:port`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_rt::Client;
    ///
    /// let servers = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let client = Client::builder().urls(servers).build()?;
    /// # Ok::<_, redlock_rt::Error>(())
    /// ```
    pub fn urls<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.servers.urls = Some(texts(urls));
        self
    }

    /// Sets the server by the types of the `redis` crate: a URL, or the settings of a `redis::Client`.
    ///
    /// Takes the address (TCP, TLS or a Unix socket), the user, the password and the database. The client makes its own
    /// connections, for the calls and messages of all locks. It does not use connections that the `redis::Client` has
    /// made. For a pool, pass its URL or its `redis::ConnectionInfo`.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns [`BadInput`](crate::ErrorKind::BadInput) if the `redis` crate refuses the
    /// settings, or if TLS would verify no certificate. Also if the settings have certificates, which cannot be read,
    /// and neither [`tls_roots`](Self::tls_roots) nor [`tls_identity`](Self::tls_identity) is set here.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_rt::Client;
    ///
    /// let redis = redis::Client::open("redis://app:secret@10.0.0.1/2")?;
    /// let client = Client::builder().redis(redis.get_connection_info().clone()).build()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "redis-1")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-1")))]
    pub fn redis(mut self, info: impl IntoConnectionInfo) -> Self {
        self.servers.redis = Some(RedisSettings::of(info));
        self
    }

    /// Sets the sentinels that name the master of `service`, each as `host:port`,
    /// `redis://host:port` or `rediss://host:port`; the port defaults to 26379. The same as one URL
    /// `redis+sentinel://host:port,host:port/service`.
    ///
    /// User, password and database must be the same in all URLs, and are those of the master. Sentinels have [their
    /// own](Self::sentinel_credentials) credentials. With `rediss://` all connections use TLS, also those to the
    /// master.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_rt::Client;
    ///
    /// let sentinels = ["10.0.0.1", "10.0.0.2", "10.0.0.3:26380"];
    /// let client = Client::builder().sentinels(sentinels, "mymaster").build()?;
    /// # Ok::<_, redlock_rt::Error>(())
    /// ```
    pub fn sentinels<U: AsRef<str>>(
        mut self,
        sentinels: impl IntoIterator<Item = U>,
        service: impl Into<String>,
    ) -> Self {
        self.servers.sentinels = Some((texts(sentinels), service.into()));
        self
    }

    /// Sets the URLs of some nodes of a Redis Cluster, each as `redis://host:port` or
    /// `rediss://host:port`, with the same user and password. The client learns the other nodes
    /// from them. The same as one URL `redis+cluster://host:port,host:port`.
    pub fn cluster<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.servers.cluster = Some(texts(urls));
        self
    }

    /// Uses an in-process engine as the server; several clients may share one.
    #[cfg(feature = "embedded")]
    #[cfg_attr(docsrs, doc(cfg(feature = "embedded")))]
    pub fn embedded(self, engine: &crate::embedded::Engine) -> Self {
        let name = engine.name();
        let engine = engine.clone();
        let mut builder = self.connector(move || {
            let session = engine.connect();
            async move { Ok(session) }
        });
        // A later `server_name` replaces this name.
        builder.servers.server_name.get_or_insert(name);
        builder
    }

    /// Sets the server's name, by which a [`MultiLock`](crate::MultiLock) and a
    /// [`Quorum`](crate::Quorum) distinguish servers.
    ///
    /// All processes must use the same name for a server. Defaults to host and port of the URL. Set
    /// the name if processes reach the server by different addresses, or by a
    /// [`connector`](Self::connector), which otherwise counts as a separate server.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.servers.server_name = Some(name.into());
        self
    }

    /// Sets the name of this client's connections in `CLIENT LIST`. Defaults to `redlock-rt:` and the client's id, the
    /// first part of its hold ids. Without the right to `CLIENT SETNAME` they have no name.
    ///
    /// Redis allows printable ASCII without spaces; [`build`](Self::build) refuses anything else.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.servers.client_name = Some(name.into());
        self
    }

    /// Stores the identity of this client in Redis, for [`Client::identity_of`] and `redlock show`. It has `name` (of
    /// the pod, or `host:pid`, for example), host, process id and version of the crate.
    ///
    /// While the client renews locks, it writes the hash `redlock_client:{<uuid>}` in its namespace after each third of
    /// [the lease](Self::lease), or of the longest lease of its locks. The hash expires a lease after that. A client
    /// whose holds are all shorter writes nothing. If the write fails, no lock is affected. Defaults to none, because a
    /// user with rights to the keys of its locks only could not write this key. The user of the client needs the rights
    /// `+hget +hset +pexpire +time` and this key, and `+hmget` to read it.
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.config.identity = Some(identity::of_process(name.into()));
        self
    }

    /// Gets byte streams to the server from `connect`: for a tunnel, a simulation, or a proxy in a
    /// test.
    ///
    /// An additional [`url`](Self::url) sets the credentials, the database and the
    /// [name](Self::server_name) of the server; the client does not connect to its host. With
    /// `rediss://`, TLS runs over the connector's streams, and the certificate must be valid for
    /// that host. Without a URL there is no login, and the database is 0. An error or a panic of
    /// `connect` counts as an outage.
    pub fn connector<F, Fut, S>(mut self, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.servers.connector = Some(Connector::new(move |_: &str, _: u16| connect()));
        self
    }

    /// Connects to the nodes of a [`cluster`](Self::cluster) without TLS by this function of host and port.
    #[doc(hidden)]
    pub fn node_connector<F, Fut, S>(mut self, connect: F) -> Self
    where
        F: Fn(&str, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.servers.node_connector = Some(Connector::new(connect));
        self
    }

    /// Trusts these certificates in addition to the well-known ones: the content of a PEM file. For
    /// `rediss://` URLs.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.servers.roots = Some(pem.into());
        self
    }

    /// Presents this certificate to servers that ask for one (`tls-auth-clients yes`): the chain
    /// and the private key, in PEM form. For `rediss://` URLs. Defaults to none.
    pub fn tls_identity(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.servers.tls_identity = Some((certificates.into(), key.into()));
        self
    }

    /// Asks `source` for user and password before each connection: for passwords that rotate, and
    /// for tokens that expire. If the URL has either, [`build`](Self::build) returns `BadInput`.
    ///
    /// The source is asked again before [`Credentials::valid_for`] is over, and open connections
    /// for commands log in again with what it returns. If that fails until they have expired, the
    /// connection is closed. The subscribing connection cannot log in again; if the server ends it,
    /// the next one asks the source too. The time of the source is part of the time for connecting.
    /// An error or a panic of it counts as an outage. With several servers in the URL all get the same
    /// credentials; sentinels have [their own](Self::sentinel_credentials).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlock_rt::{Client, Credentials};
    ///
    /// async fn token() -> Result<String, std::io::Error> {
    ///     Ok("from a file, a vault, or a signed request".to_owned())
    /// }
    ///
    /// let builder = Client::builder().url("redis://localhost").credentials(|| async {
    ///     let token = token().await?;
    ///     let credentials = Credentials::new(token).user("app");
    ///     Ok::<_, std::io::Error>(credentials.valid_for(Duration::from_secs(15 * 60)))
    /// });
    /// ```
    pub fn credentials<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.servers.credentials = Some(CredentialSource::new(source));
        self
    }

    /// Logs in to the sentinels of a `redis+sentinel://` URL as this user. `None` is the default
    /// user. The credentials in the URL are those of the master, and sentinels never see them.
    /// Defaults to no login.
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<Option<String>>,
        password: impl Into<String>,
    ) -> Self {
        self.servers.sentinel_login = Some((user.into(), password.into()));
        self
    }

    /// Puts `namespace:` before every name, before other keys are derived from the name, as
    /// Redisson's name mapper does. Defaults to none.
    ///
    /// Namespaces without `:` keep services apart. With it, `app` and a lock `x:job` is the same name
    /// as `app:x` and `job`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.config.namespace = Some(namespace.into().into_boxed_str());
        self
    }

    /// Sets the lease of locks whose options set none: the time until the lock of a crashed process
    /// is free. Defaults to 30 s, as Redisson's `lockWatchdogTimeout`.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// Sets the wait of functions under the attribute that set none; `None` has no limit. Defaults
    /// to 1 s.
    pub fn default_wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.default_wait = wait.into();
        self
    }

    /// Sets the polling fallback: a waiter that receives no announcement asks Redis again after one to two intervals,
    /// at random. For waiters of fair locks the heartbeats of their client ask, possibly sooner. Defaults to 1 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// Sets how long a subscription stays after its last waiter. Defaults to 1 s. With zero, a client with one task
    /// does not know that others want the lock that it has just released, and does not let them try first.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.config.linger = linger;
        self
    }

    /// Sets the longest time for a call that waits for no other client. Defaults to 3 s.
    ///
    /// This is the only limit of `try_lock`, `unlock`, `extend`, `is_locked`, `force_unlock`, `available_permits`,
    /// `count`, `token` and all other calls that wait for no other client. It covers connecting and the reply together.
    /// Connecting is retried meanwhile, except by `try_lock`. After the limit, a call continues in the background if
    /// its documentation says so.
    ///
    /// A connection that is silent for half of this time is closed, so that there is time for another try. A slow
    /// server that answers other calls meanwhile is not silent. A single reply may take at most four times as long as
    /// this.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.timeouts.response = timeout;
        self
    }

    /// Sets how the client retries connecting, and calls that the server refuses temporarily. Defaults to
    /// [`RetryPolicy::default`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.config.timeouts.retry = policy;
        self
    }

    /// Sets the longest time for connecting. All addresses of a host name are tried within this
    /// time, even if some do not answer. Defaults to 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.timeouts.connect = timeout;
        self
    }

    /// Sets how long this client's waiters in fair queues count as alive after the client's last
    /// heartbeat. A killed process may delay other waiters for this time, and so may a waiter whose
    /// future is not polled. Heartbeats are three times as frequent, and at least every 30 s. Defaults to
    /// 5 s.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.config.waiter_timeout = timeout;
        self
    }

    /// Sets how many replicas must have a lock or a permit before it is returned, unless the options
    /// [say](crate::LockOptions::replica_ack) otherwise. Defaults to [`ReplicaAck::None`].
    ///
    /// A lock that enough replicas have survives a failover to one of them. docs/topologies.md compares the choices.
    /// There is no wait for the parts of a [`RedLock`](crate::RedLock).
    ///
    /// # Round trips
    ///
    /// One more, on a separate connection: a call that writes, followed by WAIT. Locks that are acquired together share
    /// it. Other calls keep their latency while replicas hang. If that connection cannot be made (a full server, for
    /// example), the acquisition fails.
    pub fn replica_ack(mut self, ack: ReplicaAck) -> Self {
        self.config.replica_ack = ack;
        self
    }

    /// Sets which servers must have a lock or a permit on disk before it is returned, unless the options
    /// [say](crate::LockOptions::fsync) otherwise. Defaults to [`Fsync::None`].
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.config.fsync = fsync;
        self
    }

    /// Sets how long to wait for replicas. Defaults to 1 s.
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.config.replica_timeout = timeout;
        self
    }

    /// Runs the client's tasks and connections on a separate thread.
    ///
    /// A blocked runtime then loses no locks. A guard that is dropped while its runtime shuts down
    /// is still released, while the process continues.
    ///
    /// Such a client works under any executor (`smol`, `futures::executor::block_on`), and on threads without one
    /// ([`blocking`](crate::blocking)); a Tokio runtime must have timers. Other clients need a Tokio runtime with timers and I/O: without one, their
    /// calls panic, or wait for ever once the process has a client with a thread of its own.
    ///
    /// The thread ends with the client, or with the process. At the end of `main`, call
    /// [`shutdown`](Client::shutdown), or use [`flush_on_drop`](Self::flush_on_drop).
    ///
    /// Defaults to `false`: tasks and connections run on the caller's runtime, and when that ends,
    /// on another runtime from which the client is used. A runtime that exists but does not run (a
    /// single-threaded one, between two calls of `block_on`) is like a blocked runtime.
    pub fn dedicated_thread(mut self, dedicated: bool) -> Self {
        self.dedicated_thread = dedicated;
        self
    }

    /// Makes the drop of the client's last handle or guard block its thread until Redis has
    /// answered every outstanding release, at most for `limit`. Defaults to `None`: a drop does not
    /// block.
    ///
    /// This is for programs that return from `main` at any place, with `?`. If Redis does not
    /// answer, the drop takes the whole `limit`. A client in a `static` is never dropped, so
    /// nothing waits for its releases. The [default client](crate::set_default_client) does not
    /// count as a handle, so with it the drop of the last guard waits. Requires
    /// [`dedicated_thread`](Self::dedicated_thread).
    pub fn flush_on_drop(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.config.flush_on_drop = limit.into();
        self
    }

    /// Sets for how long the tasks of this client may hand an [`RLock`](crate::RLock) or a
    /// [`FencedLock`](crate::FencedLock) over to each other without a call to Redis. Defaults to 10 ms.
    /// `None` or zero: never.
    ///
    /// When a guard ends and another task of the client waits for the lock, that task takes over the hold without a
    /// call to Redis. Its guard is a new one, with the same [`hold_id`](crate::LockGuard::hold_id). Tasks take over in
    /// the order in which they came. There is no hand-over between different leases or renewals, after a re-entry, or
    /// while the connection is in doubt. When this time has passed since the acquisition, the lock is released in
    /// Redis, so other processes wait at most that much longer. Before that, `unlock` returns
    /// [`Released`](crate::Unlocked::Released), and for all others the lock [is locked](crate::Lock::is_locked).
    ///
    /// Each guard of a `FencedLock` has a greater token: an acquisition reserves up to 1000 tokens if other tasks of
    /// its process want the lock too. A lock that is not renewed is not handed over, since each guard has its own
    /// lease.
    ///
    /// The release of a [`FairLock`](crate::FairLock) gives the lock to the next waiter in the same call, if that
    /// waiter is a task of this client. Redis decides which waiter is next, so for fair locks it only matters whether
    /// the time is zero.
    ///
    /// A forced release, or a loss of the lock in Redis, may be noticed later by this time. While other clients want
    /// the lock, at most two guards follow each other in this way. A waiting task has no timer until the time has
    /// passed. So if the client's runtime is blocked under the lock for longer than the lease, a waiting task of
    /// another runtime asks Redis only when that runtime continues.
    pub fn hand_over(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.config.hand_over = time.into().unwrap_or_default();
        self
    }

    /// Sets whether a free lock may be taken by `RESTORE`, and released by `HDEL`, instead of by scripts, which take
    /// three times as long on the server. Defaults to `true`: where an ACL refuses the commands, the client uses scripts.
    ///
    /// With `false` the client takes or releases no lock by these commands, and never sends `RESTORE`. It is a
    /// dangerous command (see [Permissions](crate#permissions)), which a user with all rights may not want a client to
    /// send.
    pub fn plain_commands(mut self, allowed: bool) -> Self {
        self.plain_commands = allowed;
        self
    }

    /// Makes Redis tell this client when one of its locks is deleted or taken by others, within a round trip.
    /// Defaults to `false`: the next renewal notices it, after a third of the lease at most.
    ///
    /// The client tracks (`CLIENT TRACKING`) its exclusive locks from an age of a second on, but no read locks and no
    /// permits. docs/performance.md has the cost. In a cluster, and where tracking is refused (an ACL, a proxy, the
    /// embedded engine), this setting has no effect, and [`Client::health`] says so. [`Client::acl_rule`] has the
    /// rights for it.
    ///
    /// # Round trips
    ///
    /// None: the request for tracking is sent with a renewal. A lock has one more renewal at that age, and two after a
    /// re-entry or an extension. While there are tracked locks, the client keeps its subscribing connection.
    pub fn tracking(mut self, tracking: bool) -> Self {
        self.config.tracking = tracking;
        self
    }

    /// Sets whether a client of a cluster announces releases on sharded channels (`SPUBLISH`, from Redis 7.0 on), and
    /// listens there. Defaults to `true`, as Redisson does (`shardedSubscriptionMode: AUTO`). If the server has none,
    /// or an ACL forbids them, the client uses plain channels.
    ///
    /// With `false` it uses plain channels everywhere, for Redisson clients with `shardedSubscriptionMode: OFF`. All
    /// clients of a cluster must agree. A client that listens on the other kind of channel receives nothing: it notices
    /// a release by [polling](Self::poll_interval), or in Redisson at the end of the lease.
    pub fn sharded_pubsub(mut self, sharded: bool) -> Self {
        self.config.sharded_pubsub = sharded;
        self
    }

    /// Calls `hook` when a body under the attribute has completed although its lock was lost by
    /// then.
    ///
    /// Another holder may have run at the same time as that body, and the caller gets no error
    /// (except with `on_lost = error_after`). [`Stats::late_losses`](crate::Stats::late_losses)
    /// counts such bodies.
    ///
    /// The task that ran the body calls the hook, before the function returns. Defaults to none.
    ///
    /// # Panics
    ///
    /// If the hook panics, the call panics too: its return value is lost, and its lock is released
    /// all the same.
    pub fn on_late_loss(mut self, hook: impl Fn(&LateLoss) + Send + Sync + 'static) -> Self {
        self.on_late_loss = Some(Arc::new(hook));
        self
    }

    /// Makes the client's UUID from this number, except for its mark. Only for simulations, which must be repeatable:
    /// two clients with the same number treat each other's locks as their own.
    #[doc(hidden)]
    pub fn fixed_id(mut self, number: u128) -> Self {
        self.config.id = Some(number);
        self
    }

    /// Returns the client, which connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) if no server is set, the URL is invalid, the
    /// [`identity`](Self::identity) is blank, has a NUL or more than 1024 bytes, or a duration is out of range. The
    /// range is 1 ms to a day for time-outs, the poll interval and [`flush_on_drop`](Self::flush_on_drop); at least 100
    /// ms for [`waiter_timeout`](Self::waiter_timeout), and at most a second for [`hand_over`](Self::hand_over).
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the dedicated thread cannot be started.
    pub fn build(self) -> Result<Client, Error> {
        let mut dialer = self.servers.dialer()?;
        dialer.scripts_only = !self.plain_commands;
        dialer.plain_channels = !self.config.sharded_pubsub;
        self.check()?;
        let spawner = match self.dedicated_thread {
            true => Spawner::dedicated()?,
            false => Spawner::default(),
        };
        Ok(Client {
            engine: Handle::new(&ClientEngine::new(dialer, spawner, self.config)),
            default_wait: self.default_wait,
            late_losses: Arc::new(LateLosses::new(self.on_late_loss)),
        })
    }

    fn check(&self) -> Result<(), Error> {
        let Config {
            timeouts,
            poll_interval,
            waiter_timeout,
            flush_on_drop,
            ..
        } = &self.config;
        check_lease(ACTION, self.config.lease)?;
        let waits = [timeouts.connect, timeouts.response, *poll_interval];
        let is_out_of_range = |span: Duration| span < SHORTEST || span > LONGEST;
        if waits.into_iter().any(is_out_of_range) {
            return refused(
                "a time-out or the poll interval is shorter than a millisecond or longer than a day",
            );
        }
        if let Some(flaw) = timeouts.retry.flaw() {
            return refused(flaw);
        }
        if is_out_of_range(self.config.replica_timeout) {
            return refused(
                "the time-out of replicas is shorter than a millisecond or longer than a day",
            );
        }
        if *waiter_timeout < SHORTEST_WAITER_TIMEOUT || *waiter_timeout > LONGEST {
            return refused("the waiter time-out is shorter than 100 ms or longer than a day");
        }
        let namespace = self.config.namespace.as_deref();
        if namespace.is_some_and(|namespace| namespace.trim().is_empty()) {
            return refused("the namespace is empty or blank");
        }
        let identity = self.config.identity.as_ref();
        if let Some(flaw) = identity.and_then(|of| Theft::flaw(&of.name)) {
            return Err(Error::bad_input(ACTION, format!("the identity {flaw}")));
        }
        if flush_on_drop.is_some() && !self.dedicated_thread {
            return refused(
                "flush_on_drop needs dedicated_thread: on a caller's runtime it would wait for itself",
            );
        }
        if flush_on_drop.is_some_and(is_out_of_range) {
            return refused(
                "the time of flush_on_drop is shorter than a millisecond or longer than a day",
            );
        }
        if self.config.hand_over > LONGEST_HAND_OVER {
            return refused("the time of hand_over is longer than a second");
        }
        Ok(())
    }

    /// Connects, and returns the client.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build) and of [`Client::connect`].
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.engine.connect().await?;
        Ok(client)
    }
}

impl Servers {
    /// The servers that are named, if any are.
    fn endpoint(&self) -> Result<Option<Endpoint>, Error> {
        let url = self.url.iter().map(|url| Endpoint::parse(url));
        let urls = self.urls.iter().map(|urls| Endpoint::of_several(urls));
        let sentinels = self.sentinels.iter();
        let sentinels = sentinels.map(|(each, service)| Endpoint::of_sentinels(each, service));
        let cluster = self.cluster.iter().map(|nodes| Endpoint::of_cluster(nodes));
        let named = url.chain(urls).chain(sentinels).chain(cluster);
        #[cfg(feature = "redis-1")]
        let named = named.chain(self.redis.iter().map(|redis| {
            let own_tls = self.roots.is_some() || self.tls_identity.is_some();
            redis.endpoint(own_tls)
        }));
        let mut named = named;
        let endpoint = named.next();
        match named.next() {
            Some(_) => refused("two of url, urls, redis, sentinels and cluster name the servers"),
            None => endpoint.transpose(),
        }
    }

    /// How servers are found and connected to.
    fn dialer(&self) -> Result<Dialer, Error> {
        let by_url = self.endpoint()?.map(|endpoint| {
            Dialer::new(endpoint, self.roots.as_deref(), self.tls_identity.as_ref())
        });
        let mut dialer = match (by_url.transpose()?, self.connector.clone()) {
            (None, None) => return refused("no server: name a url, connector or embedded engine"),
            (Some(dialer), None) => dialer,
            (None, Some(connector)) => Dialer::through(connector),
            (Some(dialer), Some(connector)) => dialer.over(connector)?,
        };
        if let Some(connector) = self.node_connector.clone() {
            dialer = dialer.over_nodes(connector);
        }
        if let Some((user, password)) = self.sentinel_login.clone() {
            dialer = dialer.with_sentinel_login(user, password)?;
        }
        if let Some(source) = self.credentials.clone() {
            dialer = dialer.with_credentials(source)?;
        }
        if let Some(name) = &self.server_name {
            if name.trim().is_empty() {
                return refused("the server's name is empty or blank");
            }
            dialer = dialer.named(name);
        }
        if let Some(name) = self.client_name.clone() {
            if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return refused(
                    "the client's name has spaces, or other than printable ASCII characters",
                );
            }
            dialer.or_client_name(name);
        }
        Ok(dialer)
    }
}

#[cfg(feature = "redis-1")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis-1")))]
impl From<RedisClient> for ClientBuilder {
    /// A builder with the server of this client; see [`ClientBuilder::redis`].
    fn from(client: RedisClient) -> Self {
        Self::new().redis(client.get_connection_info().clone())
    }
}

impl fmt::Debug for ClientBuilder {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("servers", &self.servers.endpoint().ok().flatten())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

const ACTION: &str = "make a client";

fn texts<U: AsRef<str>>(texts: impl IntoIterator<Item = U>) -> Vec<String> {
    let texts = texts.into_iter().map(|text| text.as_ref().to_owned());
    texts.collect()
}

fn refused<T>(why: &'static str) -> Result<T, Error> {
    Err(Error::bad_input(ACTION, why))
}

/// The shortest time-out and poll interval. With a shorter one a client would ask all the time.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest time-out.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Heartbeats need time to arrive.
const SHORTEST_WAITER_TIMEOUT: Duration = Duration::from_millis(100);
/// How long tasks hand a lock over to each other; see [`ClientBuilder::hand_over`].
const DEFAULT_HAND_OVER: Duration = Duration::from_millis(10);
/// With a longer time, other processes would wait noticeably.
const LONGEST_HAND_OVER: Duration = Duration::from_secs(1);
