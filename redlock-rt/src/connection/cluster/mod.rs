//! A Redis Cluster: which master has which slot, and the connections to each.
//!
//! The layout is requested when the client is first used, after a redirection, after a failure to connect or a
//! lost connection, and every minute while the client is used. One short task asks at a time, after pauses
//! that grow. A slot that has moved puts its locks in doubt, so that they are verified at their new master at
//! once.
//!
//! # A command in a broken connection cannot run late
//!
//! A cleanup goes to the master that has the slot when it is sent. The server of the broken connection is in
//! one of four cases:
//!
//! * *It still is that master*: the new connection there kills the old client first, as for one server.
//! * *It gave the slot away*: it answers MOVED to commands that it reads late.
//! * *It was stopped or cut off, and a replica was promoted*: it may run commands that it reads before it
//!   learns that. The cluster then makes it a replica of the new master, and discards what it wrote meanwhile.
//! * *It had the slot before, and has it again*: the client keeps a server without slots as long as it may
//!   read a broken connection. When such a server has slots again, the client connects as soon as the layout
//!   says so, and kills the old client before anything else is sent. Bytes that arrive between the return of
//!   the slot and that moment can take a lock for one lease; permits are safe as without CLIENT KILL.

mod ask;
mod follow;
mod layout;
mod refresh;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use self::follow::Next;
use self::layout::{Layout, MOST_NODES, NOBODY};
use self::refresh::Refreshing;
use super::address::Address;
use super::call::{Common, Node, OnDoubt};
use super::fault::Fault;
use super::one_task::{self, Tried};
use crate::clock;
use crate::wire::Slot;

/// An older layout is requested again when it is used.
const OLD: Duration = Duration::from_secs(60);
/// How long a node without slots is kept.
const KEPT: Duration = Duration::from_secs(60);
/// The same if its server may still read a broken connection, and so run the calls in it. If it gets slots
/// again, the client of that connection is killed first. After this time the server is considered gone.
const KEPT_STALE: Duration = Duration::from_secs(3600);

/// The masters of a cluster.
pub(crate) struct Cluster {
    /// Its dialer leads to the first seed. The dialers of the nodes are made from it.
    pub(super) common: Arc<Common>,
    seeds: Vec<Address>,
    /// After an event that may have changed the layout.
    outdated: Arc<AtomicBool>,
    /// Never held across an await.
    state: Mutex<ClusterState>,
    /// Notified when a try to ask for the layout has ended.
    asked: Notify,
    /// Counts the changes of the layout.
    changes: AtomicU64,
    /// Notified after a change. No `tokio::sync::watch`, which wakes in a random order.
    changed: Notify,
}

#[derive(Default)]
pub(super) struct ClusterState {
    /// The master of each slot, as an index into `nodes`; empty if nothing is known yet.
    owners: Vec<u16>,
    /// The place of a node does not change.
    nodes: Slab<Member>,
    replicas: Vec<Address>,
    /// Slots that have moved since the locks in them were last put in doubt.
    moved: HashSet<Slot>,
    refreshing: Refreshing,
}

struct Member {
    at: Address,
    node: Arc<Node>,
    /// The server of its locks may have lost them.
    doubted: Arc<AtomicBool>,
    /// Since when it has no slots.
    idle: Option<Instant>,
    /// It has slots again, and may have had them before. Commands that its server has not read yet must not
    /// run there.
    returned: bool,
}

impl Member {
    fn is_idle_for(&self, long: Duration, now: Instant) -> bool {
        let idle = self.idle.map(|since| now.saturating_duration_since(since));
        idle.is_some_and(|idle| idle >= long)
    }
}

impl Cluster {
    pub(super) fn new(common: Arc<Common>, seeds: Vec<Address>) -> Self {
        Self {
            common,
            seeds,
            outdated: Arc::default(),
            state: Mutex::default(),
            asked: Notify::new(),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }

    /// The master of a slot, if it is known.
    pub(crate) fn known(&self, slot: Slot) -> Option<Arc<Node>> {
        self.state().owner(slot).cloned()
    }

    /// The numbers of all masters that have slots.
    pub(crate) fn masters(&self) -> Vec<u64> {
        let state = self.state();
        let members = state.nodes.iter();
        let masters = members.filter(|(place, _)| state.has_slots(*place));
        masters.map(|(_, member)| member.node.number).collect()
    }

    /// A slot of each master that has any.
    pub(super) fn slot_of_each(&self) -> Vec<Slot> {
        let state = self.state();
        let mut slots = BTreeMap::new();
        for (slot, owner) in Slot::all().zip(&state.owners) {
            if *owner != NOBODY {
                slots.entry(*owner).or_insert(slot);
            }
        }
        slots.into_values().collect()
    }

    /// The future changes of the layout, for code that depends on it.
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes {
            cluster: self,
            seen: self.changes.load(Ordering::Acquire),
        }
    }

    /// The master of a slot; asks for the layout first if the master is not known.
    ///
    /// # Errors
    ///
    /// No node answered, or no master has the slot at present.
    pub(crate) async fn node(self: &Arc<Self>, slot: Slot) -> Result<Arc<Node>, Fault> {
        self.look_after();
        let owner = |state: &ClusterState| state.owner(slot).cloned();
        let none = || Fault::passing(format!("no master has slot {slot} at present"));
        self.find(owner, none).await
    }

    /// Any master.
    pub(crate) async fn any(self: &Arc<Self>) -> Result<Arc<Node>, Fault> {
        self.look_after();
        let busy = |state: &ClusterState| {
            let busy = |(_, member): &(usize, &Member)| member.idle.is_none();
            let masters: Vec<_> = state.nodes.iter().filter(busy).collect();
            let (_, chosen) = fastrand::choice(&masters)?;
            Some(Arc::clone(&chosen.node))
        };
        let none = || Fault::passing("the cluster has no master".into());
        self.find(busy, none).await
    }

    /// The locks that came into doubt since the last call.
    pub(crate) fn take_doubts(&self) -> HashSet<Slot> {
        let mut state = self.state();
        let mut doubted = std::mem::take(&mut state.moved);
        let in_doubt = state.nodes.iter().filter_map(|(place, member)| {
            let is_doubted = member.doubted.swap(false, Ordering::AcqRel);
            is_doubted.then_some(place)
        });
        let in_doubt: HashSet<usize> = in_doubt.collect();
        if !in_doubt.is_empty() {
            for (slot, owner) in Slot::all().zip(&state.owners) {
                if in_doubt.contains(&usize::from(*owner)) {
                    doubted.insert(slot);
                }
            }
        }
        doubted
    }

    /// A node reported that another one has the slot. Returns whether that one is, or may become, known.
    pub(super) fn is_moved(self: &Arc<Self>, slot: Slot, to: &Address) -> bool {
        let mut state = self.state();
        if state.is_closed() || state.owners.is_empty() {
            return true;
        }
        let Some(at) = state.place_of(to, self) else {
            return false;
        };
        let Some(owner) = state.owners.get_mut(usize::from(slot.number())) else {
            return true;
        };
        let is_new = *owner != at;
        if is_new {
            *owner = at;
            state.moved.insert(slot);
            state.gains(at);
        }
        // The calls below take the mutex again.
        drop(state);
        if is_new {
            tracing::debug!(slot = slot.number(), to = to.place(), "a slot has moved");
            self.changed();
        }
        self.is_in_doubt();
        true
    }

    /// A node refused a command about this slot. Returns whether another node has it.
    pub(crate) fn is_told(self: &Arc<Self>, slot: Slot, fault: &Fault) -> bool {
        matches!(
            self.redirected(fault, slot),
            Some(Next::Again | Next::Asking(_))
        )
    }

    /// The nodes that have slots again, and may still read a broken connection.
    fn take_returned(&self) -> Vec<Arc<Node>> {
        let mut state = self.state();
        let members = state.nodes.iter_mut();
        let returned = members.filter_map(|(_, member)| {
            let returned = std::mem::take(&mut member.returned);
            returned.then(|| Arc::clone(&member.node))
        });
        returned.collect()
    }

    /// The node at an address, which a node named.
    pub(in crate::connection) fn node_at(self: &Arc<Self>, at: &Address) -> Option<Arc<Node>> {
        let mut state = self.state();
        if state.is_closed() {
            return None;
        }
        let place = state.place_of(at, self)?;
        let member = state.nodes.get(usize::from(place))?;
        Some(Arc::clone(&member.node))
    }

    /// A fault after which another node may have the slot: asks for the layout.
    pub(crate) fn is_in_doubt(self: &Arc<Self>) {
        one_task::start(self);
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        let asking = state.refreshing.task.close();
        let members = std::mem::take(&mut state.nodes);
        state.owners.clear();
        drop(state);
        if let Some(task) = asking {
            task.abort();
        }
        for (_, member) in members {
            member.node.close();
        }
        self.asked.notify_waiters();
    }

    /// Asks for the layout again if it may have changed. Called where it is used.
    fn look_after(self: &Arc<Self>) {
        if self.outdated.swap(false, Ordering::AcqRel) || self.state().refreshing.is_older(OLD) {
            self.is_in_doubt();
        }
    }

    /// Applies the layout of a node.
    fn apply(self: &Arc<Self>, layout: Layout) {
        let now = clock::now();
        let mut state = self.state();
        if state.is_closed() {
            return;
        }
        let places: Vec<u16> = layout
            .masters
            .iter()
            .map(|master| state.place_of(master, self).unwrap_or(NOBODY))
            .collect();
        let owner = |owner: &u16| {
            let place = places.get(usize::from(*owner));
            place.copied().unwrap_or(NOBODY)
        };
        let owners: Vec<u16> = layout.owners.iter().map(owner).collect();
        let mut changed = state.owners.is_empty();
        let mut gaining = BTreeSet::new();
        let ClusterState {
            owners: before,
            moved,
            ..
        } = &mut *state;
        for (slot, (before, now)) in Slot::all().zip(before.iter().zip(&owners)) {
            if before != now {
                changed = true;
                moved.insert(slot);
                gaining.insert((*before, *now));
            }
        }
        state.owners = owners;
        for (before, now) in gaining {
            state.gains(now);
            state.replaces(before, now);
        }
        state.replicas = layout.replicas;
        state.forget_idle(now, &places);
        drop(state);
        if changed {
            self.changed();
        }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
        (self.common.on_doubt)();
    }

    /// Waits until `slot` has another master than `node`.
    async fn has_left(&self, slot: Slot, node: &Arc<Node>) {
        let mut changes = self.changes();
        loop {
            let owner = self.known(slot);
            if owner.is_some_and(|owner| !Arc::ptr_eq(&owner, node)) {
                return;
            }
            changes.next().await;
        }
    }

    fn make(&self, at: &Address) -> Member {
        let doubted = Arc::<AtomicBool>::default();
        let on_doubt: OnDoubt = {
            let (doubted, outdated) = (Arc::clone(&doubted), Arc::clone(&self.outdated));
            let told = Arc::clone(&self.common.on_doubt);
            Arc::new(move || {
                doubted.store(true, Ordering::Release);
                outdated.store(true, Ordering::Release);
                told();
            })
        };
        let dialer = self.common.dialer.clone().at_node(at.clone());
        let common = Common::new(dialer, &self.common.spawner, self.common.timeouts, on_doubt);
        Member {
            at: at.clone(),
            node: Arc::new(Node::new(common)),
            doubted,
            idle: None,
            returned: false,
        }
    }
}

/// The changes of a layout that one task has not seen yet.
pub(crate) struct Changes<'a> {
    cluster: &'a Cluster,
    seen: u64,
}

impl Changes<'_> {
    /// Waits for the next change.
    ///
    /// # Cancel safety
    ///
    /// No change is missed.
    pub(crate) async fn next(&mut self) {
        loop {
            let mut changed = pin!(self.cluster.changed.notified());
            // Registered before the number is read, so that no change is missed.
            changed.as_mut().enable();
            let changes = self.cluster.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            changed.await;
        }
    }
}

impl ClusterState {
    fn is_closed(&self) -> bool {
        self.refreshing.task.closed
    }

    fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        let owner = self.owners.get(usize::from(slot.number()))?;
        let member = self.nodes.get(usize::from(*owner))?;
        Some(&member.node)
    }

    fn has_slots(&self, place: usize) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| usize::from(*owner) == place)
    }

    /// The place of the node at an address. A new node is added; `None`: there are too many.
    fn place_of(&mut self, at: &Address, cluster: &Cluster) -> Option<u16> {
        let known = self.nodes.iter().find(|(_, known)| known.at == *at);
        let place = match known.map(|(place, _)| place) {
            Some(place) => place,
            None if self.nodes.len() < MOST_NODES => self.nodes.insert(cluster.make(at)),
            None => return None,
        };
        u16::try_from(place).ok()
    }

    /// The node at a place has got a slot, which it may have had before.
    fn gains(&mut self, place: u16) {
        if let Some(member) = self.nodes.get_mut(usize::from(place)) {
            member.idle = None;
            member.node.common.current.journal.returns();
            member.returned |= member.node.has_stale_clients();
        }
    }

    /// The node at a place has got slots of another one, which may be lost.
    fn replaces(&self, lost: u16, by: u16) {
        let current = |place: u16| {
            let member = self.nodes.get(usize::from(place))?;
            Some(&member.node.common.current)
        };
        if let (Some(lost), Some(by)) = (
            current(lost).filter(|_| !self.has_slots(usize::from(lost))),
            current(by),
        ) {
            by.journal.replaces(&lost.journal);
        }
    }

    /// Forgets nodes that have had no slots for a while.
    fn forget_idle(&mut self, now: Instant, busy: &[u16]) {
        self.nodes.retain(|place, member| {
            if busy.iter().any(|busy| usize::from(*busy) == place) {
                member.idle = None;
                return true;
            }
            member.idle.get_or_insert(now);
            let kept = match member.node.has_stale_clients() {
                true => KEPT_STALE,
                false => KEPT,
            };
            !member.is_idle_for(kept, now)
        });
    }
}
