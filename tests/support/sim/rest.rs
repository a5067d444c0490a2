//! What is left when nobody uses anything any more.

use std::sync::atomic::Ordering;

use super::clients::Clients;
use super::machine::Machine;
use super::plan::{Fault, Refusal, Thing, Trouble};
use super::run::World;
use super::server::Server;
use crate::history::{Ms, Violation};
use crate::leak::in_use;

/// Something in Redis that names a client.
struct Owner<'a> {
    /// At which server.
    at: usize,
    key: &'a str,
    word: &'a str,
    process: u32,
}

/// The longest lease that a turn asks for by itself.
const LONGEST_OWN: Ms = 2500;

impl World {
    /// Lets everything come to rest; answers what is left although nobody uses it.
    pub(super) fn rest(&mut self) -> Vec<Violation> {
        let terms = self.plan.terms;
        let until = self.now + 2 * (terms.connect + terms.response) + terms.linger + 35_000;
        while self.now < until && !self.busy().is_empty() {
            self.step();
        }
        let mut left: Vec<Violation> = Vec::new();
        for what in self.busy() {
            left.push(Violation::new("leftovers", self.now, what));
        }
        if !self.plan.refuses(Refusal::Forbidden) {
            for what in self.lost_permits() {
                left.push(Violation::new("leftovers", self.now, what));
            }
        }
        // A release that an ACL forbids is not tried again, and where an ACL forbids to end a
        // connection, what it sent may arrive last: the lease ends that.
        if self.plan.refuses(Refusal::Forbidden) || self.plan.refuses(Refusal::Kill) {
            self.outlast_leases();
            return left.into_iter().chain(self.held_by_nobody()).collect();
        }
        if self
            .log
            .lock()
            .history
            .moves
            .iter()
            .any(|moved| moved.lost.is_some())
        {
            self.outlast_leases();
        }
        // A ticket that nobody has adopted ends with its lease.
        if self.machines.iter().any(|one| !one.host.tickets.is_empty()) {
            self.outlast_leases();
        }
        for what in self.without_lease() {
            left.push(Violation::new("leftovers", self.now, what));
        }
        let living: Vec<u32> = self.machines.iter().filter_map(Machine::process).collect();
        for what in self.keys_of(&living, |owner| self.is_back(owner)) {
            left.push(Violation::new("leftovers", self.now, what));
        }
        left
    }

    /// Until all leases are over, also of what nobody was told of having.
    fn outlast_leases(&mut self) {
        let lease = self.plan.terms.watchdog().max(LONGEST_OWN);
        let until = self.now + self.log.lock().history.recovery() + lease;
        while self.now < until {
            self.step();
        }
    }

    /// Locks that somebody holds although all leases are over.
    fn held_by_nobody(&self) -> Vec<Violation> {
        let things = self.plan.things.iter().enumerate();
        let locks = things.filter(|(_, thing)| thing.is_lock());
        let everywhere = locks.flat_map(|(place, thing)| {
            let key = thing.key(place);
            (0..self.nodes.len()).map(move |server| (server, key.clone()))
        });
        let holders = everywhere.flat_map(|(server, key)| {
            let owners = self.nodes[server].server.list(&["HKEYS", &key]);
            let name = self.name(server);
            owners
                .into_iter()
                .map(move |owner| format!("{key}{name} has {owner}"))
        });
        holders
            .map(|what| Violation::new("leftovers", self.now, what))
            .collect()
    }

    /// Locks that nobody's lease ends, whoever has them: also Redisson's end by themselves.
    fn without_lease(&self) -> Vec<String> {
        let things = self.plan.things.iter().enumerate();
        let locks = things.filter(|(_, thing)| thing.is_lock());
        let keys = locks.map(|(place, thing)| thing.key(place));
        keys.filter(|key| &*self.server_of(key).ask(&["PTTL", key]) == b":-1\r\n")
            .map(|key| format!("{key} has no lease"))
            .collect()
    }

    /// What clients have that are not in use.
    fn busy(&self) -> Vec<String> {
        let mut busy = Vec::new();
        for machine in &self.machines {
            let Some(Clients {
                process,
                all,
                quorum,
            }) = machine.clients()
            else {
                continue;
            };
            for client in &all {
                let used = machine.inside(|| in_use(client)).unwrap_or_default();
                busy.extend(
                    used.into_iter()
                        .map(|what| format!("process {process} has {what}")),
                );
                let tasks = client.stats().tasks;
                // Of each node of a cluster.
                if tasks > 4 * self.plan.servers() && tasks > 4 {
                    busy.push(format!("process {process} has {tasks} tasks"));
                }
            }
            let waiting = quorum.map_or(0, |quorum| quorum.waiting());
            if waiting > 0 {
                busy.push(format!("process {process} has {waiting} for a quorum"));
            }
        }
        busy
    }

    /// Looks at the clients that do nothing, and have nothing to do: they may have nothing in Redis
    /// either.
    pub(super) fn look_at_idle(&mut self) {
        let machines = self.machines.iter().zip(&self.paused);
        let idle = machines.filter(|(machine, paused)| {
            !**paused && machine.is_on() && machine.host.active.load(Ordering::Relaxed) == 0
        });
        let idle = idle.filter_map(|(machine, _)| {
            let clients = machine.clients()?;
            let idle = clients.all.iter().all(|client| {
                let stats = client.stats();
                [stats.held, stats.waiting, stats.renewals, stats.releases] == [0; 4]
            });
            idle.then_some(clients.process)
        });
        let idle: Vec<u32> = idle.collect();
        if idle.is_empty() || !self.ghosts.is_empty() {
            return;
        }
        if self.plan.refuses(Refusal::Forbidden) || self.plan.refuses(Refusal::Kill) {
            return;
        }
        let excused = |owner: &Owner<'_>| {
            let left = self.is_back(owner) || self.is_of_a_ticket(owner);
            left || self.is_over(owner) || self.is_kept(owner.key, owner.word)
        };
        for what in self.keys_of(&idle, excused) {
            self.ghosts.push(Violation::new("ghost", self.now, what));
        }
    }

    /// Semaphores without leases that have not all of their permits, although nobody took any along.
    fn lost_permits(&self) -> Vec<String> {
        let takes = |fault: &Fault| matches!(fault.what, Trouble::CrashHost { .. });
        // A client that could not give them back in time says so when it is shut down.
        // Redisson repeats what takes and gives back permits.
        let repeats = !self.plan.java.is_empty() && !self.plan.faults.is_empty();
        if self.plan.faults.iter().any(takes) || repeats || self.log.lock().undelivered {
            return Vec::new();
        }
        let things = self.plan.things.iter().enumerate();
        let lost = things.filter_map(|(place, thing)| {
            let Thing::Semaphore(limit) = *thing else {
                return None;
            };
            let key = thing.key(place);
            if self
                .log
                .lock()
                .history
                .moved(&key)
                .any(|moved| moved.lost.is_some())
            {
                return None;
            }
            let left = self.server_of(&key).ask(&["GET", &key]);
            let left = String::from_utf8_lossy(&left);
            let left: u32 = left.lines().nth(1)?.parse().ok()?;
            (left != limit).then(|| format!("{key} has {left} of {limit} permits"))
        });
        lost.collect()
    }

    /// Whether this is a reader whose lease is over, and which a fault may have kept from leaving a lock
    /// that others still read. Nobody waits for it, and it goes with the last of the others.
    fn is_over(&self, owner: &Owner<'_>) -> bool {
        let things = self.plan.things.iter().enumerate();
        let mut shared = things.filter(|(_, thing)| **thing == Thing::ReadWrite);
        let key = owner.key;
        let server = &self.nodes[owner.at].server;
        let mode = server.ask(&["HGET", key, "mode"]);
        if !shared.any(|(place, thing)| thing.key(place) == key) || &*mode != b"$4\r\nread\r\n" {
            return false;
        }
        let count = server.number(&["HGET", key, owner.word]).unwrap_or(0);
        let mut leases = (1..=count).map(|hold| {
            let lease = format!("{{{key}}}:{}:rwlock_timeout:{hold}", owner.word);
            server.number(&["EXISTS", &lease])
        });
        let on = |machine: &Machine| machine.process() == Some(owner.process);
        let host = self.machines.iter().position(on);
        leases.all(|lease| lease == Some(0))
            && host.is_some_and(|host| self.struck.iter().any(|struck| struck.hinders(host)))
    }

    /// Whether this is left to whoever has its ticket.
    fn is_of_a_ticket(&self, owner: &Owner<'_>) -> bool {
        let mut machines = self.machines.iter();
        machines.any(|machine| machine.host.tickets.name(owner.word))
    }

    /// Whether the end of this may be among what a master wrote last, which its successor does not know:
    /// until its lease is over, if it has one. A waiter of a fair lock stays until that lock is used.
    fn is_back(&self, owner: &Owner<'_>) -> bool {
        let written = self.log.lock();
        let history = &written.history;
        let things = self.plan.things.iter().enumerate();
        let mut of = things.filter(|(place, thing)| {
            let mut names = thing.names(*place).into_iter();
            names.any(|name| owner.key.contains(&name))
        });
        // Also of a try that was not granted.
        let lease = self.plan.terms.watchdog().max(LONGEST_OWN);
        of.any(|(place, thing)| {
            let queue = [
                "redisson_lock_queue",
                "redisson_lock_timeout",
                "redlock_fair",
            ];
            let queued = queue.iter().any(|prefix| owner.key.starts_with(prefix));
            let endless = matches!(thing, Thing::Semaphore(_)) || queued;
            let key = thing.key(place);
            let mut lost = history.moved(&key).filter(|moved| moved.lost.is_some());
            lost.any(|moved| endless || self.now <= moved.until + history.recovery() + lease)
        })
    }

    /// Keys in Redis that name a client of these processes, but for these owners.
    fn keys_of(&self, processes: &[u32], but: impl Fn(&Owner<'_>) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        let living: Vec<(String, u32)> = {
            let written = self.log.lock();
            let clients = written.history.clients.iter();
            clients
                .filter(|(_, process)| processes.contains(process))
                .cloned()
                .collect()
        };
        for (at, node) in self.nodes.iter().enumerate() {
            // What a master that has failed has is on another node.
            if self
                .cluster
                .as_ref()
                .is_some_and(|roles| !roles.is_master(at))
            {
                continue;
            }
            let name = self.name(at);
            for (key, word) in words_of(&node.server) {
                let owner = living
                    .iter()
                    .find(|(client, _)| word.contains(&format!("{client}:")));
                let of = owner.map(|(_, process)| Owner {
                    at,
                    key: &key,
                    word: &word,
                    process: *process,
                });
                if let Some(Owner { process, .. }) = of.filter(|of| !but(of)) {
                    found.push(format!("{key}{name} has {word} of process {process}"));
                }
            }
        }
        found
    }
}

/// All keys of a server, each with the words in it.
fn words_of(server: &Server) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for key in server.list(&["KEYS", "*"]) {
        let kind = server.ask(&["TYPE", &key]);
        let words = match &*kind {
            b"+hash\r\n" => server.list(&["HKEYS", &key]),
            b"+list\r\n" => server.list(&["LRANGE", &key, "0", "-1"]),
            b"+zset\r\n" => server.list(&["ZRANGE", &key, "0", "-1"]),
            b"+set\r\n" => server.list(&["SMEMBERS", &key]),
            _ => Vec::new(),
        };
        found.extend(words.into_iter().map(|word| (key.clone(), word)));
    }
    found
}
