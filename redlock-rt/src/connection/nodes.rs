//! The servers of a client: one, or the masters of a cluster.

use std::sync::Arc;

use super::call::{Common, Connection, Lane, Node, Timeouts};
use super::cluster::Cluster;
use super::dial::Dialer;
use super::fault::Fault;
use super::server::CurrentServer;
use super::slot_news::SlotNews;
use super::spawner::Spawner;
use crate::name::LockName;
use crate::wire::Slot;

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
        let common = Common::new(dialer.clone(), spawner, timeouts, Arc::new(on_doubt));
        match dialer.seeds() {
            Some(seeds) => Self::Cluster(Arc::new(Cluster::new(common, seeds.to_vec()))),
            None => Self::One(Arc::new(Node::new(common))),
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

    /// The server with a slot, if it is known now.
    pub(crate) fn known(&self, slot: Slot) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.known(slot),
        }
    }

    /// The server with a slot; asks for it first if it is not known.
    pub(crate) async fn node(&self, slot: Slot) -> Result<Arc<Node>, Fault> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.node(slot).await,
        }
    }

    /// Any server, for calls that all servers can serve.
    pub(crate) async fn any(&self) -> Result<Arc<Node>, Fault> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.any().await,
        }
    }

    /// All servers that have slots.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<Node>>, Fault> {
        let slots = self.slot_of_each().await?;
        Ok(slots
            .into_iter()
            .filter_map(|slot| self.known(slot))
            .collect())
    }

    /// A slot of each server that has any; asks for them first if they are not known.
    pub(crate) async fn slot_of_each(&self) -> Result<Vec<Slot>, Fault> {
        match self {
            Self::One(_) => Ok(vec![Slot::ONLY]),
            Self::Cluster(cluster) => {
                cluster.any().await?;
                Ok(cluster.slot_of_each())
            }
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

    /// The server that has the keys of a call already, according to the asked server.
    pub(crate) fn asked_at(&self, fault: &Fault) -> Option<Arc<Node>> {
        match (self, fault.news()?) {
            (Self::Cluster(cluster), SlotNews::Redirect(redirect)) if redirect.asks => {
                cluster.node_at(redirect.to.as_ref()?)
            }
            _ => None,
        }
    }

    /// Records a fault of a call in a slot that is not sent again automatically.
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
        self.any().await?.ready().await
    }

    /// The name of the servers in errors.
    pub(crate) fn place(&self) -> &Arc<str> {
        &self.current().place
    }

    /// For log lines about the client.
    pub(crate) fn current(&self) -> &Arc<CurrentServer> {
        match self {
            Self::One(node) => &node.common.current,
            Self::Cluster(cluster) => &cluster.common.current,
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

/// What a redirection means for a call of several locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Another server has the slot.
    Moved,
    /// The slot is being moved, with some of its keys: each lock must be looked up separately.
    Apart,
}

/// Where a call goes: to the server that has its slot.
#[derive(Clone, Copy)]
pub(crate) struct To<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) slot: Slot,
    pub(crate) lane: Lane,
}

impl<'a> To<'a> {
    pub(crate) fn new(nodes: &'a Nodes, slot: Slot, lane: Lane) -> Self {
        Self { nodes, slot, lane }
    }
}
