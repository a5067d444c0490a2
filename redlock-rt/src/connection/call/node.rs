//! One server, and the connections to it.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;

use super::reconnect::{Common, Connection};
use super::wait_for_replicas::LANES;
use crate::clock;
use crate::connection::fault::Fault;
use crate::connection::server::Beside;
use crate::shim::lock_std;

/// One server, and the connections to it that do not listen. Each is made when it is first used, those for
/// commands and renewals together: if only one of these can be made, it serves both.
pub(crate) struct Node {
    /// Unique among nodes.
    pub(crate) number: u64,
    pub(crate) common: Arc<Common>,
    pub(super) main: Arc<Connection>,
    /// Renewals have their own connection, so that callers' commands never delay them.
    renewals: Arc<Connection>,
    /// For each way to wait for replicas, once it is used.
    acks: [OnceLock<AckLane>; LANES],
}

/// The connection for one way to wait for replicas. The server reads nothing after a WAIT, so callers that
/// wait for fewer replicas use another one.
pub(crate) struct AckLane {
    pub(crate) connection: Arc<Connection>,
    /// Held by the caller that waits for all ready callers.
    turn: tokio::sync::Mutex<()>,
    /// When the last turn began.
    began: Mutex<Instant>,
}

/// The number of servers with a number.
static NUMBERED: AtomicU64 = AtomicU64::new(0);

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The commands of callers, and releases.
    Main,
    Renewals,
}

impl Node {
    pub(in crate::connection) fn new(common: Arc<Common>) -> Self {
        let main = Arc::new(Connection::new(Arc::clone(&common), None));
        let renewals = main.beside(Beside::RENEWALS);
        main.has_beside(&renewals);
        Self {
            number: NUMBERED.fetch_add(1, Ordering::Relaxed),
            common,
            main,
            renewals,
            acks: [const { OnceLock::new() }; LANES],
        }
    }

    /// The connection of a lane. Without one for renewals, the one for commands; the other is dialed.
    pub(crate) fn connection(&self, lane: Lane) -> &Arc<Connection> {
        match lane {
            Lane::Main => &self.main,
            Lane::Renewals if !self.renewals.is_there() && self.main.is_there() => &self.main,
            Lane::Renewals => &self.renewals,
        }
    }

    /// Connects when replicas are first waited for in this way. No other connection can replace it: the server
    /// reads nothing after a WAIT.
    pub(crate) fn acks(&self, lane: usize) -> &AckLane {
        self.acks[lane].get_or_init(|| AckLane {
            connection: self.main.beside(Beside::REPLICAS),
            turn: tokio::sync::Mutex::default(),
            // A client is closed in destructors too.
            began: Mutex::new(clock::now_in_drop()),
        })
    }

    /// Connects. The result is the connection for renewals, which may be refused.
    pub(in crate::connection) async fn ready(&self) -> Result<Arc<Connection>, Fault> {
        self.main.ready().await?;
        Ok(Arc::clone(&self.renewals))
    }

    /// Whether the server may still read a broken connection to it.
    pub(in crate::connection) fn has_stale_clients(&self) -> bool {
        self.connections()
            .any(|connection| connection.has_stale_clients())
    }

    /// Makes a new connection where one broke, which kills its client.
    pub(in crate::connection) async fn kill_stale_clients(&self) {
        for connection in self.connections() {
            if connection.has_stale_clients() {
                // After a failure the next caller connects.
                let _ = connection.ready().await;
            }
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        let acks = self.acks.iter().filter_map(OnceLock::get);
        let acks = acks.map(|acks| &acks.connection);
        [&self.main, &self.renewals].into_iter().chain(acks)
    }

    pub(in crate::connection) fn close(&self) {
        // Also the connections that would otherwise be used for the first time later.
        (0..LANES).for_each(|lane| self.acks(lane).connection.close());
        self.main.close();
        self.renewals.close();
    }
}

impl AckLane {
    /// Waits for a turn. `None`: a second turn, since the last one began more than `longest` ago, and its
    /// caller may not be polled.
    pub(crate) async fn turn(&self, longest: Duration) -> Option<MutexGuard<'_, ()>> {
        let mut turn = pin!(self.turn.lock());
        loop {
            let until = clock::after(*lock_std(&self.began), longest);
            let taken = clock::timeout_at(clock::to_tokio(until), turn.as_mut()).await;
            let (mut began, now) = (lock_std(&self.began), clock::now());
            if taken.is_ok() || clock::after(*began, longest) <= now {
                *began = now;
                return taken.ok();
            }
        }
    }
}
