//! The shared state of one client, its start and its end.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::acks::{Ack, Acks, Fsync, ReplicaAck};
use super::fair::FairMap;
use super::hold::{LockQueues, LostReason};
use super::hub::Hub;
use super::opaque::Opaque;
use super::release::{Cleanup, Releases};
use super::signal::Signal;
use super::wait::{Health, LatchWaiters, WaiterMap};
use super::watchdog::{Tracking, Watchdog};
use crate::clock;
#[cfg(test)]
use crate::connection::{Connector, RetryPolicy};
use crate::connection::{Dialer, Fault, Home, Lane, Nodes, ServerId, Spawner, Timeouts, To};
use crate::error::{Error, ErrorKind};
use crate::meter::{Event, LockEvent, News};
use crate::name::{ClientId, LockName};
use crate::shim::AtomicBool;
use crate::wire::keys::client_key;
use crate::wire::{ClientIdentity, Recipe, Slot};

/// How long `connect` waits for the connection for renewals.
const MOST_FOR_RENEWALS: Duration = Duration::from_millis(250);

/// The configuration of a client.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// In place of a random identity; for simulations.
    pub(crate) id: Option<u128>,
    pub(crate) timeouts: Timeouts,
    pub(crate) linger: Duration,
    /// The polling interval of a waiter, lengthened at random by up to the same time again.
    pub(crate) poll_interval: Duration,
    /// The lease of locks whose options set none.
    pub(crate) lease: Duration,
    /// Joined before every name.
    pub(crate) namespace: Option<Box<str>>,
    /// How long the waiters of a client count as alive after its last heartbeat.
    pub(crate) waiter_timeout: Duration,
    /// How many replicas must have a lock, unless its options say.
    pub(crate) replica_ack: ReplicaAck,
    /// Which servers must have it on disk.
    pub(crate) fsync: Fsync,
    /// How long to wait for replicas.
    pub(crate) replica_timeout: Duration,
    /// How long tasks of this client may hand a lock over to each other, without a call.
    pub(crate) hand_over: Duration,
    /// The identity that the client stores.
    pub(crate) identity: Option<ClientIdentity>,
    /// How long the drop of the last handle waits for outstanding releases.
    pub(crate) flush_on_drop: Option<Duration>,
    /// Whether the server is to report writes to the keys of held locks.
    pub(crate) tracking: bool,
    /// Whether announcements are on sharded channels, where a cluster has them.
    pub(crate) sharded_pubsub: bool,
}

#[cfg(test)]
impl Config {
    /// All times are `span`.
    pub(crate) fn for_tests(span: Duration) -> Self {
        Self {
            id: None,
            timeouts: Timeouts {
                connect: span,
                response: span,
                retry: RetryPolicy::default(),
            },
            linger: span,
            poll_interval: span,
            lease: span,
            namespace: None,
            waiter_timeout: span,
            replica_ack: ReplicaAck::None,
            fsync: Fsync::None,
            replica_timeout: span,
            identity: None,
            flush_on_drop: None,
            tracking: false,
            sharded_pubsub: true,
            hand_over: Duration::ZERO,
        }
    }
}

/// One client's shared state. Dropped with the last handle and the last guard, which ends its
/// tasks.
pub(crate) struct ClientEngine(Opaque<EngineState>);

impl Deref for ClientEngine {
    type Target = EngineState;

    fn deref(&self) -> &EngineState {
        &self.0
    }
}

/// The state that a [`ClientEngine`] shares.
pub(crate) struct EngineState {
    pub(crate) id: ClientId,
    numbers: AtomicU64,
    pub(crate) config: Config,
    pub(super) dialer: Dialer,
    pub(crate) spawner: Spawner,
    pub(super) nodes: Arc<Nodes>,
    pub(super) acks: Acks,
    pub(crate) hub: Arc<Hub>,
    pub(crate) watchdog: Arc<Watchdog>,
    /// `None`: a loss is noticed at the next renewal.
    pub(super) tracking: Option<Arc<Tracking>>,
    pub(crate) releases: Arc<Releases>,
    pub(crate) news: Arc<News>,
    pub(super) locks: Arc<LockQueues>,
    pub(super) latches: Arc<LatchWaiters>,
    pub(super) fair: Arc<FairMap>,
    /// Used only if sentinels name the master.
    pub(super) failovers: Arc<Signal>,
    closing: AtomicBool,
    /// Calls that are not made yet, such as those of guards that count down latches.
    pub(super) once_calls: AtomicUsize,
    /// The number of callers; see [`Handle`](super::Handle).
    pub(super) handles: AtomicUsize,
    /// The number of handles that `handles` does not count: counted ones may be cloned from them.
    pub(super) uncounted: AtomicUsize,
}

impl ClientEngine {
    pub(crate) fn new(mut dialer: Dialer, spawner: Spawner, config: Config) -> Arc<Self> {
        let id = config.id.map_or_else(ClientId::random, ClientId::fixed);
        dialer.or_client_name(format!("redlock-rt:{}", id.as_str()));
        let news = Arc::<News>::default();
        dialer.news = Some(Arc::clone(&news));
        let watchdog = Arc::<Watchdog>::default();
        let doubted = Arc::downgrade(&watchdog);
        let nodes = Nodes::new(&dialer, &spawner, config.timeouts, move || {
            if let Some(watchdog) = doubted.upgrade() {
                watchdog.doubt();
            }
        });
        let releases = Arc::<Releases>::default();
        let hub = Arc::new(Hub::new(config.linger, nodes.cluster().cloned()));
        // In a cluster each node would report on a channel of the same name.
        let tracks = config.tracking && nodes.cluster().is_none();
        Arc::new_cyclic(|engine| {
            let state = EngineState {
                tracking: tracks.then(|| Tracking::new(&hub, &watchdog)),
                fair: Arc::new(FairMap::new(engine, id.clone(), &hub, config.poll_interval)),
                id,
                numbers: AtomicU64::new(1),
                nodes: Arc::new(nodes),
                acks: Acks::default(),
                hub,
                watchdog,
                locks: WaiterMap::new(&releases.timers),
                latches: WaiterMap::new(&releases.timers),
                releases,
                news,
                failovers: Arc::default(),
                closing: AtomicBool::new(false),
                once_calls: AtomicUsize::new(0),
                handles: AtomicUsize::new(0),
                uncounted: AtomicUsize::new(0),
                config,
                dialer,
                spawner,
            };
            Self(Arc::new(state).into())
        })
    }

    /// Whether the servers are those of a cluster.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.nodes.cluster().is_some()
    }

    /// A client of the server behind these streams, counted as in use.
    #[cfg(test)]
    pub(crate) fn through(connector: Connector, config: Config) -> Arc<Self> {
        let engine = Self::new(Dialer::through(connector), Spawner::default(), config);
        engine.count_handle();
        engine
    }

    /// Connects, so that a wrong address or password is known at once.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.ensure_tasks();
        // The task that dials may be stuck with its runtime.
        let until = clock::after(clock::now(), self.config.timeouts.connect);
        let ready = clock::before(Some(until), self.nodes.ready()).await;
        let renewals = ready
            .unwrap_or_else(|| Err(Fault::connecting_took_too_long().at(self.nodes.place())))
            .map_err(|fault| fault.into_error("connect to redis"))?;
        // If that is refused or slow, the first connection serves renewals meanwhile.
        let until = until.min(clock::after(clock::now(), MOST_FOR_RENEWALS));
        let _ = clock::before(Some(until), renewals.ready()).await;
        Ok(())
    }

    /// Hands a cleanup to the release queue. Calls that can be sent without waiting are sent before
    /// this returns, since a process that ends now has no later moment.
    pub(super) fn leave(self: &Arc<Self>, mut cleanup: Cleanup) {
        let followers = cleanup.followers();
        match clock::is_there() && cleanup.begin() {
            true => self.releases.push_sent(cleanup),
            false => self.releases.push(cleanup),
        }
        // As in `Hold::settled`. The tasks that bring the reply may be among the waiters.
        if let Some(followers) = followers {
            followers.tell_head();
        }
        self.ensure_tasks();
    }

    /// The last caller has gone: waits for outstanding releases, if `flush_on_drop` is set.
    pub(super) fn flush(self: &Arc<Self>) {
        let Some(limit) = self.config.flush_on_drop else {
            return;
        };
        if self.releases.undelivered().all == 0 || self.releases.timers.signal.is_closed() {
            return;
        }
        self.ensure_tasks();
        let engine = Arc::clone(self);
        self.spawner.wait_for(limit, async move {
            let until = clock::after(clock::now(), limit);
            let told = || engine.releases.undelivered().all == 0;
            engine.wait_until(until, told).await;
        });
    }

    pub(super) fn ensure_open(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
    ) -> Result<(), Error> {
        if self.is_closing() {
            return Err(self.shut_down_error(action, name));
        }
        self.ensure_tasks();
        Ok(())
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn shut_down_error(&self, action: &'static str, name: &LockName) -> Error {
        Error::new(ErrorKind::ShutDown, action).named(name.as_arc())
    }

    /// Stops acquisitions, lets guards end for at most `drain`, releases the remaining holds if
    /// `release` is set, and ends the tasks.
    ///
    /// # Errors
    ///
    /// If releases could not be delivered. The error says what happens to the holds.
    pub(crate) async fn shut_down(
        self: &Arc<Self>,
        drain: Option<Duration>,
        release: bool,
    ) -> Result<(), Error> {
        self.ensure_tasks();
        self.stop_acquiring();
        if let Some(drain) = drain {
            let until = clock::after(clock::now(), drain);
            // A name is in use while it has a guard or a release in progress.
            let in_use = || self.locks.len() + self.once_calls.load(Ordering::Acquire);
            self.wait_until(until, || in_use() == 0).await;
        }
        if release {
            for hold in self.watchdog.holds() {
                hold.end(LostReason::ShutDown);
            }
            let told = || self.releases.undelivered().all == 0;
            self.wait_until(self.patience(clock::now()), told).await;
        }
        let left = match release {
            true => self.releases.left_over(),
            false => None,
        };
        self.end();
        let Some(why) = left else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Unavailable, "shut the client down").detail(why))
    }

    /// Waits for `done`, at most until `until`, or until another shut-down has ended the client.
    async fn wait_until(&self, until: Instant, done: impl Fn() -> bool) {
        while !done() && !self.releases.timers.signal.is_closed() && clock::now() < until {
            clock::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(super) fn stop_acquiring(&self) {
        self.closing.store(true, Ordering::Release);
        self.locks.close();
        self.fair.close();
        self.latches.close();
    }

    /// Ends the tasks and the connections.
    fn end(&self) {
        self.stop_acquiring();
        self.watchdog.losses.end();
        self.watchdog.signal.close();
        if let Some(tracking) = &self.tracking {
            tracking.listen(false);
        }
        self.hub.signal.close();
        self.fair.signal.close();
        self.failovers.close();
        self.releases.close();
        self.nodes.close();
        self.news.end();
    }

    /// Reports an event of a lock.
    pub(super) fn tells(&self, recipe: &dyn Recipe, what: LockEvent) {
        self.news.tell(|| Event::Lock {
            name: Arc::clone(recipe.name().as_arc()),
            kind: recipe.profile().kind,
            what,
        });
    }

    /// The destination of calls about a name.
    pub(super) fn to(&self, name: &LockName) -> To<'_> {
        self.to_slot(self.nodes.slot_of(name))
    }

    pub(crate) fn to_slot(&self, slot: Slot) -> To<'_> {
        To::new(&self.nodes, slot, Lane::Main)
    }

    /// The key with the identity of a client in this namespace, if that leaves room for one.
    pub(crate) fn client_key(&self, client: &str) -> Option<LockName> {
        LockName::new(self.config.namespace.as_deref(), &client_key(client)).ok()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// When a waiter looks again at the latest. Random, so that processes do not all look at the same
    /// time.
    pub(crate) fn next_poll(&self, now: Instant) -> Instant {
        let poll = self.config.poll_interval;
        clock::after(now, poll + clock::part_of(poll))
    }

    /// When a waiter looks again at the latest: earlier if a known lease ends before.
    pub(super) fn next_look(&self, now: Instant, lease: Option<Duration>) -> Instant {
        let poll = self.next_poll(now);
        // Redis expires keys by the millisecond, so one more millisecond.
        let over = lease.map(|lease| clock::after(now, lease + Duration::from_millis(1)));
        over.map_or(poll, |over| over.min(poll))
    }

    /// Which servers must have a lock besides the master's memory, if any must. The arguments come
    /// from the options.
    pub(crate) fn ack(&self, replicas: Option<ReplicaAck>, fsync: Option<Fsync>) -> Option<Ack> {
        let ack = Ack {
            replicas: replicas.unwrap_or(self.config.replica_ack),
            fsync: fsync.unwrap_or(self.config.fsync),
        };
        (!ack.is_none()).then_some(ack)
    }

    /// The server of this client.
    pub(crate) fn server(&self) -> ServerId {
        self.dialer.server()
    }

    /// The runtime of the caller, if the client's tasks run there.
    pub(crate) fn home(&self) -> Option<Home> {
        self.spawner.home()
    }

    /// Set if Redis does not answer the caller that asks for a waiter. The waiter has waited since
    /// `started`.
    pub(super) fn silence(&self, to: &LockName, health: Health, started: Instant) -> Option<Fault> {
        let silent = health.is_silent(started, self.config.timeouts.response, clock::now());
        silent.then(|| self.silent("no answer within the wait", to))
    }

    /// The error for a call without a reply in time.
    pub(crate) fn no_answer(&self, to: &LockName) -> Fault {
        self.silent("no answer in time", to)
    }

    fn silent(&self, what: &'static str, name: &LockName) -> Fault {
        Fault::timed_out(what).at(&self.place_of(name))
    }

    /// The server that has this name, as far as that is known.
    pub(super) fn place_of(&self, name: &LockName) -> Arc<str> {
        let node = self.nodes.known(self.nodes.slot_of(name));
        let current = node.map(|node| Arc::clone(&node.common.current.place));
        current.unwrap_or_else(|| Arc::clone(self.nodes.place()))
    }

    /// The deadline of an operation that waits for no other client. It covers connecting and replies,
    /// also repeatedly. After one lost reply there is time for another try.
    pub(crate) fn patience(&self, now: Instant) -> Instant {
        clock::after(now, self.config.timeouts.response)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.locks.waiting() + self.fair.waiting() + self.latches.waiting()
    }

    pub(crate) fn names(&self) -> usize {
        self.locks.len() + self.latches.len()
    }

    pub(crate) fn tasks(&self) -> usize {
        let signals = [
            &self.hub.signal,
            &self.watchdog.signal,
            &self.releases.timers.signal,
            &self.fair.signal,
            &self.failovers,
        ];
        signals.iter().filter(|signal| signal.is_running()).count()
    }
}

impl Drop for ClientEngine {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ClientEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("id", &self.id)
            .field("held", &self.watchdog.len())
            .field("waiting", &self.waiting())
            .field("subscriptions", &self.hub.channels())
            .finish_non_exhaustive()
    }
}
