//! The client: a handle to one server and what is shared by all locks there.

mod builder;
mod default_client;
mod late_loss;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::ClientBuilder;
pub use self::default_client::{default_client, set_default_client, with_default_client};
pub use self::late_loss::LateLoss;
pub(crate) use self::late_loss::LateLosses;
use crate::engine::Handle;
use crate::error::Error;
use crate::sync::{
    CountDownLatch, FairLock, FencedLock, FencedValue, MultiLock, PermitExpirableSemaphore, Quorum,
    RLock, ReadWriteLock, Semaphore, SpinLock,
};

/// A client of one Redis server. Cheap to clone; clones share everything.
///
/// It keeps three connections at most (commands, renewals, subscriptions) and three tasks, or four
/// where a fair lock was waited for, whatever the number of locks, and ends them with its last clone and last guard. A client in a
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
    /// Wait at most so long for guards to end, then release what is still held, which takes at most
    /// the [response time-out](ClientBuilder::response_timeout) more, whether Redis answers or not.
    Drain(Duration),
    /// Release what is held at once; its guards are lost. It takes at most the response time-out.
    ReleaseAll,
    /// Release nothing: what is held ends with its lease. Permits of a [`Semaphore`], which have
    /// none, stay taken for ever.
    Abandon,
}

/// What a client has at one moment; all zero but `tasks` and `late_losses` where nothing is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Holds: locks of this client, re-entered ones once.
    pub held: usize,
    /// Tasks that wait for a lock or a latch.
    pub waiting: usize,
    /// Channels subscribed to, those that linger included.
    pub subscriptions: usize,
    /// Holds that the watchdog renews.
    pub renewals: usize,
    /// Releases that wait to be sent or answered in the background.
    pub releases: usize,
    /// Names that are held, waited for or being released.
    pub names: usize,
    /// Background tasks that run: three at most, and one more once a fair lock was waited for.
    pub tasks: usize,
    /// Bodies under the attribute, since the client was made, that completed although their lock
    /// was lost by then; see [`ClientBuilder::on_late_loss`].
    pub late_losses: u64,
}

impl Client {
    /// Connects to the server of a URL, with default options.
    ///
    /// The URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://` likewise for TLS
    /// (feature `tls`), or `redis+unix:///path[?db=N&user=U&pass=P]`.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) for a URL that cannot be one,
    /// [`Denied`](crate::ErrorKind::Denied) for a wrong password,
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) for a replica, a sentinel, a node of a
    /// cluster, or what is no Redis at all,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where nobody answers.
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

    /// Makes a client step by step.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Makes a client of an in-process engine of its own, for tests and demos.
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
        RLock::open(&self.engine, name.as_ref())
    }

    /// Returns the fair lock of this name. Does no I/O.
    #[must_use]
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock {
        FairLock::open(&self.engine, name.as_ref())
    }

    /// Returns the read-write lock of this name. Does no I/O.
    #[must_use]
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::open(&self.engine, name.as_ref())
    }

    /// Returns the lock of this name that gives out fencing tokens. Does no I/O.
    #[must_use]
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock {
        FencedLock::open(&self.engine, name.as_ref())
    }

    /// Returns the value of this key that refuses writes with old fencing tokens. Does no I/O.
    ///
    /// The client's namespace is not put before the key: the data is not the client's own.
    #[must_use]
    pub fn fenced_value(&self, key: impl AsRef<str>) -> FencedValue {
        FencedValue::open(&self.engine, key.as_ref())
    }

    /// Returns the lock of this name whose waiters poll. Does no I/O.
    #[must_use]
    pub fn spin_lock(&self, name: impl AsRef<str>) -> SpinLock {
        SpinLock::open(&self.engine, name.as_ref())
    }

    /// Returns the lock of all re-entrant locks of these names. Does no I/O.
    #[must_use]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.rlock(name)))
    }

    /// Returns the count-down latch of this name. Does no I/O.
    #[must_use]
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::open(&self.engine, name.as_ref())
    }

    /// Returns the semaphore of this name, whose permits have no lease. Does no I/O.
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::open(&self.engine, name.as_ref())
    }

    /// Returns the semaphore of this name whose permits have leases. Does no I/O.
    #[must_use]
    pub fn permit_expirable_semaphore(&self, name: impl AsRef<str>) -> PermitExpirableSemaphore {
        PermitExpirableSemaphore::open(&self.engine, name.as_ref())
    }

    /// Returns the UUID that stands before the number in the owners of this client.
    #[must_use]
    pub fn uuid(&self) -> &str {
        self.engine.id.as_str()
    }

    /// Returns how long a function under the attribute waits if it does not say.
    #[must_use]
    pub fn default_wait(&self) -> Option<Duration> {
        self.default_wait
    }

    /// Returns what the client has at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = &self.engine;
        Stats {
            held: engine.held(),
            waiting: engine.waiting(),
            subscriptions: engine.subscriptions(),
            renewals: engine.renewed(),
            releases: engine.releasing(),
            names: engine.names(),
            tasks: engine.tasks(),
            late_losses: self.late_losses.count(),
        }
    }

    /// Ends the client and all its clones: nothing is given out any more, waiters get
    /// [`ShutDown`](crate::ErrorKind::ShutDown), and what is held ends as `how` says.
    ///
    /// Call it at [the end of a program](crate#the-end-of-a-program).
    ///
    /// # Cancel safety
    ///
    /// Nothing is given out any more from the first poll on; what was not released by then ends
    /// with its lease, where it has one. May be called again.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where Redis could not be told of a release;
    /// that lock ends with its lease, but the permits of a [`Semaphore`] stay taken.
    pub async fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        let (drain, release) = match how {
            Shutdown::Drain(drain) => (Some(drain), true),
            Shutdown::ReleaseAll => (None, true),
            Shutdown::Abandon => (None, false),
        };
        self.engine.shut_down(drain, release).await
    }

    /// One that does not keep a last handle from being the last; its clones do.
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
        self.engine.response_timeout()
    }
}

impl Quorum {
    /// Makes the quorum of the servers of these clients. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) where there are none, or where two of them are of
    /// one server, as far as their URLs or [names](ClientBuilder::server_name) tell.
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
