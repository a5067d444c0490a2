//! Making a client.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::late_loss::{LateLossHook, LateLosses};
use super::{Client, LateLoss};
use crate::connection::{Connector, Dialer, Endpoint, Spawner, Timeouts};
use crate::engine::{Config, Engine, Handle};
use crate::error::Error;
use crate::sync::check_lease;

/// Makes a [`Client`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBuilder {
    url: Option<Secret>,
    connector: Option<Connector>,
    roots: Vec<u8>,
    namespace: Option<String>,
    server_name: Option<String>,
    lease: Duration,
    default_wait: Option<Duration>,
    poll_interval: Duration,
    linger: Duration,
    timeouts: Timeouts,
    waiter_timeout: Duration,
    dedicated_thread: bool,
    flush_on_drop: Option<Duration>,
    on_late_loss: Option<LateLossHook>,
}

/// The URL, which may hold a password, also where it cannot be parsed.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Endpoint::parse(&self.0) {
            Ok(endpoint) => fmt::Debug::fmt(&endpoint, f),
            Err(_) => f.write_str("a URL that cannot be parsed"),
        }
    }
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            url: None,
            connector: None,
            roots: Vec::new(),
            namespace: None,
            server_name: None,
            lease: Duration::from_secs(30),
            default_wait: Some(Duration::from_secs(1)),
            poll_interval: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            timeouts: Timeouts {
                connect: Duration::from_secs(3),
                response: Duration::from_secs(3),
            },
            waiter_timeout: Duration::from_secs(5),
            dedicated_thread: false,
            flush_on_drop: None,
            on_late_loss: None,
        }
    }

    /// Sets the server's URL; see [`Client::connect`].
    ///
    /// With a [`connector`](Self::connector) besides, in whatever order, the streams are the
    /// connector's and everything else is the URL's.
    pub fn url(mut self, url: &str) -> Self {
        self.url = Some(Secret(url.to_owned()));
        self
    }

    /// Uses an in-process engine as the server; several clients may share one.
    #[cfg(feature = "embedded")]
    #[cfg_attr(docsrs, doc(cfg(feature = "embedded")))]
    pub fn embedded(self, engine: &crate::embedded::Engine) -> Self {
        let name = engine.id();
        let engine = engine.clone();
        let mut builder = self.connector(move || {
            let session = engine.connect();
            async move { Ok(session) }
        });
        // A caller who names it later has the last word.
        builder.server_name.get_or_insert(name);
        builder
    }

    /// Sets what the server is called where servers are told apart: by a
    /// [`MultiLock`](crate::MultiLock), and by a [`Quorum`](crate::Quorum).
    ///
    /// All processes must call a server the same. Defaults to host and port of the URL. Name it
    /// where processes reach it by different addresses, and where it is reached by a
    /// [`connector`](Self::connector), which otherwise counts as a server of its own.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Takes byte streams to the server from `connect`: a tunnel, a simulation, a proxy in a test.
    ///
    /// A [`url`](Self::url) besides says who logs in, which database is used, and what the server
    /// is [called](Self::server_name); its host is not connected to. With `rediss://` TLS is spoken
    /// over the connector's streams, and the certificate has to be one of that host. Without a URL
    /// nobody logs in, and the database is 0.
    pub fn connector<F, Fut, S>(mut self, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.connector = Some(Connector::new(connect));
        self
    }

    /// Trusts these certificates, in PEM form, besides the well-known ones. For `rediss://` URLs.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = pem.into();
        self
    }

    /// Puts `namespace:` before every name, before anything else is derived from it, as Redisson's
    /// name mapper does. Defaults to none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the lease of locks that name none: how long they outlive a crash. Defaults to 30 s,
    /// as Redisson's `lockWatchdogTimeout`.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long functions under the attribute wait if they do not say; `None`: as long as it
    /// takes. Defaults to 1 s.
    pub fn default_wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.default_wait = wait.into();
        self
    }

    /// Sets how long a waiter goes at least without looking although nothing was announced; it
    /// looks before twice that is over. Defaults to 1 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets how long a subscription outlives its last waiter. Defaults to 1 s.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets how long a call may take that has no wait of its own. Defaults to 3 s.
    ///
    /// This is the one bound of `try_lock`, `unlock`, `extend`, `is_locked`, `force_unlock`,
    /// `available`, `count`, `token` and all others that do not wait for anybody, whatever fails:
    /// connecting, which is tried again and again meanwhile, the answer, or both. What such a call
    /// began goes on in the background where its page says so.
    ///
    /// A connection on which a reply takes half of this is given up, so that there is time for
    /// another try.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// Sets how long connecting may take; all addresses of a host name are tried in it, also where
    /// some of them do not answer. Defaults to 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Sets how long the waiters of this client in the queues of fair locks count as alive when it
    /// is not heard any more: for so long a killed process may delay others. It is heard three times
    /// as often, and every 30 s at least. Defaults to 5 s.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = timeout;
        self
    }

    /// Runs the client's tasks and connections on a thread of its own, so that a blocked runtime
    /// loses no locks, and a guard dropped while its runtime shuts down is still released while the
    /// process goes on.
    ///
    /// Such a client works under any executor, and without one (`futures::executor::block_on`);
    /// others need a runtime of Tokio with timers and I/O.
    ///
    /// The thread ends with the process, like any other: at the end of `main` call
    /// [`shutdown`](Client::shutdown), or see [`flush_on_drop`](Self::flush_on_drop).
    ///
    /// Defaults to `false`: they run on the runtime of the caller, and when that ends, on another
    /// one from which the client is used. A runtime that still exists and that nobody drives (one
    /// of a single thread, between two calls of `block_on`) is like a blocked one.
    pub fn dedicated_thread(mut self, dedicated: bool) -> Self {
        self.dedicated_thread = dedicated;
        self
    }

    /// Has the last of the client's handles and guards to be dropped block its thread until Redis
    /// has answered every release that is left, at most for `limit`. Defaults to never: a drop
    /// does not block.
    ///
    /// For programs that end by returning from `main` at any place, with `?`. Where Redis does not
    /// answer, the drop takes the whole of `limit`. A client in a `static` is never dropped, so
    /// nothing waits for it; the [default client](crate::set_default_client) does not count as a handle, so
    /// with it the last guard waits. Needs [`dedicated_thread`](Self::dedicated_thread).
    pub fn flush_on_drop(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.flush_on_drop = limit.into();
        self
    }

    /// Calls `hook` when a body under the attribute has completed although its lock was lost by
    /// then: what it did may have met another holder, and its caller is not told (unless by
    /// `on_lost = error_after`). Such bodies are counted in [`Stats::late_losses`](crate::Stats::late_losses).
    ///
    /// The hook is called by the task that ran the body, before the call returns. Defaults to none.
    ///
    /// # Panics
    ///
    /// If the hook does, the call panics: its value is gone, and its lock is released all the same.
    pub fn on_late_loss(mut self, hook: impl Fn(&LateLoss) + Send + Sync + 'static) -> Self {
        self.on_late_loss = Some(LateLossHook::new(hook));
        self
    }

    /// Makes the client; it connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`BadInput`](crate::ErrorKind::BadInput) where no server is named, the URL cannot be one,
    /// or a duration is out of range.
    pub fn build(self) -> Result<Client, Error> {
        let refuse = |why: &'static str| Err(Error::bad_input("make a client", why));
        let endpoint = self.url.map(|url| Endpoint::parse(&url.0)).transpose()?;
        let by_url = endpoint.map(|endpoint| Dialer::new(endpoint, &self.roots));
        let dialer = match (by_url.transpose()?, self.connector) {
            (None, None) => return refuse("no server: name a url, connector or embedded engine"),
            (Some(dialer), None) => dialer,
            (None, Some(connector)) => Dialer::through(connector),
            (Some(dialer), Some(connector)) => dialer.over(connector),
        };
        let dialer = match &self.server_name {
            Some(name) if name.trim().is_empty() => {
                return refuse("the server's name is empty or blank");
            }
            Some(name) => dialer.named(name),
            None => dialer,
        };
        check_lease(self.lease)?;
        let Timeouts { connect, response } = self.timeouts;
        if connect.is_zero() || response.is_zero() || self.poll_interval.is_zero() {
            return refuse("a time-out or the poll interval is zero");
        }
        if connect > LONGEST || response > LONGEST || self.poll_interval > LONGEST {
            return refuse("a time-out or the poll interval is longer than a day");
        }
        if self.waiter_timeout < SHORTEST_WAITER_TIMEOUT || self.waiter_timeout > LONGEST {
            return refuse("the waiter time-out is shorter than 100 ms or longer than a day");
        }
        let namespace = match self.namespace {
            Some(namespace) if namespace.trim().is_empty() => {
                return refuse("the namespace is empty or blank");
            }
            namespace => namespace.map(String::into_boxed_str),
        };
        if self.flush_on_drop.is_some() && !self.dedicated_thread {
            return refuse(
                "flush_on_drop needs dedicated_thread: on a caller's runtime it would wait for itself",
            );
        }
        if self
            .flush_on_drop
            .is_some_and(|limit| limit.is_zero() || limit > LONGEST)
        {
            return refuse("the time of flush_on_drop is zero or longer than a day");
        }
        let spawner = match self.dedicated_thread {
            true => Spawner::dedicated()?,
            false => Spawner::default(),
        };
        let config = Config {
            dialer,
            spawner,
            timeouts: self.timeouts,
            linger: self.linger,
            poll_interval: self.poll_interval,
            lease: self.lease,
            namespace,
            waiter_timeout: self.waiter_timeout,
            flush_on_drop: self.flush_on_drop,
        };
        Ok(Client {
            engine: Handle::new(&Engine::new(config)),
            default_wait: self.default_wait,
            late_losses: Arc::new(LateLosses::new(self.on_late_loss)),
        })
    }

    /// Makes the client and connects.
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

/// No time-out is meant to be longer.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Beats must be able to come in time.
const SHORTEST_WAITER_TIMEOUT: Duration = Duration::from_millis(100);
