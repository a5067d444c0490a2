//! A link or none, and how to get one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::dialer::Dialer;
use super::fault::Fault;
use super::link::{Exchange, Identity, Link, OnDown};
use super::spawner::Spawner;
use crate::clock;
use crate::wire::Call;

/// How long to wait for a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// The first pause after a failed try to connect; doubled up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// More dead connections than this are forgotten: their commands end with their leases.
const MOST_GHOSTS: usize = 64;

/// Is told the run id of the server whenever a connection was made, and whether there was one
/// before.
type OnUp = Box<dyn Fn(Option<&str>, bool) + Send + Sync>;

/// A connection that dials anew when it broke or when a command on it went unanswered.
pub(crate) struct Connection {
    dialer: Dialer,
    spawner: Spawner,
    timeouts: Timeouts,
    on_down: OnDown,
    on_up: OnUp,
    /// Never held across an await.
    slot: Mutex<Slot>,
    /// One dials, the others wait for the outcome.
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    /// Clients of dead links that the server may still read from.
    ghosts: Vec<Identity>,
    /// Tries to connect that ended; who waited through one takes its outcome.
    tries: u64,
    connections: u64,
    failures: u32,
    not_before: Option<Instant>,
    last_fault: Option<Fault>,
    closed: bool,
}

impl Connection {
    pub(crate) fn new(
        dialer: Dialer,
        spawner: Spawner,
        timeouts: Timeouts,
        on_down: impl Fn() + Send + Sync + 'static,
        on_up: impl Fn(Option<&str>, bool) + Send + Sync + 'static,
    ) -> Self {
        Self {
            dialer,
            spawner,
            timeouts,
            on_down: Arc::new(on_down),
            on_up: Box::new(on_up),
            slot: Mutex::default(),
            dialing: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call, connecting first where there is no connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the exchange that it gives is polled.
    pub(crate) async fn call(&self, call: Call) -> Result<Exchange, Fault> {
        match self.live() {
            Some(link) => Ok(link.call(call)),
            // Boxed: it is rare, and would be most of the size of every future that waits.
            None => Ok(Box::pin(self.link()).await?.call(call)),
        }
    }

    /// Starts a call if there is a live connection.
    pub(crate) fn call_now(&self, call: Call) -> Option<Exchange> {
        Some(self.live()?.call(call))
    }

    /// Makes sure that there is a connection.
    pub(crate) async fn ready(&self) -> Result<(), Fault> {
        if self.live().is_none() {
            Box::pin(self.link()).await?;
        }
        Ok(())
    }

    /// Drops the connection for good: no other is made.
    pub(crate) fn close(&self) {
        let mut slot = self.slot();
        slot.closed = true;
        let link = slot.link.take();
        drop(slot);
        if let Some(link) = link {
            link.break_off();
        }
    }

    fn live(&self) -> Option<Arc<Link>> {
        let mut slot = self.slot();
        if slot.link.as_ref()?.is_alive() {
            return slot.link.clone();
        }
        if let Some(dead) = slot.link.take() {
            slot.bury(&dead);
        }
        None
    }

    async fn link(&self) -> Result<Arc<Link>, Fault> {
        let before = self.slot().tries;
        let _turn = self.dialing.lock().await;
        if let Some(link) = self.live() {
            return Ok(link);
        }
        {
            let slot = self.slot();
            if slot.closed {
                return Err(Fault::Closed);
            }
            // A whole try was made while this one waited for its turn. Without this, n callers
            // would queue up for n tries.
            if let (true, Some(fault)) = (slot.tries > before, &slot.last_fault) {
                return Err(fault.clone());
            }
        }
        let pause = self.slot().not_before;
        if let Some(moment) = pause {
            clock::sleep_until(moment).await;
        }
        let dialed = tokio::time::timeout(self.timeouts.connect, self.dial()).await;
        let dialed = dialed.unwrap_or_else(|_| {
            let what = "connecting took too long";
            Err(Fault::Unreachable(Fault::io(
                std::io::ErrorKind::TimedOut,
                what,
            )))
        });
        let mut slot = self.slot();
        slot.tries += 1;
        if slot.closed {
            // While it was being made; nobody would ever close it.
            return Err(Fault::Closed);
        }
        match dialed {
            Ok(link) => {
                let link = Arc::new(link);
                slot.link = Some(Arc::clone(&link));
                slot.failures = 0;
                slot.not_before = None;
                slot.last_fault = None;
                slot.connections += 1;
                let again = slot.connections > 1;
                drop(slot);
                tracing::debug!(dialer = ?self.dialer, again, "connected");
                (self.on_up)(
                    link.identity().map(|identity| identity.run_id.as_str()),
                    again,
                );
                Ok(link)
            }
            Err(fault) => {
                slot.failures = slot.failures.saturating_add(1);
                let doubled = SHORTEST_PAUSE.saturating_mul(1 << slot.failures.min(16));
                let longest = doubled.min(LONGEST_PAUSE);
                // Jitter: clients that lost one server together do not come back together.
                let pause = longest.mul_f64(0.5 + 0.5 * fastrand::f64());
                slot.not_before = Some(clock::now() + pause);
                slot.last_fault = Some(fault.clone());
                drop(slot);
                tracing::debug!(dialer = ?self.dialer, ?fault, "could not connect");
                Err(fault)
            }
        }
    }

    async fn dial(&self) -> Result<Link, Fault> {
        let link = Link::open(&self.dialer, &self.spawner, Arc::clone(&self.on_down)).await?;
        // Before anything is repeated or compensated here, what the dead connections may still
        // have under way must not be able to run any more.
        loop {
            let Some(ghost) = self.slot().ghosts.last().cloned() else {
                break;
            };
            let sure = link.kill_ghost(&ghost).await?;
            if !sure {
                tracing::warn!(
                    "could not kill the server's side of a dead connection (CLIENT KILL); \
                     a command lost in it may still run, and ends with its lease"
                );
            }
            self.slot().ghosts.retain(|other| *other != ghost);
        }
        Ok(link)
    }
}

impl Slot {
    fn bury(&mut self, dead: &Link) {
        dead.break_off();
        if let Some(identity) = dead.identity() {
            if self.ghosts.len() == MOST_GHOSTS {
                self.ghosts.remove(0);
            }
            self.ghosts.push(identity.clone());
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("dialer", &self.dialer)
            .field("link", &self.slot().link)
            .finish_non_exhaustive()
    }
}
