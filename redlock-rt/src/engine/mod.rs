//! The machinery that locks of every kind share.
//!
//! ```text
//!             callers (lock, unlock, re-enter, extend)
//!        ┌────────────┬───────────┴───┬──────────────────┐
//!   lines (queues)  hub (pub/sub)  watchdog (renewal)  releases (background)
//!        └────────────┴───────┬───────┴──────────────────┘
//!        main connection   renewal connection   subscribing connection
//! ```
//!
//! The states are pure and synchronous (`waiters`, `line`, `gate`, `lease`, `schedule`,
//! `queue::seats`, `hub::registry`, the queue in `releases`): time comes in as an argument, and what
//! is to be done goes out as a return value. Three thin tasks a client perform it: hub, watchdog,
//! releases. There is no task per lock, and
//! commands that a caller waits for are sent by the caller itself.
//!
//! # Lock order
//!
//! lines' map · line's subscription · line's state, and gates' likewise; schedule · lease; hub's
//! registry. The three groups do not nest, except that an attachment is made under its line's
//! subscription.
//! Wakers are woken and holds dropped with no lock held.

mod acquire;
mod acquire_all;
mod backoff;
#[cfg(test)]
mod count_waker;
mod enter;
mod errand;
mod frame;
mod gate;
mod gates;
mod handle;
mod hold;
mod hub;
mod lease;
mod line;
mod lines;
mod losses;
mod news;
mod pass;
mod queue;
mod releases;
mod schedule;
mod settle;
mod signal;
mod waiters;
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use self::acquire::{acquire, try_acquire};
pub(crate) use self::acquire_all::Attempt;
pub use self::backoff::Backoff;
pub(crate) use self::errand::Errand;
pub use self::frame::Owner;
pub(crate) use self::frame::{Post, Scope};
pub(crate) use self::handle::Handle;
pub use self::hold::Unlocked;
pub(crate) use self::hold::{Hold, HoldGuard, until_lost};
pub(crate) use self::lease::Terms;
pub use self::lease::{GuardState, LostReason};
pub(crate) use self::pass::{ACTION as PASS, pass};
pub(crate) use self::signal::Signal;

use self::gates::Gates;
use self::hub::Hub;
use self::lines::Lines;
use self::queue::Rooms;
use self::releases::Releases;
use self::settle::Settlement;
use self::watchdog::Watchdog;
use crate::clock;
use crate::connection::{
    Caller, Connection, CurrentServer, Dialer, Fault, Home, ServerId, Spawner, Timeouts,
};
use crate::error::{Error, ErrorKind};
use crate::name::{ClientId, LockName};
use crate::wire::{Call, NOTED, Operation, Recipe, Reply};

/// What a client is made with.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) dialer: Dialer,
    pub(crate) spawner: Spawner,
    pub(crate) timeouts: Timeouts,
    pub(crate) linger: Duration,
    /// The longest time for which a waiter goes without looking; varied by up to as much again.
    pub(crate) poll_interval: Duration,
    /// The lease of locks whose caller names none.
    pub(crate) lease: Duration,
    /// Joined before every name.
    pub(crate) namespace: Option<Box<str>>,
    /// How long the waiters of a client that was not heard count as alive.
    pub(crate) waiter_timeout: Duration,
    /// How long the last caller to go waits for what is still to be told.
    pub(crate) flush_on_drop: Option<Duration>,
}

/// How a caller asks for a lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner<'a> {
    /// `None`: as long as it takes.
    pub(crate) wait: Option<Duration>,
    pub(crate) owner: Option<&'a Owner>,
    /// Of a kind whose waiters are not woken.
    pub(crate) backoff: Option<&'a Backoff>,
}

/// Between two tries of a call that waits for nobody.
const PAUSE: Duration = Duration::from_millis(20);

/// What to do with a call whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It says what it means, and is sent again.
    Always,
    /// Sent again only where it cannot have run.
    UnlessRun,
}

/// One client's shared state. Dropped with the last handle and the last guard, which ends its
/// tasks.
pub(crate) struct Engine {
    pub(crate) id: ClientId,
    numbers: AtomicU64,
    config: Config,
    /// To which the three connections lead.
    current: Arc<CurrentServer>,
    main: Arc<Connection>,
    /// On a connection of their own renewals are never delayed by what callers send.
    renewals: Arc<Connection>,
    hub: Arc<Hub>,
    watchdog: Arc<Watchdog>,
    releases: Arc<Releases>,
    lines: Arc<Lines>,
    gates: Arc<Gates>,
    rooms: Arc<Rooms>,
    closing: AtomicBool,
    /// Of callers; see [`Handle`].
    handles: AtomicUsize,
}

impl Engine {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let watchdog = Arc::new(Watchdog::new());
        let moved = Arc::downgrade(&watchdog);
        let Timeouts { connect, response } = config.timeouts;
        let current = Arc::new(CurrentServer::new(
            config.dialer.called(),
            // As long as it takes to connect to the new server and to verify what is held there.
            connect + response,
            move || {
                if let Some(watchdog) = moved.upgrade() {
                    watchdog.doubt();
                }
            },
        ));
        let connection = || {
            let (down, up) = (Arc::downgrade(&watchdog), Arc::downgrade(&watchdog));
            Arc::new(Connection::new(
                config.dialer.clone(),
                config.spawner.clone(),
                config.timeouts,
                Arc::clone(&current),
                move || {
                    if let Some(watchdog) = down.upgrade() {
                        watchdog.doubt();
                    }
                },
                move |again| {
                    if let Some(watchdog) = up.upgrade().filter(|_| again) {
                        watchdog.doubt();
                    }
                },
            ))
        };
        let id = ClientId::random();
        Arc::new(Self {
            rooms: Arc::new(Rooms::new(id.clone())),
            id,
            numbers: AtomicU64::new(1),
            main: connection(),
            renewals: connection(),
            current,
            hub: Arc::new(Hub::new(config.linger)),
            watchdog,
            releases: Arc::new(Releases::new()),
            lines: Arc::new(Lines::default()),
            gates: Arc::new(Gates::default()),
            closing: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
            config,
        })
    }

    /// Starts the client's tasks where they do not run: at first, and after the runtime that they
    /// ran on is gone.
    pub(crate) fn ensure_tasks(self: &Arc<Self>) {
        let Config {
            dialer,
            spawner,
            timeouts,
            ..
        } = &self.config;
        let after = || {
            let engine = Arc::downgrade(self);
            move || {
                if let Some(engine) = engine.upgrade() {
                    engine.task_ended();
                }
            }
        };
        signal::ensure(
            spawner,
            &self.releases,
            || {},
            after(),
            || releases::run(Arc::clone(&self.releases)),
        );
        signal::ensure(
            spawner,
            &self.watchdog,
            || {},
            after(),
            || watchdog::run(Arc::clone(&self.watchdog), Arc::clone(&self.renewals)),
        );
        let hub = Arc::clone(&self.hub);
        signal::ensure(
            spawner,
            &self.hub,
            move || hub.disconnected(),
            after(),
            || {
                let (hub, current) = (Arc::clone(&self.hub), Arc::clone(&self.current));
                hub::run(hub, dialer.clone(), *timeouts, current)
            },
        );
        self.ensure_beats();
    }

    /// Starts the task that beats for queued waiters, once there were some.
    fn ensure_beats(self: &Arc<Self>) {
        if !self.rooms.is_used() {
            return;
        }
        let engine = Arc::downgrade(self);
        signal::ensure(
            &self.config.spawner,
            &self.rooms,
            || {},
            move || {
                if let Some(engine) = engine.upgrade() {
                    engine.task_ended();
                }
            },
            || queue::run(Arc::clone(&self.rooms), Arc::clone(&self.renewals)),
        );
    }

    /// The runtime of a task is gone. Who still uses the client in another one starts it there:
    /// waiters when they are woken, and for a guard, whose owner need not be polled, the runtime
    /// that acquired it.
    fn task_ended(self: &Arc<Self>) {
        for home in self.watchdog.homes() {
            let engine = Arc::clone(self);
            // Among them is the one that has just ended; it drops this.
            home.run(move || engine.ensure_tasks());
        }
        // A task that is spawned where the runtime is ending ends at once, and so comes here: with
        // each guard that the runtime drops. So nobody is looked for where nobody waits.
        if self.lines.waiting() > 0 {
            self.lines.notify_all();
        }
        if self.gates.waiting() > 0 {
            self.gates.notify_all();
        }
    }

    /// Connects, so that a wrong address or password is known at once.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.ensure_tasks();
        // The task that dials may stand still with its runtime.
        let ready = clock::timeout(self.config.timeouts.connect, self.main.ready());
        let ready = ready.await;
        ready
            .unwrap_or_else(|_| Err(Fault::connecting_took_too_long().at(self.main.place())))
            .map_err(|fault| fault.into_error("connect to redis"))
    }

    /// Asks for something that may be asked again.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        action: &'static str,
        recipe: &dyn Recipe,
        call: Call,
    ) -> Result<Reply, Error> {
        let reply = self.send(action, recipe.name(), call, Repeat::Always).await;
        reply.map_err(|error| match error.is_outcome_unknown() {
            true => error.known_as(ErrorKind::Unavailable),
            false => error,
        })
    }

    /// Sends a call that is of no lock, and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// It may or may not run.
    pub(crate) async fn send(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: Call,
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        let mut journey = settle::Journey::default();
        let reply = self.transmit(action, name, &call, repeat, &mut journey);
        let reply = reply.await?;
        let Some(channel) = call.channel() else {
            return Ok(reply);
        };
        let reply = journey.hear(reply);
        self.ended_on(channel, &journey.news);
        Ok(reply)
    }

    /// Frees a lock whoever holds it, once: a repeat could free that of a later holder.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub(crate) async fn force_release(
        self: &Arc<Self>,
        action: &'static str,
        recipe: &dyn Recipe,
    ) -> Result<Reply, Error> {
        let mut journey = settle::Journey::default();
        let (call, once) = (recipe.force_release(), Repeat::UnlessRun);
        let reply = self.transmit(action, recipe.name(), &call, once, &mut journey);
        let reply = reply.await?;
        let reply = journey.hear(reply);
        self.ended(recipe, &journey.news);
        Ok(reply)
    }

    async fn transmit(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: &Call,
        repeat: Repeat,
        journey: &mut settle::Journey,
    ) -> Result<Reply, Error> {
        self.open(action, name)?;
        let mut fault: Option<Fault> = None;
        let until = self.patience(clock::now());
        let caller = match repeat {
            Repeat::Always => Caller::Call,
            Repeat::UnlessRun => Caller::CallOnce,
        };
        let outcome = loop {
            let attempt = journey.attempt(&self.main, || call.clone(), Some(until));
            match attempt.await {
                Some(Err(passing)) if passing.is_passing_for(caller) => {
                    let again = clock::after(clock::now(), PAUSE);
                    let answered = !passing.is_of_dialing();
                    fault = Some(passing);
                    // A try that is cut short would leave the outcome open.
                    if clock::after(again, PAUSE) >= until {
                        break None;
                    }
                    if answered {
                        clock::sleep_until(again).await;
                    }
                }
                outcome => break outcome,
            }
        };
        let (error, refused) = match outcome {
            Some(Ok(reply)) => return Ok(reply),
            Some(Err(fault)) => {
                // A connection that is not to be had says nothing of what was sent before.
                let refused = !fault.may_have_run() && !fault.is_of_dialing();
                (fault.into_error(action), refused)
            }
            None => match fault {
                Some(fault) => (fault.into_error(action), false),
                None => (self.no_answer().into_error(action), false),
            },
        };
        let error = match journey.is_open() && !refused {
            true => error.known_as(ErrorKind::OutcomeUnknown),
            false => error,
        };
        Err(error.named(name.as_arc()))
    }

    /// Leaves a settlement to the background. What can be sent without waiting is sent before this
    /// returns: a process that ends now has no other moment for it.
    fn leave(self: &Arc<Self>, mut settlement: Settlement) {
        if clock::is_there() {
            settlement.begin();
        }
        self.releases.push(settlement);
        self.ensure_tasks();
    }

    /// The last caller has gone: waits for what is left, where the client was made so.
    fn flush(self: &Arc<Self>) {
        let Some(limit) = self.config.flush_on_drop else {
            return;
        };
        if self.releases.untold().all == 0 || self.releases.signal.is_closed() {
            return;
        }
        self.ensure_tasks();
        let engine = Arc::clone(self);
        self.config.spawner.wait_for(limit, async move {
            let until = clock::after(clock::now(), limit);
            let told = || engine.releases.untold().all == 0;
            engine.wait_until(until, told).await;
        });
    }

    fn open(self: &Arc<Self>, action: &'static str, name: &LockName) -> Result<(), Error> {
        if self.is_closing() {
            return Err(self.shut_down_error(action, name));
        }
        self.ensure_tasks();
        Ok(())
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn shut_down_error(&self, action: &'static str, name: &LockName) -> Error {
        Error::new(ErrorKind::ShutDown, action).named(name.as_arc())
    }

    /// Gives nothing out any more, lets guards end for as long as `drain`, releases what is left if
    /// that is asked for, and ends the tasks.
    ///
    /// # Errors
    ///
    /// Where releases could not be delivered; it says what becomes of what was held.
    pub(crate) async fn shut_down(
        self: &Arc<Self>,
        drain: Option<Duration>,
        release: bool,
    ) -> Result<(), Error> {
        self.closing.store(true, Ordering::Release);
        self.ensure_tasks();
        self.lines.close();
        self.gates.close();
        if let Some(drain) = drain {
            let until = clock::after(clock::now(), drain);
            // A line exists as long as anything of its name does: a guard, a release under way.
            self.wait_until(until, || self.lines.len() == 0).await;
        }
        if release {
            for hold in self.watchdog.holds() {
                hold.end(LostReason::ShutDown);
            }
            let told = || self.releases.untold().all == 0;
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
        while !done() && !self.releases.signal.is_closed() && clock::now() < until {
            clock::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends the tasks and the connections.
    fn end(&self) {
        self.closing.store(true, Ordering::Release);
        self.lines.close();
        self.gates.close();
        self.watchdog.losses.end();
        self.hub.signal.close();
        self.watchdog.signal.close();
        self.rooms.signal.close();
        self.releases.close();
        self.main.close();
        self.renewals.close();
    }

    /// Names a call, which is noted until it is surely not repeated any more.
    pub(crate) fn operation(&self) -> Operation {
        let now = clock::now();
        Operation {
            id: self.id.owner(self.next_number()),
            noted: NOTED.max((self.patience(now) - now) * 4),
        }
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// When a waiter looks again at the latest. Varied, so that processes do not come together.
    fn next_poll(&self, now: Instant) -> Instant {
        clock::after(
            now,
            self.config.poll_interval.mul_f64(1.0 + fastrand::f64()),
        )
    }

    /// As [`next_poll`](Self::next_poll), where a lease is known that may be over before.
    fn next_look(&self, now: Instant, lease: Option<Duration>) -> Instant {
        let poll = self.next_poll(now);
        // Redis expires by the millisecond: one more, and it is over.
        let over = lease.map(|lease| clock::after(now, lease + Duration::from_millis(1)));
        over.map_or(poll, |over| over.min(poll))
    }

    /// The longest time for which a waiter goes without looking.
    pub(crate) fn longest_poll(&self) -> Duration {
        self.config.poll_interval * 2
    }

    pub(crate) fn lease(&self) -> Duration {
        self.config.lease
    }

    pub(crate) fn waiter_timeout(&self) -> Duration {
        self.config.waiter_timeout
    }

    /// Which server this is a client of.
    pub(crate) fn server(&self) -> ServerId {
        self.config.dialer.server()
    }

    /// Starts a task beside the client's own, where those run, unless it runs.
    /// `after`: what is to be done once its runtime is gone.
    pub(crate) fn ensure_beside<T, F>(
        &self,
        owner: &Arc<T>,
        after: impl Fn() + Send + 'static,
        task: impl FnOnce() -> F,
    ) where
        T: AsRef<Signal> + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        signal::ensure(&self.config.spawner, owner, || {}, after, task);
    }

    /// The runtime of the caller, where the client's tasks run there.
    pub(crate) fn home(&self) -> Option<Home> {
        self.config.spawner.home()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.config.namespace.as_deref()
    }

    /// What a caller is told whose call was not answered in time.
    pub(crate) fn no_answer(&self) -> Fault {
        self.silent("no answer in time")
    }

    /// What a waiter is told for whom nobody got an answer in time.
    fn no_answer_within_the_wait(&self) -> Fault {
        self.silent("no answer within the wait")
    }

    fn silent(&self, what: &'static str) -> Fault {
        Fault::timed_out(what).at(self.main.place())
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.config.timeouts.response
    }

    /// Until when an operation without a wait of its own is tried, whatever fails: connecting, an
    /// answer, or both, over and over again. One lost reply leaves time for another try.
    pub(crate) fn patience(&self, now: Instant) -> Instant {
        clock::after(now, self.config.timeouts.response)
    }

    pub(crate) fn held(&self) -> usize {
        self.watchdog.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lines.waiting() + self.gates.waiting()
    }

    pub(crate) fn names(&self) -> usize {
        self.lines.len() + self.gates.len()
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.hub.channels()
    }

    pub(crate) fn renewed(&self) -> usize {
        self.watchdog.renewals()
    }

    pub(crate) fn releasing(&self) -> usize {
        self.releases.len()
    }

    pub(crate) fn tasks(&self) -> usize {
        let signals = [
            &self.hub.signal,
            &self.watchdog.signal,
            &self.releases.signal,
            &self.rooms.signal,
        ];
        signals.iter().filter(|signal| signal.is_running()).count()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("id", &self.id)
            .field("held", &self.held())
            .field("waiting", &self.waiting())
            .field("subscriptions", &self.subscriptions())
            .finish_non_exhaustive()
    }
}
