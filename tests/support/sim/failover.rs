//! A master fails, or is replaced though it is well, and another node takes its place.

use super::carry::{Copied, copy, keys_where, paste};
use super::cluster::{AGAIN, Next};
use super::net::{Item, Listening};
use super::node::Node;
use super::plan::Trouble;
use super::run::World;
use crate::Random;
use crate::history::{Moved, Ms};

/// After so long without a master the others do not answer (`cluster-node-timeout`).
const NOTICED: Ms = 200;

/// A node that has failed, or is about to.
pub(super) struct Failing {
    pub(super) node: usize,
    /// What its successor has, if that is not all.
    copied: Option<Vec<Copied>>,
    /// When that was copied, and when it failed.
    since: Ms,
    stopped: Ms,
    lasts: Ms,
    late: Option<Ms>,
    still: Ms,
    /// It did not fail.
    well: bool,
}

impl Failing {
    /// For how long it still writes after another one has its place, from when it is there again.
    fn goes_on(&self) -> Option<Ms> {
        match (self.late, self.still) {
            (None, 0) => None,
            (late, still) => Some(late.unwrap_or(NOTICED) + still + 1),
        }
    }
}

impl World {
    /// The sentinels make another one the master.
    pub(super) fn switch(&mut self, node: usize, still: Ms) {
        self.strike(None, None, still + 1);
        let now = self.now;
        self.roles().failing.push(Failing {
            node,
            copied: None,
            since: now,
            stopped: now,
            lasts: 0,
            late: Some(0),
            still,
            well: true,
        });
        self.promote(node);
    }

    pub(super) fn fail_over(&mut self, node: usize, how: Trouble) {
        let Trouble::FailOver {
            lost,
            lasts,
            late,
            still,
            ..
        } = how
        else {
            return;
        };
        let server = &self.nodes[node].server;
        server.at(self.now);
        let copies = self.plan.copies().is_some();
        let copied = (lost > 0 && !copies).then(|| copy(server, &keys_where(server, |_| true)));
        let since = self.now;
        self.roles().failing.push(Failing {
            node,
            copied,
            since,
            stopped: since,
            lasts,
            late,
            still,
            well: false,
        });
        if let Some(copying) = &mut self.nodes[node].server.copying {
            copying.is_cut |= lost > 0;
        }
        match lost {
            0 => self.stop(node),
            _ => self.then(lost, Next::Stop { node }),
        }
    }

    pub(super) fn stop(&mut self, node: usize) {
        let now = self.now;
        let Some(failing) = self.roles().failing(node) else {
            return;
        };
        failing.stopped = now;
        let (lasts, late) = (failing.lasts, failing.late);
        let goes_on = failing.goes_on().unwrap_or(0);
        // Nodes of a cluster tell each other at once who is the master.
        let follows = if self.plan.cluster.is_some() {
            0
        } else {
            goes_on
        };
        self.strike(None, None, lasts + follows);
        self.log.line(now, format!("## s{node} stops"));
        match late {
            Some(_) => self.nodes[node].stands = true,
            None => {
                let Node { server, net, .. } = &mut self.nodes[node];
                server.crash(true);
                let mut net = net.lock();
                net.server = Listening::Refuses;
                for id in net.of(None) {
                    net.reply(id, Item::Reset);
                }
            }
        }
        if lasts > NOTICED && self.plan.cluster.is_some() {
            self.then(NOTICED, Next::Notice { node });
        }
        self.then(lasts, Next::Promote { node });
    }

    /// The others have noticed that it is away.
    pub(super) fn notice(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.slots(other).is_down = true;
        }
    }

    pub(super) fn promote(&mut self, node: usize) {
        let Some(next) = self.successor() else {
            return self.then(AGAIN, Next::Promote { node });
        };
        let now = self.now;
        let Some(failing) = self.roles().failing(node) else {
            return;
        };
        let (stopped, since, late) = (failing.stopped, failing.since, failing.late);
        let goes_on = failing.goes_on();
        let well = failing.well;
        let copied = failing.copied.take();
        self.nodes[node].server.at(now);
        self.nodes[next].server.at(now);
        // What it does when it goes on.
        let later = goes_on.map(|_| stopped);
        let lost = match self.plan.copies() {
            Some(_) => self.promote_copy(node, next, well, since).or(later),
            None => {
                let lost = copied.is_some().then_some(since).or(later);
                let server = &self.nodes[node].server;
                let copied = copied.unwrap_or_else(|| copy(server, &keys_where(server, |_| true)));
                paste(&mut self.nodes[next].server, &copied);
                lost
            }
        };
        let keys = self.things_at(node);
        let roles = self.roles();
        roles.view = roles
            .view
            .with(|_, owner| if owner == node { next } else { owner });
        for shard in &mut roles.shards {
            if *shard == node {
                *shard = next;
            }
        }
        for slots in self
            .nodes
            .iter_mut()
            .filter_map(|node| node.server.slots.as_mut())
        {
            slots.is_down = false;
        }
        self.spread();
        let told = self.spread_to_sentinels();
        let until = goes_on.map_or(now, |goes_on| now + goes_on);
        let moved = Moved {
            key: String::new(),
            node: next,
            from: stopped,
            at: now,
            told,
            followed: match self.plan.watched {
                Some(_) => told.max(until),
                None => told,
            },
            epoch: self.roles().view.epoch,
            failed: !well,
            lost,
            until,
        };
        self.write_down_moved(keys, &moved);
        self.log
            .line(now, format!("## s{next} takes the place of s{node}"));
        self.then(late.unwrap_or(NOTICED), Next::Return { node });
    }

    /// What one that copied has not got since when; all others copy from it from now on.
    fn promote_copy(&mut self, node: usize, next: usize, well: bool, since: Ms) -> Option<Ms> {
        let is_cut = self.nodes[node]
            .server
            .copying
            .as_ref()
            .is_some_and(|copying| copying.is_cut);
        let missed = self.hand_on(node, next, well);
        self.copy_from(next, node);
        missed.or_else(|| is_cut.then_some(since))
    }

    /// The old master goes on with what has arrived, or starts again.
    pub(super) fn come_back(&mut self, node: usize) {
        self.log.line(self.now, format!("## s{node} is back"));
        let failing = self.roles().failing(node);
        let still = failing.map_or(0, |failing| failing.still);
        self.nodes[node].stands = false;
        let net = self.nodes[node].net.clone();
        let was_off = std::mem::replace(&mut net.lock().server, Listening::Yes) != Listening::Yes;
        match was_off && still == 0 {
            // Redis does not serve a slot before it has heard from the others.
            true => self.learn(node),
            false => self.then(1 + still, Next::Learn { node }),
        }
    }

    /// It hears that it is a master no more.
    pub(super) fn learn(&mut self, node: usize) {
        let roles = self.roles();
        roles.failing.retain(|failing| failing.node != node);
        let view = roles.view.clone();
        self.slots(node).view = view;
        self.nodes[node].server.wipe(&["FLUSHALL"]);
        if self.plan.copies().is_some() {
            self.copy_also(node);
        }
        // Sentinels end the connections, and an operator may not.
        if self.plan.watched.is_some() && Random::new(self.plan.seed ^ self.now).percent(50) {
            let Node { server, net, .. } = &mut self.nodes[node];
            let mut net = net.lock();
            net.now = self.now;
            for id in net.of(None) {
                server.disconnect(id);
                net.reply(id, Item::End);
            }
        }
    }
}
