//! The nodes of a Redis Cluster: slots that move from one master to another while they are in use, and
//! nodes that take the place of masters that fail. A master that sentinels watch is a cluster with one
//! shard, of which its clients know nothing.

use std::cmp::Reverse;

use bytes::Bytes;

use super::carry::{copy, keys_where, paste};
use super::copying::Copying;
use super::failover::Failing;
use super::faults::Due;
use super::net::Listening;
use super::node::Node;
use super::plan::{Plan, Trouble};
use super::run::World;
use super::sentinel::Sentinel;
use super::server::Server;
use super::sights::Sights;
use super::slots::{Slots, View};
use crate::Random;
use crate::cluster::slot_of;
use crate::history::{Moved, Ms};

/// When a move, or a promotion, whose nodes do not answer is tried again.
pub(super) const AGAIN: Ms = 10;

/// Which node does what.
pub(super) struct Roles {
    pub(super) view: View,
    /// The master of each shard.
    pub(super) shards: Vec<usize>,
    moving: Vec<Moving>,
    pub(super) failing: Vec<Failing>,
    /// What keys look like, wherever they are.
    pub(super) sights: Sights,
}

struct Moving {
    slot: u16,
    from: usize,
    to: usize,
    since: Ms,
}

/// What comes next.
#[derive(Clone, Copy)]
pub(super) enum Next {
    Carry { slot: u16 },
    Arrive { slot: u16 },
    Stop { node: usize },
    Notice { node: usize },
    Promote { node: usize },
    Return { node: usize },
    Learn { node: usize },
    Tell { node: usize },
}

impl Roles {
    pub(super) fn failing(&mut self, node: usize) -> Option<&mut Failing> {
        self.failing.iter_mut().find(|failing| failing.node == node)
    }

    /// Makes nodes of a plan's servers, if they are that.
    pub(super) fn of(plan: &Plan, nodes: &mut [Node]) -> Option<Self> {
        let masters = plan.masters()?;
        let view = View::even(masters);
        for (at, node) in nodes.iter_mut().enumerate() {
            match at < plan.first_sentinel() {
                true => {
                    let clustered = plan.cluster.is_some();
                    node.server.slots = Some(Slots::new(at, view.clone(), clustered));
                    if let Some(copies) = plan.copies() {
                        node.server.copying = Some(Copying::new(copies, plan.seed));
                        node.sights = Sights::of_replica(&plan.things, at);
                    }
                }
                false => node.server.sentinel = Some(Sentinel::new()),
            }
        }
        Some(Self {
            view,
            shards: (0..masters).collect(),
            moving: Vec::new(),
            failing: Vec::new(),
            sights: Sights::new(&plan.things, 0),
        })
    }

    pub(super) fn is_master(&self, node: usize) -> bool {
        self.shards.contains(&node)
    }

    fn is_failing(&self, node: usize) -> bool {
        self.failing.iter().any(|failing| failing.node == node)
    }

    fn is_moving(&self, node: usize) -> bool {
        let mut all = self.moving.iter();
        all.any(|moving| moving.from == node || moving.to == node)
    }

    fn owner_of(&self, key: &str) -> usize {
        self.view.owner(slot_of(key))
    }
}

impl World {
    /// The server of a plan's fault: in a cluster, the master of the shard; where there are sentinels, the
    /// master, or one of these.
    pub(super) fn master(&self, server: usize, trouble: Trouble) -> usize {
        let Some(roles) = &self.cluster else {
            return server;
        };
        match trouble {
            Trouble::Evict { thing } => roles.owner_of(&self.plan.things[thing].key(thing)),
            Trouble::FailOver { thing, .. } => roles.view.owner(self.slot_to_move(thing)),
            Trouble::Switch { .. } => roles.shards[0],
            Trouble::StopReplica { replica, .. } => {
                let all = (0..self.plan.first_sentinel()).filter(|node| !roles.is_master(*node));
                let all: Vec<usize> = all.collect();
                all[replica % all.len()]
            }
            _ if server > 0 && self.plan.watched.is_some() => {
                let first = self.plan.first_sentinel();
                first + (server - 1) % (self.nodes.len() - first)
            }
            _ => roles.shards[server % roles.shards.len()],
        }
    }

    /// Whether a trouble can begin at a server now: one that fails has no other troubles.
    pub(super) fn may_begin(&self, server: usize, trouble: Trouble) -> bool {
        let Some(roles) = &self.cluster else {
            return true;
        };
        match trouble {
            Trouble::PauseServer { .. } | Trouble::CrashServer { .. } => self.is_well(server),
            // One of those that are left takes the place of a master.
            Trouble::StopReplica { .. } => self.is_well(server) && roles.failing.is_empty(),
            Trouble::FailOver { .. } | Trouble::Switch { .. } => {
                self.is_well(server) && !roles.is_moving(server) && self.successor().is_some()
            }
            Trouble::MoveSlot { thing, to, .. } => {
                let slot = self.slot_to_move(thing);
                let (from, to) = (
                    roles.view.owner(slot),
                    roles.shards[to % roles.shards.len()],
                );
                from != to
                    && !roles.is_failing(from)
                    && !roles.is_failing(to)
                    && !roles.moving.iter().any(|moving| moving.slot == slot)
            }
            _ => true,
        }
    }

    /// Of several names, the one that is also taken alone.
    fn slot_to_move(&self, thing: usize) -> u16 {
        let names = self.plan.things[thing].names(thing);
        slot_of(names.last().map_or("", |name| name))
    }

    pub(super) fn is_well(&self, node: usize) -> bool {
        let failing = self
            .cluster
            .as_ref()
            .is_some_and(|roles| roles.is_failing(node));
        let listens = self.nodes[node].net.lock().server == Listening::Yes;
        !failing && listens && !self.nodes[node].stands
    }

    /// A node that has no slots.
    pub(super) fn successor(&self) -> Option<usize> {
        let roles = self.cluster.as_ref()?;
        let nodes = 0..self.nodes.len().min(self.plan.first_sentinel());
        let mut others = nodes.filter(|node| !roles.is_master(*node) && self.is_well(*node));
        let Some(copying) = &self.nodes[roles.shards[0]].server.copying else {
            return others.next();
        };
        // Sentinels choose the one that has come furthest.
        let known = others.filter_map(|node| Some((copying.offset_of(node)?, Reverse(node))));
        known.max().map(|(_, Reverse(node))| node)
    }

    /// The server of a key.
    pub(super) fn server_of(&self, key: &str) -> &Server {
        let node = self.cluster.as_ref().map_or(0, |roles| roles.owner_of(key));
        &self.nodes[node].server
    }

    /// The things of which this server has keys.
    pub(super) fn things_at(&self, server: usize) -> Vec<String> {
        let Some(roles) = &self.cluster else {
            return Vec::new();
        };
        let here = |name: &String| {
            let slot = slot_of(name);
            let mut moving = roles.moving.iter();
            roles.view.owner(slot) == server
                || moving.any(|moving| moving.slot == slot && moving.to == server)
        };
        self.keys_of_things(here)
    }

    fn keys_of_things(&self, holds: impl Fn(&String) -> bool) -> Vec<String> {
        let things = self.plan.things.iter().enumerate();
        let of = things.filter(|(place, thing)| thing.names(*place).iter().any(&holds));
        of.map(|(place, thing)| thing.key(place)).collect()
    }

    /// What was published at a node reaches the subscribers at all others.
    pub(super) fn pass_on(&mut self, from: usize, published: &[(Bytes, Bytes)]) {
        if published.is_empty() {
            return;
        }
        for node in (0..self.nodes.len()).filter(|node| *node != from) {
            if self.is_well(node) {
                let Node { net, server, .. } = &mut self.nodes[node];
                let mut net = net.lock();
                net.now = self.now;
                server.publish(&mut net, published);
            }
        }
    }

    /// Writes down what the nodes have seen.
    pub(super) fn write_down_nodes(&mut self) {
        let history = &mut self.log.lock().history;
        for node in &mut self.nodes {
            if let Some(sentinel) = &mut node.server.sentinel {
                history.layouts.append(&mut sentinel.told);
            }
            let Some(slots) = &mut node.server.slots else {
                continue;
            };
            history.redirections.append(&mut slots.redirections);
            history.layouts.append(&mut slots.told);
            history.heard.append(&mut slots.heard);
        }
        history.redirections.sort_by_key(|one| one.at);
    }

    pub(super) fn roles(&mut self) -> &mut Roles {
        self.cluster.as_mut().expect("only a cluster has roles")
    }

    pub(super) fn slots(&mut self, node: usize) -> &mut Slots {
        let slots = self.nodes[node].server.slots.as_mut();
        slots.expect("only a cluster has nodes")
    }

    pub(super) fn then(&mut self, after: Ms, next: Next) {
        self.due.push((self.now + after, 0, Due::Cluster(next)));
    }

    pub(super) fn move_slot(&mut self, thing: usize, to: usize, lasts: Ms) {
        let slot = self.slot_to_move(thing);
        let since = self.now;
        let roles = self.roles();
        let (from, to) = (
            roles.view.owner(slot),
            roles.shards[to % roles.shards.len()],
        );
        roles.moving.push(Moving {
            slot,
            from,
            to,
            since,
        });
        self.slots(from).leaving.insert(slot, (to, 0));
        self.slots(to).coming.insert(slot);
        self.then(lasts / 3, Next::Carry { slot });
        self.then(2 * lasts / 3, Next::Carry { slot });
        self.then(lasts, Next::Arrive { slot });
    }

    pub(super) fn in_cluster(&mut self, next: Next) {
        match next {
            Next::Carry { slot } => self.carry(slot, false),
            Next::Arrive { slot } => self.carry(slot, true),
            Next::Stop { node } => self.stop(node),
            Next::Notice { node } => self.notice(node),
            Next::Promote { node } => self.promote(node),
            Next::Return { node } => self.come_back(node),
            Next::Learn { node } => self.learn(node),
            Next::Tell { node } => self.tell(node),
        }
    }

    /// Takes some of a slot's keys along, or all that are left.
    fn carry(&mut self, slot: u16, all: bool) {
        let roles = self.roles();
        let Some(at) = roles.moving.iter().position(|moving| moving.slot == slot) else {
            return;
        };
        let Moving {
            from, to, since, ..
        } = roles.moving[at];
        if !self.is_well(from) || !self.is_well(to) {
            if all {
                self.then(AGAIN, Next::Arrive { slot });
            }
            return;
        }
        let now = self.now;
        self.nodes[from].server.at(now);
        self.nodes[to].server.at(now);
        let mut keys = keys_where(&self.nodes[from].server, |key| slot_of(key) == slot);
        let mut random = Random::new(self.plan.seed ^ now);
        keys.retain(|_| all || random.percent(50));
        let copied = copy(&self.nodes[from].server, &keys);
        paste(&mut self.nodes[to].server, &copied);
        for key in &keys {
            self.nodes[from].server.ask(&["DEL", key]);
        }
        if let Some((_, left)) = self.slots(from).leaving.get_mut(&slot) {
            *left += keys.len();
        }
        self.log
            .line(now, format!("## s{from} gives {keys:?} to s{to}"));
        if !all {
            return;
        }
        self.slots(from).leaving.remove(&slot);
        self.slots(to).coming.remove(&slot);
        let roles = self.roles();
        roles.moving.remove(at);
        roles.view = roles
            .view
            .with(|of, owner| if of == slot { to } else { owner });
        self.spread();
        let moved = Moved {
            key: String::new(),
            node: to,
            from: since,
            at: now,
            told: now,
            followed: now,
            epoch: self.roles().view.epoch,
            failed: false,
            lost: None,
            until: now,
        };
        let keys = self.keys_of_things(|name| slot_of(name) == slot);
        self.write_down_moved(keys, &moved);
        self.log.line(now, format!("## s{to} has slot {slot}"));
    }

    pub(super) fn write_down_moved(&self, keys: Vec<String>, moved: &Moved) {
        let all = keys.into_iter().map(|key| Moved {
            key,
            ..moved.clone()
        });
        self.log.lock().history.moves.extend(all);
    }

    /// Tells all that can hear it who has which slot.
    pub(super) fn spread(&mut self) {
        let roles = self.cluster.as_ref().expect("only a cluster has roles");
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if let Some(slots) = &mut node.server.slots
                && !roles.is_failing(at)
            {
                slots.view = roles.view.clone();
            }
        }
    }
}
