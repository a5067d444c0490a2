//! The servers of a client: one, or the masters of a cluster.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::cluster::Cluster;
use super::dialer::Dialer;
use super::fault::Fault;
use super::journal::Beside;
use super::reconnect::{Connection, Timeouts};
use super::server::CurrentServer;
use super::slot_news::SlotNews;
use super::spawner::Spawner;
use super::until::LANES;
use crate::name::LockName;
use crate::wire::Slot;

/// Called when the server of some locks may have lost them; takes no mutex.
pub(super) type OnDoubt = Arc<dyn Fn() + Send + Sync>;

/// One server, and the connections to it that are not for listening. Each is made when it is first
/// used, those for commands and renewals together: if only one of these can be had, it serves both.
pub(crate) struct Node {
    /// No other one has it.
    number: u64,
    dialer: Dialer,
    current: Arc<CurrentServer>,
    main: Arc<Connection>,
    /// Renewals have their own connection, so that callers' commands never delay them.
    renewals: Arc<Connection>,
    /// For each way to wait for replicas, once it is used.
    acks: [OnceLock<AckLane>; LANES],
    connect: Box<dyn Fn(Option<Beside>) -> Arc<Connection> + Send + Sync>,
}

/// Where replicas are waited for in one way. The server reads nothing behind a WAIT, so callers that
/// wait for less are elsewhere.
pub(crate) struct AckLane {
    pub(crate) connection: Arc<Connection>,
    /// Held by the caller that waits for all that are ready.
    pub(crate) turn: tokio::sync::Mutex<()>,
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
    pub(super) fn new(
        dialer: Dialer,
        spawner: &Spawner,
        timeouts: Timeouts,
        on_doubt: &OnDoubt,
    ) -> Self {
        let Timeouts {
            connect, response, ..
        } = timeouts;
        let moved = Arc::clone(on_doubt);
        let clustered = dialer.is_clustered();
        let current = CurrentServer::new(
            dialer.called(),
            // The time to connect to the new server and to verify the holds there.
            connect + response,
            move || moved(),
        );
        let current = Arc::new(match clustered {
            true => current.of_a_cluster(),
            false => current,
        });
        let (to, spawner, server) = (dialer.clone(), spawner.clone(), Arc::clone(&current));
        let on_doubt = Arc::clone(on_doubt);
        let connect = move |lane| {
            let (down, up) = (Arc::clone(&on_doubt), Arc::clone(&on_doubt));
            Arc::new(Connection::new(
                to.clone(),
                spawner.clone(),
                timeouts,
                Arc::clone(&server),
                lane,
                move || down(),
                move |again| {
                    if again {
                        up();
                    }
                },
            ))
        };
        let main = connect(None);
        let renewals = connect(Some(Beside::RENEWALS));
        renewals.is_beside(&main);
        main.is_beside(&renewals);
        Self {
            number: NUMBERED.fetch_add(1, Ordering::Relaxed),
            main,
            renewals,
            acks: [const { OnceLock::new() }; LANES],
            connect: Box::new(connect),
            current,
            dialer,
        }
    }

    /// A number that no other server of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The server of all its connections.
    pub(crate) fn current(&self) -> &Arc<CurrentServer> {
        &self.current
    }

    /// The connection of a lane. Where renewals have none, that for commands, and their own is dialed.
    pub(crate) fn connection(&self, lane: Lane) -> &Arc<Connection> {
        match lane {
            Lane::Main => &self.main,
            Lane::Renewals if !self.renewals.is_there() && self.main.is_there() => &self.main,
            Lane::Renewals => &self.renewals,
        }
    }

    /// Connects when replicas are waited for in this way for the first time. No other connection takes its
    /// place: the server reads nothing behind a WAIT.
    pub(crate) fn acks(&self, lane: usize) -> &AckLane {
        self.acks[lane].get_or_init(|| {
            let connection = (self.connect)(Some(Beside::REPLICAS));
            connection.is_beside(&self.main);
            AckLane {
                connection,
                turn: tokio::sync::Mutex::default(),
            }
        })
    }

    /// Whether a broken connection to it may still be read by the server.
    pub(super) fn has_stale_clients(&self) -> bool {
        self.connections()
            .any(|connection| connection.has_stale_clients())
    }

    /// Connects anew where a connection broke, which kills its client.
    pub(super) async fn kill_stale_clients(&self) {
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

    pub(super) fn close(&self) {
        // Also those that would be used for the first time afterwards.
        (0..LANES).for_each(|lane| self.acks(lane).connection.close());
        self.main.close();
        self.renewals.close();
    }
}

/// The servers of a client.
pub(crate) enum Nodes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Nodes {
    /// `on_doubt`: called when the server of some locks may have lost them; takes no mutex.
    pub(crate) fn new(
        dialer: &Dialer,
        spawner: &Spawner,
        timeouts: Timeouts,
        on_doubt: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let on_doubt: OnDoubt = Arc::new(on_doubt);
        match dialer.seeds() {
            Some(seeds) => Self::Cluster(Arc::new(Cluster::new(
                dialer.clone(),
                seeds.to_vec(),
                spawner.clone(),
                timeouts,
                on_doubt,
            ))),
            None => {
                let node = Node::new(dialer.clone(), spawner, timeouts, &on_doubt);
                Self::One(Arc::new(node))
            }
        }
    }

    /// The slot of a name; the same for all names if there is only one server.
    pub(crate) fn slot_of(&self, name: &LockName) -> Slot {
        match self {
            Self::One(_) => Slot::ONLY,
            Self::Cluster(_) => Slot::of(name.as_str()),
        }
    }

    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// The server that has a slot, as far as it is known now.
    pub(crate) fn known(&self, slot: Slot) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.known(slot),
        }
    }

    /// The server that has a slot, asking for it first if it is not known.
    pub(crate) async fn node(&self, slot: Slot) -> Result<Arc<Node>, Fault> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.node(slot).await,
        }
    }

    /// Some server, for what any of them can do.
    pub(crate) async fn any(&self) -> Result<Arc<Node>, Fault> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.any().await,
        }
    }

    /// What a redirection means for a call of several locks.
    pub(crate) fn hint(&self, fault: &Fault) -> Option<Hint> {
        let Self::Cluster(_) = self else { return None };
        match fault.news()? {
            SlotNews::Redirect(redirect) if !redirect.asks => Some(Hint::Moved),
            SlotNews::Redirect(_) | SlotNews::Split => Some(Hint::Apart),
            SlotNews::Down => None,
        }
    }

    /// Takes note of a fault of a call in a slot that is not sent again by itself.
    pub(crate) fn heard(&self, fault: Fault, slot: Slot) -> Fault {
        let Self::Cluster(cluster) = self else {
            return fault;
        };
        if fault.is_of_dialing() {
            // The node may have been demoted since.
            cluster.is_in_doubt();
        }
        cluster.redirected(&fault, slot);
        fault.while_redirected()
    }

    /// Connects, so that a wrong address or password is known at once. The result is the connection for
    /// renewals, which may be refused.
    pub(crate) async fn ready(&self) -> Result<Arc<Connection>, Fault> {
        let node = self.any().await?;
        node.main.ready().await?;
        Ok(Arc::clone(&node.renewals))
    }

    /// The name of the servers in errors.
    pub(crate) fn place(&self) -> &Arc<str> {
        self.current().place()
    }

    /// For log lines about the client.
    pub(crate) fn current(&self) -> &Arc<CurrentServer> {
        match self {
            Self::One(node) => node.current(),
            Self::Cluster(cluster) => cluster.current(),
        }
    }

    /// Closes all connections for good.
    pub(crate) fn close(&self) {
        match self {
            Self::One(node) => node.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("dialer", &self.dialer)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(node) => node.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

/// What a redirection means for a call of several locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Another server has the slot.
    Moved,
    /// The slot is on its way, and so are some of its keys: each lock is to be looked for alone.
    Apart,
}

/// Where a call goes: to the server that has its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) slot: Slot,
    pub(crate) lane: Lane,
}
