//! The servers of a RedLock.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::poll;

use super::RedLock;
use super::repairer::Repairer;
use crate::clock;
use crate::engine::Handle;
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::shim::{Mutex, lock};
use crate::wire::{RLockWire, Recipe};

/// Several independent servers that decide by majority: the maker of [`RedLock`]s. Cheap to clone;
/// clones share everything.
///
/// Take an odd number of them, three or five: of an even number as many may fail as of one less.
/// One server makes a lock on one server. Each should fail by itself: other machines, no
/// replication among them, each a primary of its own.
///
/// It has one task, which runs while its guards exist and sleeps while nothing is lost.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::Duration;
/// use redlock_rt::{Client, Quorum};
///
/// let urls = ["redis://a.example", "redis://b.example", "redis://c.example"];
/// let clients = urls.map(|url| Client::builder().url(url).build());
/// let clients = clients.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let quorum = Quorum::new(clients)?.server_timeout(Duration::from_millis(50));
/// let lock = quorum.redlock("leader");
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Quorum {
    shared: Arc<Shared>,
    server_timeout: Option<Duration>,
}

/// Shared by the clones, the locks and the guards.
pub(super) struct Shared {
    pub(super) engines: Vec<Handle>,
    pub(super) repairer: Arc<Repairer>,
    queues: Mutex<Queues>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    by_name: HashMap<Arc<str>, Weak<Queue>>,
    /// With so many what is not in use is forgotten.
    sweep_at: usize,
}

/// The tasks of this process that want one name: the first of them asks the servers.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) turn: tokio::sync::Mutex<()>,
    /// What is known of the servers, for those behind the first.
    news: Mutex<News>,
}

#[derive(Debug, Default)]
struct News {
    /// Whether fewer than a majority answered when they were last asked; `None`: never asked.
    starved: Option<bool>,
    /// Since when the first of the tasks asks.
    asking: Option<Instant>,
}

impl Queue {
    pub(super) fn set_starved(&self, starved: bool) {
        lock(&self.news).starved = Some(starved);
    }

    pub(super) fn is_starved(&self) -> bool {
        lock(&self.news).starved.unwrap_or(false)
    }

    /// The caller is the first, until the result is dropped.
    pub(super) fn asks(&self) -> Asks<'_> {
        lock(&self.news).asking = Some(clock::now());
        Asks(self)
    }

    /// Whether servers are silent that a majority needs, as far as somebody behind the first can
    /// know who waits since `started`: they were, or nobody has asked but the first, who has heard
    /// nothing for half of the time that either of them had.
    pub(super) fn is_silent(&self, started: Instant, server_timeout: Duration) -> bool {
        let now = clock::now();
        let news = lock(&self.news);
        news.starved.unwrap_or_else(|| {
            let longest = now.saturating_duration_since(started).min(server_timeout);
            let asking = news
                .asking
                .map(|since| now.saturating_duration_since(since));
            asking.is_some_and(|asking| asking >= longest / 2)
        })
    }
}

/// A task that waits. Once it has its turn it asks the servers, and keeps it until it is dropped.
pub(super) struct Waits<'a> {
    waiting: &'a AtomicUsize,
    turn: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See [`Queue::asks`].
pub(super) struct Asks<'a>(&'a Queue);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        lock(&self.0.news).asking = None;
    }
}

/// Fewer names than this are not worth a sweep.
const FEW_QUEUES: usize = 16;
/// What a server may take to answer if nobody says: a 20th of the lease, and never longer.
const LONGEST_SERVER_TIMEOUT: Duration = Duration::from_millis(250);
const SHORTEST_SERVER_TIMEOUT: Duration = Duration::from_millis(1);

impl Quorum {
    pub(crate) fn of(engines: Vec<Handle>) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::bad_input("make a quorum", why));
        if engines.is_empty() {
            return refuse("there are no servers".into());
        }
        let mut places: Vec<_> = engines.iter().map(|engine| engine.server().place).collect();
        places.sort_unstable();
        // Another database of it is no other server either.
        if let Some(pair) = places.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("{} is there twice", pair[0]));
        }
        Ok(Self {
            shared: Arc::new(Shared {
                engines,
                repairer: Arc::default(),
                queues: Mutex::default(),
                waiting: AtomicUsize::new(0),
            }),
            server_timeout: None,
        })
    }

    /// Sets how long a server may take to answer before it counts as one that does not. It should be
    /// far below the lease, which runs meanwhile. Defaults to a 20th of the lease, at most 250 ms.
    /// Zero is reported by every operation as [`BadInput`](crate::ErrorKind::BadInput).
    #[must_use]
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.server_timeout = Some(timeout);
        self
    }

    /// Returns the lock of this name. Does no I/O. The namespace is that of each client.
    #[must_use]
    pub fn redlock(&self, name: impl AsRef<str>) -> RedLock {
        RedLock::new(self, name.as_ref())
    }

    /// Returns how many servers there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.shared.engines.len()
    }

    /// Returns how many of them make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.shared.need()
    }

    /// Returns how many tasks wait for its locks; [`Client::stats`](crate::Client::stats) does not
    /// count them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Acquire)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn server_timeout_set(&self) -> Option<Duration> {
        self.server_timeout
    }

    pub(super) fn recipes(&self, name: &str) -> Result<Arc<[Arc<dyn Recipe>]>, BadName> {
        let engines = self.shared.engines.iter();
        let recipes = engines.map(|engine| {
            let name = LockName::new(engine.namespace(), name)?;
            Ok(Arc::new(RLockWire::new(name)) as Arc<dyn Recipe>)
        });
        recipes.collect()
    }
}

impl Shared {
    pub(super) fn need(&self) -> usize {
        self.engines.len() / 2 + 1
    }

    pub(super) fn server_timeout(
        &self,
        set: Option<Duration>,
        lease: Option<Duration>,
    ) -> Duration {
        set.unwrap_or_else(|| {
            let share = lease.unwrap_or_default() / 20;
            share.clamp(SHORTEST_SERVER_TIMEOUT, LONGEST_SERVER_TIMEOUT)
        })
    }

    /// Queues up and waits to be the first; `None`: `deadline` came before.
    pub(super) async fn turn<'a>(
        &'a self,
        queue: &'a Queue,
        deadline: Option<Instant>,
    ) -> Option<Waits<'a>> {
        let mut turn = pin!(queue.turn.lock());
        let first = poll!(turn.as_mut());
        // Counted once it has its place, so that who sees it counted comes behind it.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut waits = Waits {
            waiting: &self.waiting,
            turn: None,
        };
        waits.turn = Some(match (first, deadline) {
            (Poll::Ready(turn), _) => turn,
            (Poll::Pending, None) => turn.await,
            (Poll::Pending, Some(deadline)) => {
                let turn = clock::timeout_at(clock::to_tokio(deadline), turn);
                turn.await.ok()?
            }
        });
        Some(waits)
    }

    pub(super) fn starved(&self, action: &'static str, name: &Arc<str>) -> Error {
        let why = format!("{} of {} are needed", self.need(), self.engines.len());
        Error::new(ErrorKind::Quorum, action)
            .named(name)
            .detail(why)
    }

    /// The queue of a name, made where there is none.
    pub(super) fn queue(&self, name: &Arc<str>) -> Arc<Queue> {
        let mut queues = lock(&self.queues);
        if queues.by_name.len() >= queues.sweep_at {
            queues.by_name.retain(|_, queue| queue.strong_count() > 0);
            queues.sweep_at = 2 * queues.by_name.len().max(FEW_QUEUES);
        }
        let known = queues.by_name.entry(Arc::clone(name)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let queue = Arc::default();
            *known = Arc::downgrade(&queue);
            queue
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.repairer.close();
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.shared.engines.iter();
        let servers: Vec<_> = servers.map(|engine| engine.server().place).collect();
        f.debug_struct("Quorum")
            .field("servers", &servers)
            .field("server_timeout", &self.server_timeout)
            .finish()
    }
}
