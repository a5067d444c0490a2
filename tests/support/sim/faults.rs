//! What goes wrong: how a fault begins, whom it strikes, and how it ends.

use std::sync::atomic::Ordering;

use super::cluster::Next;
use super::log::Log;
use super::net::{Item, Listening};
use super::plan::{Refusal, Trouble};
use super::run::World;
use crate::history::{Ms, Pause, Strike, Wiped};

/// A connection that leads nowhere is found by its PING at the latest.
const PING: Ms = 30_000;

/// Something that is done at its time.
pub(super) enum Due {
    Begin(Trouble),
    Open { host: usize },
    Hasten { host: usize },
    Allow(Option<usize>, Refusal),
    Boot { host: usize },
    Resume { host: usize },
    Serve,
    Go,
    Hurry,
    Mend { thing: usize },
    EndOld,
    Cluster(Next),
}

/// A fault of this host, at all servers.
const EVERYWHERE: Option<usize> = None;

/// A fault that struck a host, or all.
pub(super) struct Struck {
    /// At which server; `None`: at all.
    server: Option<usize>,
    host: Option<usize>,
    from: Ms,
    until: Ms,
    unheard: Ms,
    only_wipes: bool,
    /// Whether the host stood still.
    stands: bool,
}

impl Struck {
    /// Whether it kept this host from something.
    pub(super) fn hinders(&self, host: usize) -> bool {
        self.host.is_none_or(|of| of == host) && !self.only_wipes
    }

    /// Whether it may keep somebody from something at this time or later.
    pub(super) fn may_hinder(&self, from: Ms) -> bool {
        !self.only_wipes && from <= self.until
    }
}

/// Writes down, for each process, what struck its host.
pub(super) fn write_down(all: &[Struck], log: &Log) {
    let mut written = log.lock();
    let hosts = std::mem::take(&mut written.hosts);
    for struck in all {
        let (from, until) = (struck.from, struck.until);
        let processes: Vec<Option<u32>> = match struck.host {
            None => vec![None],
            Some(host) => {
                let of = hosts.iter().filter(|(_, of)| *of == host);
                of.map(|(process, _)| Some(*process)).collect()
            }
        };
        for process in processes {
            let strike = Strike {
                from,
                until,
                process,
                unheard: struck.unheard,
                only_wipes: struck.only_wipes,
            };
            if struck.server.unwrap_or(0) == 0 {
                written.history.strikes.push(strike.clone());
            }
            written.history.struck_servers.push((struck.server, strike));
            if let Some(process) = process.filter(|_| struck.stands) {
                written.history.pauses.push(Pause {
                    process,
                    from,
                    until,
                });
            }
        }
    }
}

impl World {
    fn line(&self, server: usize, text: String) {
        let name = self.name(server);
        self.log.line(self.now, format!("##{name} {text}"));
    }

    pub(super) fn strike(
        &mut self,
        server: Option<usize>,
        host: Option<usize>,
        lasts: Ms,
    ) -> &mut Struck {
        // Each client has holds at all nodes of a cluster.
        let server = server.filter(|_| self.cluster.is_none());
        self.struck.push(Struck {
            server,
            host,
            from: self.now,
            until: self.now + lasts,
            unheard: 0,
            only_wipes: false,
            stands: false,
        });
        self.struck.last_mut().expect("it was pushed just now")
    }

    /// A connection of the host may be dead without its knowing.
    fn strike_unheard(&mut self, server: usize, host: Option<usize>, lasts: Ms) {
        let response = self.plan.terms.response;
        self.strike(Some(server), host, lasts).unheard = PING + response;
    }

    fn wiped(&self, server: usize, key: Option<String>, lasts: Ms) {
        if self.cluster.is_some() && key.is_none() {
            for key in self.things_at(server) {
                self.wiped(server, Some(key), lasts);
            }
            return;
        }
        let wiped = Wiped {
            at: self.now,
            until: self.now + lasts,
            key,
        };
        let mut written = self.log.lock();
        if server == 0 || self.cluster.is_some() {
            written.history.wiped.push(wiped.clone());
        }
        written.history.wiped_servers.push((server, wiped));
    }

    /// From now on Redisson's clock and the server's are not the same.
    fn clocks_differ(&self) {
        let history = &mut self.log.lock().history;
        history.clocks_differ.get_or_insert(self.now);
    }

    pub(super) fn act(&mut self, server: usize, due: Due) {
        match due {
            Due::Cluster(next) => self.in_cluster(next),
            Due::Begin(trouble) => {
                let server = self.master(server, trouble);
                if !self.may_begin(server, trouble) {
                    return;
                }
                self.line(server, format!("{trouble:?}"));
                self.begin(server, trouble);
            }
            Due::Open { host } => {
                self.line(server, format!("h{host} is reached again"));
                let path = &mut self.nodes[server].net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (false, false);
            }
            Due::Hasten { host } => self.nodes[server].net.lock().paths[host].slow = 0,
            Due::Allow(host, refusal) => {
                self.line(server, format!("{refusal:?} is over"));
                let of = |one: &(Option<usize>, Refusal)| *one == (host, refusal);
                let node = &mut self.nodes[server];
                if let Some(place) = node.server.refusals.iter().position(of) {
                    node.server.refusals.remove(place);
                }
                if refusal == Refusal::Dial {
                    let mut net = node.net.lock();
                    for path in &mut net.paths {
                        path.refuses = false;
                    }
                }
            }
            Due::Boot { host } => {
                if !self.machines[host].is_on() {
                    self.line(server, format!("h{host} starts"));
                    for node in &self.nodes {
                        node.net.lock().paths[host].off = false;
                    }
                    self.machines[host].start();
                }
            }
            Due::Resume { host } => {
                self.line(server, format!("h{host} goes on"));
                self.paused[host] = false;
                if let Some(process) = self.machines[host].process() {
                    for node in &mut self.nodes {
                        node.server.goes_on(process, self.now);
                    }
                }
            }
            Due::Serve => {
                self.line(server, "the server is there again".to_owned());
                self.nodes[server].net.lock().server = Listening::Yes;
            }
            Due::EndOld => {
                self.line(server, "the old server is gone".to_owned());
                let node = &mut self.nodes[server];
                let mut net = node.net.lock();
                for id in node.server.end_old() {
                    net.reply(id, Item::Reset);
                }
            }
            Due::Hurry => self.nodes[server].each = 0,
            Due::Mend { thing } => self.mend_ttl(server, thing),
            Due::Go => {
                self.line(server, "the server goes on".to_owned());
                self.nodes[server].stands = false;
            }
        }
    }

    fn begin(&mut self, server: usize, trouble: Trouble) {
        let here = Some(server);
        match trouble {
            Trouble::Partition {
                host,
                up,
                down,
                lasts,
            } => {
                self.strike(here, Some(host), lasts);
                let path = &mut self.nodes[server].net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (up, down);
            }
            Trouble::Slow { host, more, .. } => {
                self.nodes[server].net.lock().paths[host].slow = more;
            }
            Trouble::Cut { host, after, place } => {
                let mut net = self.nodes[server].net.lock();
                net.paths[host].cuts.push((after.max(1), place));
            }
            Trouble::Silence { host } => {
                // A connection for subscriptions is asked for a sign of life every 30 s.
                self.strike_unheard(server, Some(host), 0);
                let mut net = self.nodes[server].net.lock();
                for id in net.of(Some(host)) {
                    net.silence(id);
                }
            }
            Trouble::Stray { host, lasts } => {
                self.nodes[server].net.lock().paths[host].stray = Some(lasts);
            }
            Trouble::Refuse { host, with, lasts } => {
                self.strike(here, host, lasts);
                let node = &mut self.nodes[server];
                node.server.refusals.push((host, with));
                if with == Refusal::Dial {
                    let mut net = node.net.lock();
                    for (place, path) in net.paths.iter_mut().enumerate() {
                        path.refuses |= host.is_none_or(|host| host == place);
                    }
                }
            }
            Trouble::CrashHost {
                host,
                silent,
                lasts,
            } => self.crash(host, silent, lasts),
            Trouble::PauseHost { host, lasts } => {
                self.strike(EVERYWHERE, Some(host), lasts).stands = true;
                self.paused[host] = true;
            }
            Trouble::EndRuntime { host } => {
                self.strike(EVERYWHERE, Some(host), 0);
                if self.machines[host].is_on() && !self.paused[host] {
                    self.machines[host].stop();
                    self.machines[host].start();
                }
            }
            Trouble::CrashServer {
                keeps,
                silent,
                lasts,
            } => self.crash_server(server, keeps, silent, lasts),
            Trouble::PauseServer { lasts } => {
                self.strike(here, None, lasts);
                self.nodes[server].stands = true;
            }
            Trouble::Overload { each, lasts } => {
                self.strike(here, None, lasts);
                self.nodes[server].each = each;
            }
            Trouble::SetTtl { thing, to, .. } => self.set_ttl(server, thing, to),
            Trouble::Replace { lasts } => {
                self.strike(here, None, lasts);
                self.wiped(server, None, lasts);
                self.nodes[server].server.replace();
            }
            Trouble::SetClock { by } => {
                self.strike(here, None, 0);
                // Forward: leases are over before their holders think so.
                self.wiped(server, None, 0);
                self.nodes[server].server.set_clock(by);
                self.jumps(None, by);
                self.clocks_differ();
            }
            // The library does not read that clock; Redisson does.
            Trouble::SetWallClock { host, by } => {
                let wall = &self.machines[host].host.wall;
                wall.fetch_add(by, Ordering::Relaxed);
                self.jumps(Some(host), by);
                if self.plan.is_java(host) {
                    self.clocks_differ();
                }
            }
            Trouble::Flush => {
                self.strike(here, None, 0).only_wipes = true;
                self.wiped(server, None, 0);
                self.nodes[server].server.wipe(&["FLUSHALL"]);
            }
            Trouble::ForgetScripts => {
                self.nodes[server].server.ask(&["SCRIPT", "FLUSH"]);
            }
            Trouble::Evict { thing } => {
                let key = self.plan.things[thing].key(thing);
                self.evict(server, &key);
            }
            Trouble::MoveSlot { thing, to, lasts } => self.move_slot(thing, to, lasts),
            Trouble::FailOver { .. } => self.fail_over(server, trouble),
            Trouble::Switch { still } => self.switch(server, still),
            // The master goes on without it.
            Trouble::StopReplica { lasts, .. } => {
                self.nodes[server].stands = true;
                let standing = (server, self.now, self.now + lasts);
                self.log.lock().history.standing.push(standing);
            }
        }
        self.follow(server, trouble);
    }

    /// Has a trouble end when it should.
    fn follow(&mut self, server: usize, trouble: Trouble) {
        let (lasts, due) = match trouble {
            Trouble::Partition { host, lasts, .. } => (lasts, Due::Open { host }),
            Trouble::Slow { host, lasts, .. } => {
                self.strike(Some(server), Some(host), lasts);
                (lasts, Due::Hasten { host })
            }
            Trouble::Refuse { host, with, lasts } => (lasts, Due::Allow(host, with)),
            Trouble::CrashHost { host, lasts, .. } => (lasts, Due::Boot { host }),
            Trouble::PauseHost { host, lasts } => (lasts, Due::Resume { host }),
            Trouble::CrashServer { lasts, .. } => (lasts, Due::Serve),
            Trouble::PauseServer { lasts } | Trouble::StopReplica { lasts, .. } => (lasts, Due::Go),
            Trouble::Overload { lasts, .. } => (lasts, Due::Hurry),
            Trouble::SetTtl { thing, lasts, .. } => (lasts, Due::Mend { thing }),
            Trouble::Replace { lasts } => (lasts, Due::EndOld),
            _ => return,
        };
        self.due.push((self.now + lasts, server, due));
    }

    /// Redis forgets a key.
    pub(super) fn evict(&mut self, server: usize, key: &str) {
        self.strike(Some(server), None, 0).only_wipes = true;
        self.wiped(server, Some(key.to_owned()), 0);
        self.nodes[server].server.wipe(&["DEL", key]);
    }

    fn crash(&mut self, host: usize, silent: bool, lasts: Ms) {
        if !self.machines[host].is_on() || self.paused[host] {
            return;
        }
        self.strike(EVERYWHERE, Some(host), lasts);
        if let Some(process) = self.machines[host].process() {
            self.log.crashed(process, self.now);
        }
        for node in &mut self.nodes {
            let mut net = node.net.lock();
            net.paths[host].off = true;
            for id in net.of(Some(host)) {
                net.silence(id);
                if !silent {
                    node.server.disconnect(id);
                    net.links.remove(&id);
                }
            }
        }
        self.machines[host].forget_clients();
        self.machines[host].stop();
    }

    fn crash_server(&mut self, server: usize, keeps: bool, silent: bool, lasts: Ms) {
        match silent {
            true => self.strike_unheard(server, None, lasts),
            false => {
                self.strike(Some(server), None, lasts);
            }
        }
        if !keeps {
            self.wiped(server, None, 0);
        }
        let node = &mut self.nodes[server];
        node.server.crash(keeps);
        let mut net = node.net.lock();
        net.server = if silent {
            Listening::Silent
        } else {
            Listening::Refuses
        };
        for id in net.of(None) {
            match silent {
                true => net.silence(id),
                false => net.reply(id, Item::Reset),
            }
        }
    }
}
