//! The servers of a RedLock.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::RedLock;
use super::repairer::Repairer;
use crate::clock;
use crate::engine::{
    Called, Handle, Health, Subject, WaitKey, WaiterGuard, WaiterMap, Waiters, Waits, Wake,
};
use crate::error::{Error, ErrorKind};
use crate::wire::{LockRecipe, Named, RLockWire, Recipe};

/// Several independent servers that decide by majority, and the source of [`RedLock`]s.
///
/// A quorum is cheap to clone; clones share everything.
///
/// Use an odd number of servers, three or five: with an even number, no more servers may fail than
/// with one server less. A quorum of one server is a lock on one server. The servers should fail
/// independently: different machines, each a primary, without replication between them.
///
/// A quorum has one task, which runs while its guards exist, and sleeps while nothing is lost.
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
    pub(super) shared: Arc<QuorumState>,
    pub(super) server_timeout: Option<Duration>,
}

/// Shared by the clones, the locks and the guards.
pub(super) struct QuorumState {
    pub(super) engines: Vec<Handle>,
    pub(super) repairer: Arc<Repairer>,
    queues: Arc<WaiterMap<Contest>>,
}

/// The state beside the queue of a name.
#[derive(Debug, Default)]
pub(super) struct Contest {
    /// Whether the result of a round is known.
    asked: AtomicBool,
}

impl Subject for Contest {
    /// A round serves only the task that asks.
    type Outcome = Infallible;
    type Offer = Infallible;
}

/// The tasks of this process that wait for one name: the first of them asks the servers.
pub(super) type Contenders = Waiters<Contest>;
/// The place of one waiting task. The first task asks the servers until this is dropped.
pub(super) type ContestTurn = WaiterGuard<Contest>;

impl Contenders {
    /// The first of the tasks asks the servers.
    pub(super) fn begin(&self) {
        if !self.subject.asked.load(Ordering::Acquire) {
            self.set_health(Health::Asking(clock::now()));
        }
    }

    /// A round is over. `starved`: less than a majority of the servers answered.
    pub(super) fn note_round(&self, starved: bool) {
        self.subject.asked.store(true, Ordering::Release);
        self.set_health(match starved {
            true => Health::Failing,
            false => Health::Answering,
        });
    }
}

/// The default time-out of a server: a 20th of the lease, but never longer than this.
const LONGEST_SERVER_TIMEOUT: Duration = Duration::from_millis(250);
const SHORTEST_SERVER_TIMEOUT: Duration = Duration::from_millis(1);

impl Quorum {
    pub(crate) fn of(engines: Vec<Handle>) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::bad_input("make a quorum", why));
        if engines.is_empty() {
            return refuse("there are no servers".into());
        }
        if engines.iter().any(|engine| engine.is_of_cluster()) {
            return refuse(
                "one of them is a cluster: a RedLock needs independent servers, and the masters of a \
                 cluster fail over, which may lose a lock of the majority; use the locks of the cluster \
                 with replica_ack, or single servers"
                    .into(),
            );
        }
        let mut places: Vec<_> = engines.iter().map(|engine| engine.server().place).collect();
        places.sort_unstable();
        // Another database of the same server is not another server.
        if let Some(pair) = places.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("{} is there twice", pair[0]));
        }
        let queues = WaiterMap::new(&engines[0].releases.timers);
        Ok(Self {
            shared: Arc::new(QuorumState {
                engines,
                repairer: Arc::default(),
                queues,
            }),
            server_timeout: None,
        })
    }

    /// Sets the longest time for a reply of a server, before it counts as not answering. The time
    /// should be far below the lease, which runs meanwhile. Defaults to a 20th of the lease, at
    /// most 250 ms. With zero, every operation returns [`BadInput`](crate::ErrorKind::BadInput).
    #[must_use]
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.server_timeout = Some(timeout);
        self
    }

    /// Returns the lock of this name, with the namespace of each client. Does no I/O.
    #[must_use]
    pub fn redlock(&self, name: impl AsRef<str>) -> RedLock {
        let (name, engines) = (name.as_ref(), self.shared.engines.iter());
        let recipes = engines.map(|engine| {
            let name = engine.name(Named::RLock, name)?;
            Ok(Arc::new(RLockWire::new(name)) as Arc<dyn LockRecipe>)
        });
        RedLock {
            quorum: Arc::clone(&self.shared),
            server_timeout: self.server_timeout,
            recipes: recipes.collect(),
            name: name.into(),
        }
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.shared.engines.len()
    }

    /// Returns the number of servers of a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.shared.need()
    }

    /// Returns the number of tasks that wait for locks of this quorum.
    /// [`Client::stats`](crate::Client::stats) does not count them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting()
    }
}

impl QuorumState {
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

    /// Queues, and waits to be the first; `None`: `deadline` came first.
    pub(super) async fn turn(
        &self,
        contenders: &Arc<Contenders>,
        deadline: Option<Instant>,
    ) -> Option<ContestTurn> {
        let turn = contenders.enter_unannounced();
        match turn.called(deadline).await {
            Called::Wake(Wake::Done(never) | Wake::Offered(never)) => match never {},
            Called::Wake(Wake::Head | Wake::Try | Wake::Closed) => Some(turn),
            Called::TimedOut => None,
        }
    }

    pub(super) fn starved(&self, action: &'static str, name: &Arc<str>) -> Error {
        let why = format!("{} of {} are needed", self.need(), self.engines.len());
        Error::new(ErrorKind::Quorum, action)
            .named(name)
            .detail(why)
    }

    /// The tasks of this process that wait for this lock. `recipe`: the recipe of the first server.
    pub(super) fn contenders(&self, recipe: &dyn Recipe) -> Arc<Contenders> {
        self.queues.waiters(WaitKey {
            kind: "redlock",
            name: recipe.name().clone(),
        })
    }
}

impl Drop for QuorumState {
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
