//! A link that is dialed again after a failure.
//!
//! No lane depends on a connection that cannot be made (docs/faults.md). The connection for commands is
//! replaced only when it has ended: while it lives, the withdrawal of an acquisition is sent after it on the
//! same connection. A connection that takes over first kills the client of the ended one. Before Redis has
//! confirmed that, it carries no command of a caller. Renewals and heartbeats may change connection at any
//! time: they set a state, and none creates anything.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::exchange::{Exchange, Prelude};
use super::link::{Link, OnDoubt};
use super::retry::{Gate, RetryPolicy};
use super::wait_for_replicas::{Had, Until};
use crate::clock;
use crate::connection::dial::Dialer;
use crate::connection::fault::Fault;
use crate::connection::one_task::{self, OneTask, Tried, Turn};
use crate::connection::server::{Beside, CurrentServer, Identity, Right};
use crate::connection::spawner::Spawner;
use crate::shim::lock_std;
use crate::wire::{Call, Reply};

/// How long to wait for a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    /// The limit for a call that waits for no other client, including reconnects.
    pub(crate) response: Duration,
    /// Between two tries.
    pub(crate) retry: RetryPolicy,
}

impl Timeouts {
    /// The time for one reply. After it the connection is closed, and there is time for another try.
    pub(crate) fn reply(self) -> Duration {
        self.response / 2
    }
}

/// What the connections to one server, or to the nodes of a cluster, have in common.
pub(crate) struct Common {
    pub(crate) dialer: Dialer,
    pub(in crate::connection) spawner: Spawner,
    pub(in crate::connection) timeouts: Timeouts,
    /// For log lines about the client; of one server, where its connections lead.
    pub(crate) current: Arc<CurrentServer>,
    pub(in crate::connection) on_doubt: OnDoubt,
}

impl Common {
    /// `on_doubt`: called when a link has ended, or was replaced.
    pub(in crate::connection) fn new(
        dialer: Dialer,
        spawner: &Spawner,
        timeouts: Timeouts,
        on_doubt: OnDoubt,
    ) -> Arc<Self> {
        let moved = Arc::clone(&on_doubt);
        // The time to connect to the new server and to verify the holds there.
        let refused_for = timeouts.connect + timeouts.response;
        let mut current = CurrentServer::new(dialer.called(), refused_for, move || moved());
        current.journal.news.clone_from(&dialer.news);
        current.clustered = dialer.clustered;
        Arc::new(Self {
            dialer,
            spawner: spawner.clone(),
            timeouts,
            current: Arc::new(current),
            on_doubt,
        })
    }
}

/// If a link breaks within this time, or without an answer, there is a pause as after a failed try.
const YOUNG: Duration = Duration::from_millis(100);
/// How often those pauses grow.
const SHORT_PAUSES: u32 = 2;
/// The number of server processes to remember that may still read broken links.
const MOST_STALE: usize = 8;

/// A connection that dials again after it broke, or after a command without a reply.
pub(crate) struct Connection {
    common: Arc<Common>,
    /// `None`: the commands of callers, and releases.
    lane: Option<Beside>,
    /// For commands, the connection for renewals; for the others, the connection for commands.
    other: OnceLock<Weak<Self>>,
    /// Never held across an await.
    state: Mutex<ConnectionState>,
    /// The task that dialed has ended.
    dialed: Notify,
    gate: Gate,
}

#[derive(Default)]
pub(in crate::connection) struct ConnectionState {
    link: Option<Arc<Link>>,
    /// The clients of broken links, which their servers may still read. There is at most one for each server
    /// process: no link to it is used before the previous one has certainly ended. A server that was
    /// abandoned for another one may become the master again.
    stale: Vec<Identity>,
    /// Since when no command that was sent on an earlier link can run any more; `None` while one may.
    quiet: Option<Instant>,
    dialing: OneTask,
    /// There was a connection.
    was_there: bool,
    /// The number of pauses since a try succeeded.
    pauses: u32,
    not_before: Option<Instant>,
}

impl Connection {
    /// `lane`: as in the connection.
    pub(super) fn new(common: Arc<Common>, lane: Option<Beside>) -> Self {
        Self {
            common,
            lane,
            other: OnceLock::new(),
            state: Mutex::default(),
            dialed: Notify::new(),
            gate: Gate::default(),
        }
    }

    /// Another connection to the same server, beside this one for commands.
    pub(super) fn beside(self: &Arc<Self>, lane: Beside) -> Arc<Self> {
        let beside = Self::new(Arc::clone(&self.common), Some(lane));
        beside.has_beside(self);
        Arc::new(beside)
    }

    /// Each of the two connections can replace the other.
    pub(super) fn has_beside(&self, other: &Arc<Self>) {
        let _ = self.other.set(Arc::downgrade(other));
    }

    /// Whether there is a connection; if not, connects in the background.
    pub(crate) fn is_there(self: &Arc<Self>) -> bool {
        let live = self.live().is_some();
        if !live {
            one_task::start(self);
        }
        live
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.common.timeouts
    }

    /// Starts a call, once the server answers calls; connects first if there is no connection. `None`: `until`
    /// came first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the returned exchange is polled.
    pub(in crate::connection) async fn call_until(
        self: &Arc<Self>,
        call: Call,
        prelude: Prelude,
        until: Option<Instant>,
    ) -> Option<Result<Exchange, Fault>> {
        if let Err(fault) = self.pass(until).await {
            return Some(Err(fault));
        }
        let link = clock::before(until, self.link()).await?;
        Some(link.map(|link| Exchange::new(link, call, prelude, true, clock::stamp())))
    }

    /// As [`try_call`](Self::try_call), for a caller that may not read the reply.
    /// None while the server refuses all calls.
    pub(crate) fn last_call(&self, call: Call) -> Option<Exchange> {
        if self.gate.is_refusing() {
            return None;
        }
        let link = self.live()?;
        let made = clock::stamp();
        Some(Exchange::new(link, call, Prelude::Load, true, made))
    }

    /// As [`call_until`](Self::call_until) if there is a live connection, and the server does not refuse all
    /// calls. Otherwise returns the call. `now`: as in [`Delivery::attempt_at`](super::Delivery::attempt_at).
    pub(crate) fn try_call(&self, call: Call, now: Option<Instant>) -> Result<Exchange, Call> {
        let refuses = self.gate.is_refusing();
        match self.live().filter(|_| !refuses) {
            Some(link) => {
                let made = now.unwrap_or_else(clock::stamp);
                Ok(Exchange::new(link, call, Prelude::None, true, made))
            }
            None => Err(call),
        }
    }

    /// Starts a call that is sent at once or never, if there is a live connection.
    pub(crate) fn call_now(&self, call: Call) -> Option<Exchange> {
        let link = self.live()?;
        let made = clock::stamp();
        Some(Exchange::new(link, call, Prelude::None, false, made))
    }

    /// As [`Link::call_and_wait`].
    ///
    /// # Cancel safety
    ///
    /// The calls may run, so they must be calls that may run at any time.
    pub(crate) async fn call_and_wait(
        self: &Arc<Self>,
        calls: &[Call],
        until: Until,
    ) -> Result<(Vec<Result<Reply, Fault>>, Had), Fault> {
        self.pass(Some(clock::after(clock::now(), until.patience)))
            .await?;
        let link = self.link().await?;
        let limit = until.patience + self.timeouts().reply();
        // Also if this future is dropped: the server reads nothing after a WAIT, so the calls of later
        // callers would pile up.
        let mut waiting = Waiting {
            link: Arc::clone(&link),
            answered: false,
        };
        let answer = link.call_and_wait(calls, until);
        let Ok(answer) = clock::timeout(limit, answer).await else {
            return Err(Fault::timed_out("no answer to WAIT").at(self.place()));
        };
        waiting.answered = true;
        self.heard(&answer);
        answer.map_err(|fault| fault.at(self.place()))
    }

    /// How many replicas the server has, as far as it was asked. `most`: the maximum since this connection
    /// was made, or the number in the URL, if greater. `None`: unknown.
    pub(crate) fn replicas(&self, most: bool) -> Option<u32> {
        let listed = self.common.dialer.replicas().filter(|_| most);
        self.live()?.replicas.count().max(listed)
    }

    /// Why the present server cannot wait for replicas, if that is known; `disk`: with WAITAOF.
    pub(crate) fn cannot_wait(&self, disk: bool) -> Option<Fault> {
        let link = self.live()?;
        link.replicas.cannot_wait[usize::from(disk)].get().cloned()
    }

    /// Since when no command of an earlier connection can run any more, as far as the server reports it
    /// (CLIENT KILL). `None`: one may still run, or there was no connection yet.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        // The end of a link may not have been noticed yet.
        let _ = self.live();
        self.state().quiet
    }

    /// Whether the server may still read a broken connection.
    pub(super) fn has_stale_clients(&self) -> bool {
        let _ = self.live();
        !self.state().stale.is_empty()
    }

    /// Ensures that there is a connection.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<(), Fault> {
        self.link().await.map(drop)
    }

    /// Waits for the task that dials. Starts one if there is none.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Arc<Link>, Fault> {
        let live = |state: &mut ConnectionState| state.live(&self.common.timeouts.retry);
        match self.live() {
            Some(link) => Ok(link),
            // Boxed: it is rare, and would be most of the size of every waiting future.
            None => Box::pin(one_task::wait(self, live, || None)).await,
        }
    }

    /// Closes the connection for good: no other is made.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let (link, dialing) = (state.link.take(), state.dialing.close());
        drop(state);
        if let Some(link) = link {
            link.break_off();
        }
        if let Some(task) = dialing {
            task.abort();
        }
        self.dialed.notify_waiters();
        self.gate.open();
    }

    /// Waits until a call may be sent: at once, unless the server refuses all calls. Waits at most until
    /// `until`.
    ///
    /// # Errors
    ///
    /// `until` came first, and the server still refuses.
    pub(in crate::connection) async fn pass(&self, until: Option<Instant>) -> Result<(), Fault> {
        let gate = &self.gate;
        if !gate.is_refusing() {
            return Ok(());
        }
        // Boxed: it is rare, and would be most of the size of every waiting future.
        Box::pin(async move {
            match clock::before(until, gate.pass(&self.common.timeouts.retry)).await {
                Some(()) => Ok(()),
                None => gate.fault().map_or(Ok(()), Err),
            }
        })
        .await
    }

    /// Records the answer to a call.
    pub(in crate::connection) fn heard<T>(&self, answer: &Result<T, Fault>) {
        match answer {
            Err(fault) if fault.is_of_all_calls() => {
                self.gate.refused(&self.common.timeouts.retry, fault);
                self.common.current.journal.answered(true);
            }
            Err(fault) if fault.may_have_run() || fault.is_of_dialing() => {}
            Ok(_) | Err(_) => {
                self.gate.open();
                self.common.current.journal.answered(false);
            }
        }
    }
}

/// Ends a link when dropped, unless the link has answered.
struct Waiting {
    link: Arc<Link>,
    answered: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.answered {
            // Not for a fault of the server, which reads nothing after a WAIT.
            self.link.break_off();
        }
    }
}

impl Connection {
    fn live(&self) -> Option<Arc<Link>> {
        self.state().live(&self.common.timeouts.retry)
    }

    async fn dial(&self) -> Result<Link, Fault> {
        let link = Link::open(&self.common).await?;
        self.end_stale(&link).await?;
        link.prove().await?;
        Ok(link)
    }

    /// Before a call is repeated or compensated on a link, commands in broken connections must not be able to
    /// run any more.
    async fn end_stale(&self, link: &Link) -> Result<(), Fault> {
        let here = link.identity.as_ref().map(|here| here.run_id.clone());
        let is_here = |stale: &Identity| here.as_ref() == Some(&stale.run_id);
        let stale = self.state().stale.clone().into_iter().find(is_here);
        if let Some(stale) = stale
            && !link.kill_stale_client(&stale).await?
        {
            let journal = &self.common.current.journal;
            journal.is_missing(Right::CLIENT_KILL);
        }
        self.state().stale.retain(|stale| !is_here(stale));
        Ok(())
    }

    fn other(&self) -> Option<Arc<Self>> {
        self.other.get()?.upgrade()
    }

    /// For commands: the live connection for renewals.
    fn spare(&self) -> Option<Arc<Link>> {
        let other = self.other().filter(|_| self.lane.is_none())?;
        other.live()
    }

    /// No connection for commands can be made: the connection for renewals takes its place. So commands
    /// change connection only when theirs has ended.
    async fn take_over(&self) -> Option<Arc<Link>> {
        let link = self.spare()?;
        let ended = clock::timeout(self.timeouts().reply(), self.end_stale(&link));
        ended.await.ok()?.ok()?;
        Some(link)
    }
}

impl Tried for Connection {
    type State = ConnectionState;

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        lock_std(&self.state)
    }

    fn task(state: &mut ConnectionState) -> &mut OneTask {
        &mut state.dialing
    }

    fn ended(&self) -> &Notify {
        &self.dialed
    }

    fn spawner(&self) -> &Spawner {
        &self.common.spawner
    }

    fn place(&self) -> &Arc<str> {
        &self.common.current.place
    }

    fn longest(&self) -> Duration {
        let timeouts = self.timeouts();
        let pauses = timeouts.retry.max_interval.saturating_mul(2);
        let dialing = timeouts.connect.saturating_add(pauses);
        dialing.saturating_add(timeouts.reply())
    }

    async fn run(turn: Turn<Self>) {
        let connection = &turn.of;
        let (common, current) = (&connection.common, &connection.common.current);
        let pause = connection.state().not_before;
        if let Some(moment) = pause {
            let mut switches = current.switches();
            tokio::select! {
                biased;
                () = switches.other_than(None) => {}
                () = clock::sleep_until(moment) => {}
            }
        }
        // An existing one can be taken over while the callers have time.
        let patience = common.timeouts.connect / (1 + u32::from(connection.spare().is_some()));
        let dialed = clock::timeout(patience, connection.dial()).await;
        let dialed = dialed.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()));
        let dialed = match dialed {
            Ok(link) => Ok(Arc::new(link)),
            Err(fault) => connection.take_over().await.ok_or(fault),
        };
        let mut state = connection.state();
        if !turn.counts(&mut state) {
            // Otherwise this link would never be closed.
            return;
        }
        match dialed {
            Ok(link) => {
                state.link = Some(Arc::clone(&link));
                connection.gate.open();
                state.quiet = Some(clock::now());
                state.not_before = None;
                state.dialing.tried(None);
                let again = std::mem::replace(&mut state.was_there, true);
                drop(state);
                if let Some(renewals) = connection.other().filter(|_| connection.lane.is_none()) {
                    // Not urgent while there is a connection.
                    let mut taken = renewals.state();
                    taken.link.take_if(|there| Arc::ptr_eq(there, &link));
                    drop(taken);
                    renewals.is_there();
                }
                let topology = common.dialer.topology();
                current.journal.introduce(&link.info, topology);
                current.journal.connected(connection.lane);
                if again {
                    (common.on_doubt)();
                }
            }
            Err(fault) => {
                let fault = fault.at(&current.place);
                state.back_off(&common.timeouts.retry);
                state.dialing.tried(Some(fault.clone()));
                drop(state);
                let works = |_: &Beside| connection.other().is_some_and(|other| other.is_there());
                let lane = connection.lane.filter(works);
                current.journal.failed(lane, &fault);
            }
        }
    }
}

impl ConnectionState {
    fn live(&mut self, retry: &RetryPolicy) -> Option<Arc<Link>> {
        if self.link.as_ref()?.is_alive() {
            return self.link.clone();
        }
        if let Some(dead) = self.link.take() {
            self.bury(&dead, retry);
        }
        None
    }

    /// Random, so that clients that lost one server together do not reconnect together.
    fn back_off(&mut self, retry: &RetryPolicy) {
        self.not_before = Some(clock::after(clock::now(), retry.pause(self.pauses)));
        self.pauses = self.pauses.saturating_add(1);
    }

    fn bury(&mut self, dead: &Link, retry: &RetryPolicy) {
        dead.break_off();
        let age = clock::now().saturating_duration_since(dead.opened);
        if dead.has_answered() && age >= YOUNG {
            self.pauses = 0;
        } else {
            // Otherwise a server that accepts and then closes would be dialed without a pause.
            self.pauses = self.pauses.min(SHORT_PAUSES);
            self.back_off(retry);
        }
        self.quiet = None;
        if let Some(stale) = &dead.identity {
            if self.stale.len() == MOST_STALE {
                self.stale.remove(0);
            }
            self.stale.push(stale.clone());
        }
    }
}
