//! The client: a handle to one server, with the state that all its locks share.

mod acl;
mod builder;
#[cfg(feature = "serde")]
mod config;
mod default_client;
mod health;
mod identity;
mod late_loss;
mod scan;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use self::acl::AclKind;
pub use self::builder::ClientBuilder;
#[cfg(feature = "serde")]
pub use self::config::ClientConfig;
pub use self::default_client::{default_client, set_default_client, with_default_client};
pub use self::health::{Health, ServerHealth};
pub use self::late_loss::LateLoss;
pub(crate) use self::late_loss::LateLosses;
use crate::engine::Handle;
use crate::error::Error;
#[cfg(doc)]
use crate::meter::Event;
use crate::meter::Events;
use crate::sync::{
    Adoptable, CountDownLatch, CyclicBarrier, DoubleBarrier, FairLock, FencedLock, FencedValue,
    Idempotent, LeaderElection, LockGuard, LockOptions, MultiLock, Once, PermitExpirableSemaphore,
    Quorum, RLock, ReadWriteLock, Semaphore, SpinLock, Ticket,
};

/// A client of one Redis server, or of a Redis Cluster.
///
/// A client is cheap to clone; clones share everything.
///
/// Whatever the number of locks, a client has at most three connections to its server: commands, renewals,
/// subscriptions. Each way of waiting for replicas that it has used ([`replica_ack`](ClientBuilder::replica_ack)) adds
/// one. In a cluster it has as many to each master, made on first use, and sometimes a short one to ask for the layout.
/// If sentinels name the master, one more leads to a sentinel. If a connection cannot be made (a full server, a changed
/// password, no file descriptor left), locks stay held: the others do its work, and waiters poll. Only a connection for
/// replicas has no substitute. A client has three tasks, one more after its first wait for a fair lock, and one more if
/// sentinels name the master. A cluster adds none. All end with the last clone and the last guard. A client in a
/// `static` works from one runtime after another.
#[derive(Clone)]
pub struct Client {
    engine: Handle,
    default_wait: Option<Duration>,
    late_losses: Arc<LateLosses>,
}

/// How to end a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shutdown {
    /// Waits at most this long for guards to end, then releases what is still held. The release
    /// takes at most one [response time-out](ClientBuilder::response_timeout) more, whether Redis
    /// answers or not.
    Drain(Duration),
    /// Releases all holds at once; their guards are lost. This takes at most the response time-out.
    ReleaseAll,
    /// Releases nothing: each hold ends with its lease. Permits of a [`Semaphore`] have no lease
    /// and stay taken for ever.
    Abandon,
}

/// Counts of what a client has at one moment.
///
/// When nothing is in use, all counts but `tasks` and `late_losses` are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks that this client holds; a re-entered lock counts once.
    pub held: usize,
    /// Tasks that wait for a lock or a latch.
    pub waiting: usize,
    /// Channels that the client is subscribed to, including lingering subscriptions. In a cluster each
    /// counts once, at the master of its slot.
    pub subscriptions: usize,
    /// Holds that the watchdog renews.
    pub renewals: usize,
    /// Background releases that are not yet sent or answered, in a cluster those of all nodes together.
    pub releases: usize,
    /// Names that are held, waited for or being released.
    pub names: usize,
    /// Running background tasks: at most three, one more after the first wait for a fair lock, and one
    /// more if sentinels name the master. Their number does not depend on that of a cluster's nodes.
    pub tasks: usize,
    /// Bodies under the attribute that completed although their lock was lost by then, since the
    /// client was made; see [`ClientBuilder::on_late_loss`].
    pub late_losses: u64,
}

impl Client {
    /// Connects to the server of a URL, with default options.
    ///
    /// The URL is one of
    ///
    /// * `redis://[user[:password]@]host[:port][/db]`: one server. A user without a password logs in with an empty
    ///   one;
    /// * `redis://…@host:port,host:port[/db]`: a master and its replicas. The client finds the master
    ///   for each connection, so it follows a promotion by hand; see [`urls`](ClientBuilder::urls);
    /// * `redis+sentinel://…@host:port,host:port/service[/db]`: the master that these sentinels name.
    ///   User and password are those of the master; see
    ///   [`sentinel_credentials`](ClientBuilder::sentinel_credentials) and
    ///   [`sentinels`](ClientBuilder::sentinels);
    /// * `redis+cluster://…@host:port,host:port`: the Redis Cluster of these nodes. Others are learned
    ///   from them; see [`cluster`](ClientBuilder::cluster);
    /// * `redis+unix:///path[?db=N&user=U&pass=P]`: a Unix socket. A `+` in one of these is written `%2B`.
    ///
    /// With `rediss://`, `rediss+sentinel://` and `rediss+cluster://` all connections use TLS (feature `tls`). Each
    /// certificate must be valid for the host in the URL, or for the address that the sentinels or the nodes name.
    /// docs/topologies.md says what each guarantees in a failover.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) for an invalid URL; [`Denied`](crate::ErrorKind::Denied) for a wrong
    /// password, or without a right that each renewal needs; [`NoScripts`](crate::ErrorKind::NoScripts) if scripts
    /// cannot be sent; [`Misconfigured`](crate::ErrorKind::Misconfigured) for a single server that is a replica, a
    /// sentinel, a node of a cluster, or not Redis, and for a service that the sentinels do not watch;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the server does not answer, no sentinel answers, or there is
    /// no master at present.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redlock_rt::Error> {
    /// let client = redlock_rt::Client::connect("redis://localhost").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().url(url).connect().await
    }

    /// Returns a builder for a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Returns a client of a new in-process engine, for tests and demos.
    #[cfg(feature = "embedded")]
    #[cfg_attr(docsrs, doc(cfg(feature = "embedded")))]
    #[must_use]
    pub fn embedded() -> Self {
        let engine = crate::embedded::Engine::new();
        let builder = Self::builder().embedded(&engine);
        match builder.build() {
            Ok(client) => client,
            // The defaults are valid, and nothing is connected to.
            Err(error) => unreachable!("an embedded client with default options: {error}"),
        }
    }

    /// Returns the re-entrant lock of this name. Does no I/O.
    #[must_use]
    pub fn rlock(&self, name: impl AsRef<str>) -> RLock {
        RLock::handle(&self.engine, name.as_ref())
    }

    /// Returns the fair lock of this name. Does no I/O.
    #[must_use]
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock {
        FairLock::handle(&self.engine, name.as_ref())
    }

    /// Returns the read-write lock of this name. Does no I/O.
    #[must_use]
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::handle(&self.engine, name.as_ref())
    }

    /// Returns the fenced lock of this name, which gives out fencing tokens. Does no I/O.
    #[must_use]
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock {
        FencedLock::handle(&self.engine, name.as_ref())
    }

    /// Returns the election of a leader of this name. Does no I/O.
    #[must_use]
    pub fn leader_election(&self, name: impl AsRef<str>) -> LeaderElection {
        LeaderElection::handle(&self.engine, name.as_ref())
    }

    /// Returns a handle to the value of this key, which refuses writes with old fencing tokens. Does no I/O.
    ///
    /// The client's namespace is not put before the key, because the data does not belong to the
    /// client.
    #[must_use]
    pub fn fenced_value(&self, key: impl AsRef<str>) -> FencedValue {
        FencedValue::handle(&self.engine, key.as_ref())
    }

    /// Returns the spin lock of this name, whose waiters poll. Does no I/O.
    #[must_use]
    pub fn spin_lock(&self, name: impl AsRef<str>) -> SpinLock {
        SpinLock::handle(&self.engine, name.as_ref())
    }

    /// Returns the job of this name for this nominal time, in milliseconds. Does no I/O.
    pub fn once(&self, name: impl AsRef<str>, fire_time: impl Into<SystemTime>) -> Once {
        Once::handle(&self.engine, name.as_ref(), fire_time.into())
    }

    /// Returns the request with this idempotency key. Does no I/O.
    pub fn idempotent(&self, key: impl AsRef<str>) -> Idempotent {
        Idempotent::handle(&self.engine, key.as_ref())
    }

    /// Returns one lock over the re-entrant locks of all these names. Does no I/O.
    #[must_use]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.rlock(name)))
    }

    /// Returns the count-down latch of this name. Does no I/O.
    #[must_use]
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::handle(&self.engine, name.as_ref())
    }

    /// Returns the barrier of this name, at which this many parties wait for each other. Does no I/O.
    #[must_use]
    pub fn cyclic_barrier(&self, name: impl AsRef<str>, parties: u32) -> CyclicBarrier {
        CyclicBarrier::handle(&self.engine, name.as_ref(), parties)
    }

    /// Returns the double barrier of this name, which this many parties enter and leave together. Does no I/O.
    #[must_use]
    pub fn double_barrier(&self, name: impl AsRef<str>, parties: u32) -> DoubleBarrier {
        DoubleBarrier::handle(&self.engine, name.as_ref(), parties)
    }

    /// Returns the semaphore of this name, whose permits have no lease. Does no I/O.
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::handle(&self.engine, name.as_ref())
    }

    /// Returns the semaphore of this name whose permits have leases. Does no I/O.
    #[must_use]
    pub fn permit_expirable_semaphore(&self, name: impl AsRef<str>) -> PermitExpirableSemaphore {
        PermitExpirableSemaphore::handle(&self.engine, name.as_ref())
    }

    /// Continues the hold of a ticket, from any process and namespace.
    ///
    /// The guard has a new hold with this client's [lease](ClientBuilder::lease), is renewed, and reports a loss like
    /// any other guard. The guard of a [`FencedLock`] has a new token, greater than the ticket's. Redis decides whether
    /// the lease of the ticket is over; its [deadline](Ticket::deadline) does not.
    ///
    /// # Round trips
    ///
    /// One. A repeat after a lost reply finds its own hold.
    ///
    /// # Fairness
    ///
    /// None: the lock was not free meanwhile, and its waiters continue to wait.
    ///
    /// # Cancel safety
    ///
    /// The ticket may be used up, and the lock free: the call releases in the background what it has acquired.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](crate::ErrorKind::NotOwner) if the hold of the ticket no longer exists: its lease was over, or it
    /// was adopted, freed or stolen. Nothing changes then. [`BadInput`](crate::ErrorKind::BadInput) if the ticket is of
    /// the other kind of lock. Also the errors of [`Lock::try_lock`](crate::Lock::try_lock): after them the ticket may
    /// be used up too, if Redis did not answer.
    ///
    /// # Examples
    ///
    /// See [`Ticket`].
    pub async fn adopt<K: Adoptable>(&self, ticket: &Ticket) -> Result<LockGuard<K>, Error> {
        self.adopt_with(ticket, LockOptions::new()).await
    }

    /// As [`adopt`](Self::adopt), with these options. A [`max_hold`](LockOptions::max_hold) and a
    /// [`min_hold`](LockOptions::min_hold) begin anew; a [`wait`](LockOptions::wait) has no meaning.
    ///
    /// # Errors
    ///
    /// Those of [`adopt`](Self::adopt), and [`BadInput`](crate::ErrorKind::BadInput) for options that are not valid, or
    /// with an [`Owner`](crate::Owner).
    pub async fn adopt_with<K: Adoptable>(
        &self,
        ticket: &Ticket,
        options: LockOptions,
    ) -> Result<LockGuard<K>, Error> {
        ticket.adopt(&self.engine, &options).await
    }

    /// Returns the client's UUID, the part of an owner before its number.
    #[must_use]
    pub fn uuid(&self) -> &str {
        self.engine.id.as_str()
    }

    /// Returns the wait of functions under the attribute that set none.
    #[must_use]
    pub fn default_wait(&self) -> Option<Duration> {
        self.default_wait
    }

    /// Returns what the client has at this moment, as counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = &self.engine;
        Stats {
            held: engine.watchdog.len(),
            waiting: engine.waiting(),
            subscriptions: engine.hub.channels(),
            renewals: engine.watchdog.renewals(),
            releases: engine.releases.len(),
            names: engine.names(),
            tasks: engine.tasks(),
            late_losses: self.late_losses.count(),
        }
    }

    /// Returns the events of the client from now on: those of its locks and of its connections.
    ///
    /// Up to 1024 events wait for a listener. After that the oldest are dropped, and [`Missed`](Event::Missed) says how
    /// many. The events of one lock come in the order in which they happened. A [`MultiLock`] and a
    /// [`RedLock`](crate::RedLock) have the events of their parts. Waits for a `RedLock` have no events. The stream
    /// ends with the client, and does not keep it alive.
    ///
    /// # Round trips
    ///
    /// None. Without a listener, nothing is done for events.
    ///
    /// # Cancel safety
    ///
    /// A dropped stream receives no more events.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use redlock_rt::{Client, Event, LockEvent};
    ///
    /// let client = Client::embedded();
    /// let mut events = client.events();
    /// client.rlock("order:7").lock().await?.unlock().await?;
    /// while let Some(event) = events.next().await {
    ///     if let Event::Lock { name, what, .. } = event {
    ///         println!("{name}: {what:?}");
    ///         if what == LockEvent::Released {
    ///             break;
    ///         }
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        self.engine.news.listen()
    }

    /// Ends the client and all its clones: no lock is acquired any more, waiters get
    /// [`ShutDown`](crate::ErrorKind::ShutDown), and `how` says how current holds end.
    ///
    /// Call it at [the end of a program](crate#the-end-of-a-program).
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, no lock is acquired any more. If the future is dropped, holds that
    /// were not released end with their lease, if they have one. The call may be repeated.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if a release could not be delivered to Redis.
    /// That lock ends with its lease, but the permits of a [`Semaphore`] stay taken.
    pub async fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        let (drain, release) = match how {
            Shutdown::Drain(drain) => (Some(drain), true),
            Shutdown::ReleaseAll => (None, true),
            Shutdown::Abandon => (None, false),
        };
        self.engine.shut_down(drain, release).await
    }

    /// A handle that does not count as a handle of the client; its clones do.
    fn uncounted(&self) -> Self {
        Self {
            engine: self.engine.uncounted(),
            default_wait: self.default_wait,
            late_losses: Arc::clone(&self.late_losses),
        }
    }

    pub(crate) fn late_losses(&self) -> &LateLosses {
        &self.late_losses
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.engine.config.timeouts.response
    }
}

impl Quorum {
    /// Returns the quorum of these clients' servers. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) if there are no clients, if one is of a cluster, or
    /// if two have the same server, judged by their URLs or [names](ClientBuilder::server_name).
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self, Error> {
        let engines = clients.into_iter().map(|client| client.engine);
        Self::of(engines.collect())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
