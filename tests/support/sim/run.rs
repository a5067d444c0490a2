//! Runs a plan: moves the time, brings about the faults, and looks at what is left.

use std::sync::{Arc, Mutex, PoisonError};

use super::act::Host;
use super::log::{Clock, Log};
use super::machine::Machine;
use super::net::{Item, Listening, Net, Shared};
use super::plan::{Fault, Plan, Refusal, Thing, Trouble};
use super::server::Server;
use crate::history::{self, History, Ms, Sight, Strike, Violation, Wiped};

/// No run takes longer.
const LONGEST: Ms = 600_000;
/// What happens at once when nothing is on its way.
const LEAP: Ms = 4;

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What all did.
    pub history: History,
    /// What breaks a rule.
    pub violations: Vec<Violation>,
    /// The time line.
    pub lines: Vec<String>,
}

/// Something that ends at its time.
enum Due {
    Begin(Trouble),
    Open { host: usize },
    Hasten { host: usize },
    Allow(Option<usize>, Refusal),
    Boot { host: usize },
    Resume { host: usize },
    Serve,
    Go,
    EndOld,
}

/// A fault that struck a host, or all.
struct Struck {
    host: Option<usize>,
    from: Ms,
    until: Ms,
    stands: bool,
}

struct World {
    struck: Vec<Struck>,
    plan: Arc<Plan>,
    net: Shared,
    log: Log,
    server: Server,
    machines: Vec<Machine>,
    paused: Vec<bool>,
    server_stands: bool,
    due: Vec<(Ms, Due)>,
    now: Ms,
    fair: Vec<String>,
}

/// Runs a plan on this thread.
pub fn run(plan: &Plan) -> Report {
    fastrand::seed(plan.seed);
    let mut world = World::new(plan);
    let mut violations: Vec<Violation> = world.play().into_iter().collect();
    violations.extend(world.rest());
    violations.extend(world.server.outdated.iter().map(|(process, at)| {
        let what = format!("process {process} asks a server that it has left");
        Violation::new("outdated", *at, what)
    }));
    world.end();
    let written = std::mem::take(&mut *world.log.lock());
    let mut history = written.history;
    history.end = world.now;
    history.strikes = world.strikes(&written.hosts);
    violations.extend(history::check(&history));
    violations.sort_by_key(|violation| violation.at);
    let mut lines = written.lines;
    lines.sort_by_key(|(at, _)| *at);
    let lines = lines
        .into_iter()
        .map(|(at, text)| format!("{at:>7} {text}"))
        .collect();
    Report {
        history,
        violations,
        lines,
    }
}

impl World {
    fn new(plan: &Plan) -> Self {
        let plan = Arc::new(plan.clone());
        let net = Net::shared(
            plan.hosts.len(),
            plan.terms.latency,
            plan.seed ^ 0x6e65_7477,
        );
        let log = Log::new();
        log.lock().history.terms = history::Terms {
            latency: plan.terms.latency.1,
            waiter_timeout: plan.terms.waiter,
            response: plan.terms.response,
            connect: plan.terms.connect,
            skew_percent: 2,
        };
        let processes = Arc::new(Mutex::new(0));
        let machines = (0..plan.hosts.len()).map(|place| {
            let host = Host {
                place,
                plan: Arc::clone(&plan),
                net: net.clone(),
                log: log.clone(),
                clock: Clock::new(),
                client: Mutex::new(None),
                processes: Arc::clone(&processes),
                progress: Mutex::new(vec![0; plan.hosts[place].len()]),
            };
            Machine::new(Arc::new(host), plan.terms.skew[place % 2])
        });
        let machines: Vec<Machine> = machines.collect();
        let of_fair = |(place, thing): (usize, &Thing)| {
            matches!(thing, Thing::Fair).then(|| thing.key(place))
        };
        let fair = plan.things.iter().enumerate().filter_map(of_fair).collect();
        let mut server = Server::new(plan.seed, plan.terms.skew[2]);
        let delays = |fault: &Fault| {
            use Trouble::{Partition, PauseServer, Slow, Stray};
            matches!(
                fault.what,
                PauseServer { .. } | Partition { .. } | Slow { .. } | Stray { .. }
            )
        };
        if !plan.faults.iter().any(delays) {
            server.may_ask = 4 * plan.terms.latency.1;
        }
        let begin = |fault: &Fault| (fault.at, Due::Begin(fault.what));
        Self {
            struck: Vec::new(),
            server,
            paused: vec![false; machines.len()],
            server_stands: false,
            due: plan.faults.iter().map(begin).collect(),
            now: 0,
            fair,
            machines,
            plan,
            net,
            log,
        }
    }

    /// Runs until all tasks are done and all faults over.
    fn play(&mut self) -> Option<Violation> {
        while !self.due.is_empty() || !self.machines.iter().all(Machine::is_done) {
            if self.now > LONGEST {
                let pending: Vec<String> = self.pending();
                let what = format!("not done: {}", pending.join("; "));
                return Some(Violation::new("done", self.now, what));
            }
            self.step();
        }
        None
    }

    fn pending(&self) -> Vec<String> {
        let written = self.log.lock();
        let waiting = written
            .history
            .acquisitions
            .iter()
            .filter(|one| one.returned.is_none());
        let told = waiting.map(|one| {
            format!(
                "process {} asked for {} at {}",
                one.process, one.key, one.called
            )
        });
        told.collect()
    }

    /// One moment, or a few where nothing is on its way.
    fn step(&mut self) {
        while let Some(place) = self.due.iter().position(|(at, _)| *at <= self.now) {
            let (_, due) = self.due.remove(place);
            self.act(due);
        }
        let next = self.due.iter().map(|(at, _)| *at).min().unwrap_or(Ms::MAX);
        let window = {
            let mut net = self.net.lock();
            net.now = self.now;
            net.arrive();
            if net.is_quiet() {
                LEAP.min(next - self.now)
            } else {
                1
            }
        };
        for (machine, paused) in self.machines.iter_mut().zip(&self.paused) {
            match paused {
                true => machine.still += window,
                false => machine.run(self.now, window),
            }
        }
        self.now += window;
        if !self.server_stands {
            self.serve();
        }
    }

    fn serve(&mut self) {
        self.server.at(self.now);
        let mut net = self.net.lock();
        net.now = self.now;
        let now = self.now;
        let mut lines = Vec::new();
        let mut ran = false;
        // One message after the other, so that no state of a queue goes unseen.
        while self.server.run_one(&mut net, &mut |host, text| {
            lines.push(format!("h{host}{text}"))
        }) {
            ran = true;
            if !self.fair.is_empty() {
                Self::sight(&self.server, &self.fair, &self.log, now);
            }
        }
        let cut = std::mem::take(&mut net.cut);
        drop(net);
        for (host, _) in cut {
            self.strike(Some(host), 0, false);
        }
        if ran {
            let mut written = self.log.lock();
            written
                .lines
                .extend(lines.into_iter().map(|text| (now, text)));
        }
    }

    /// Writes down what fair queues look like, where one has changed.
    fn sight(server: &Server, fair: &[String], log: &Log, now: Ms) {
        for key in fair {
            let queue = server.list(&[
                "LRANGE",
                &format!("redisson_lock_queue:{{{key}}}"),
                "0",
                "-1",
            ]);
            let holder = server.list(&["HKEYS", key]).into_iter().next();
            let sights = &mut log.lock().history.sights;
            let last = sights.iter().rev().find(|sight| sight.key == *key);
            let same = last.is_some_and(|last| last.queue == queue && last.holder == holder);
            if !same {
                sights.push(Sight {
                    at: now,
                    key: key.clone(),
                    queue,
                    holder,
                });
            }
        }
    }

    /// Lets everything come to rest; answers what is left although nobody uses it.
    fn rest(&mut self) -> Vec<Violation> {
        let terms = self.plan.terms;
        let until = self.now + 2 * (terms.connect + terms.response) + terms.linger + 35_000;
        while self.now < until && !self.busy().is_empty() {
            self.step();
        }
        let mut left: Vec<Violation> = Vec::new();
        for what in self.busy() {
            left.push(Violation::new("leftovers", self.now, what));
        }
        // A release that an ACL forbids is not tried again.
        let forbids = |fault: &Fault| {
            matches!(
                fault.what,
                Trouble::Refuse {
                    with: Refusal::Forbidden,
                    ..
                }
            )
        };
        if self.plan.faults.iter().any(forbids) {
            return left;
        }
        for what in self.lost_permits() {
            left.push(Violation::new("leftovers", self.now, what));
        }
        for what in self.keys_of_the_living() {
            left.push(Violation::new("leftovers", self.now, what));
        }
        left
    }

    /// What clients have that are not in use.
    fn busy(&self) -> Vec<String> {
        let mut busy = Vec::new();
        for machine in &self.machines {
            let Some(process) = machine.process() else {
                continue;
            };
            let (client, _) = machine.host.client();
            let stats = machine.inside(|| client.stats()).unwrap_or_default();
            let used = [
                ("held", stats.held),
                ("waiting", stats.waiting),
                ("subscriptions", stats.subscriptions),
                ("renewals", stats.renewals),
                ("releases", stats.releases),
                ("names", stats.names),
            ];
            for (what, count) in used.into_iter().filter(|(_, count)| *count > 0) {
                busy.push(format!("process {process} has {what}: {count}"));
            }
            if stats.tasks > 4 {
                busy.push(format!("process {process} has {} tasks", stats.tasks));
            }
        }
        busy
    }

    /// Semaphores without leases that have not all of their permits, although nobody took any along.
    fn lost_permits(&self) -> Vec<String> {
        let takes = |fault: &Fault| matches!(fault.what, Trouble::CrashHost { .. });
        if self.plan.faults.iter().any(takes) {
            return Vec::new();
        }
        let things = self.plan.things.iter().enumerate();
        let lost = things.filter_map(|(place, thing)| {
            let Thing::Semaphore(limit) = *thing else {
                return None;
            };
            let key = thing.key(place);
            let left = self.server.ask(&["GET", &key]);
            let left = String::from_utf8_lossy(&left);
            let left: u32 = left.lines().nth(1)?.parse().ok()?;
            (left != limit).then(|| format!("{key} has {left} of {limit} permits"))
        });
        lost.collect()
    }

    /// Keys in Redis that name a client that is there and has nothing.
    fn keys_of_the_living(&self) -> Vec<String> {
        let mut found = Vec::new();
        let living: Vec<(String, u32)> = {
            let processes: Vec<u32> = self.machines.iter().filter_map(Machine::process).collect();
            let written = self.log.lock();
            let clients = written.history.clients.iter();
            clients
                .filter(|(_, process)| processes.contains(process))
                .cloned()
                .collect()
        };
        for key in self.server.list(&["KEYS", "*"]) {
            let kind = self.server.ask(&["TYPE", &key]);
            let words = match &*kind {
                b"+hash\r\n" => self.server.list(&["HKEYS", &key]),
                b"+list\r\n" => self.server.list(&["LRANGE", &key, "0", "-1"]),
                b"+zset\r\n" => self.server.list(&["ZRANGE", &key, "0", "-1"]),
                b"+set\r\n" => self.server.list(&["SMEMBERS", &key]),
                _ => Vec::new(),
            };
            for word in words {
                let owner = living
                    .iter()
                    .find(|(client, _)| word.contains(&format!("{client}:")));
                if let Some((_, process)) = owner {
                    found.push(format!("{key} has {word} of process {process}"));
                }
            }
        }
        found
    }

    fn end(&mut self) {
        for machine in &mut self.machines {
            machine.inside(|| {
                let mut slot = machine
                    .host
                    .client
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                drop(slot.take());
            });
            machine.stop();
        }
    }

    fn line(&self, text: String) {
        self.log.line(self.now, format!("## {text}"));
    }

    /// How long the consequences of a fault may take.
    fn grace(&self) -> Ms {
        let terms = &self.plan.terms;
        2 * (terms.response + terms.connect) + terms.waiter + terms.lease + 1000
    }

    fn strike(&mut self, host: Option<usize>, lasts: Ms, stands: bool) {
        let until = self.now + lasts + self.grace();
        self.struck.push(Struck {
            host,
            from: self.now,
            until,
            stands,
        });
    }

    /// Of each process, what struck its host.
    fn strikes(&self, hosts: &[(u32, usize)]) -> Vec<Strike> {
        let mut strikes = Vec::new();
        for struck in &self.struck {
            let (from, until, stands) = (struck.from, struck.until, struck.stands);
            let strike = |process| Strike {
                from,
                until,
                process,
                stands,
            };
            match struck.host {
                None => strikes.push(strike(None)),
                Some(host) => {
                    let of = hosts.iter().filter(|(_, of)| *of == host);
                    strikes.extend(of.map(|(process, _)| strike(Some(*process))));
                }
            }
        }
        strikes
    }

    fn wiped(&self, key: Option<String>, lasts: Ms) {
        let wiped = Wiped {
            at: self.now,
            until: self.now + lasts,
            key,
        };
        self.log.lock().history.wiped.push(wiped);
    }

    fn later(&mut self, lasts: Ms, due: Due) {
        self.due.push((self.now + lasts, due));
    }

    fn act(&mut self, due: Due) {
        match due {
            Due::Begin(trouble) => {
                self.line(format!("{trouble:?}"));
                self.begin(trouble);
            }
            Due::Open { host } => {
                self.line(format!("h{host} is reached again"));
                let path = &mut self.net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (false, false);
            }
            Due::Hasten { host } => self.net.lock().paths[host].slow = 0,
            Due::Allow(host, refusal) => {
                self.line(format!("{refusal:?} is over"));
                let of = |one: &(Option<usize>, Refusal)| *one == (host, refusal);
                if let Some(place) = self.server.refusals.iter().position(of) {
                    self.server.refusals.remove(place);
                }
                if refusal == Refusal::Dial {
                    let mut net = self.net.lock();
                    for path in &mut net.paths {
                        path.refuses = false;
                    }
                }
            }
            Due::Boot { host } => {
                if !self.machines[host].is_on() {
                    self.line(format!("h{host} starts"));
                    self.net.lock().paths[host].off = false;
                    self.machines[host].start();
                }
            }
            Due::Resume { host } => {
                self.line(format!("h{host} goes on"));
                self.paused[host] = false;
            }
            Due::Serve => {
                self.line("the server is there again".to_owned());
                self.net.lock().server = Listening::Yes;
            }
            Due::EndOld => {
                self.line("the old server is gone".to_owned());
                let mut net = self.net.lock();
                for id in self.server.end_old() {
                    net.reply(id, Item::Reset);
                }
            }
            Due::Go => {
                self.line("the server goes on".to_owned());
                self.server_stands = false;
            }
        }
    }

    fn begin(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Partition {
                host,
                up,
                down,
                lasts,
            } => {
                self.strike(Some(host), lasts, false);
                let path = &mut self.net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (up, down);
            }
            Trouble::Slow { host, more, .. } => {
                self.net.lock().paths[host].slow = more;
            }
            Trouble::Cut { host, after, place } => {
                self.net.lock().paths[host].cuts.push((after.max(1), place));
            }
            Trouble::Silence { host } => {
                // A connection for subscriptions is asked for a sign of life every 30 s.
                self.strike(Some(host), 32_000, false);
                let mut net = self.net.lock();
                for id in net.of(Some(host)) {
                    net.silence(id);
                }
            }
            Trouble::Stray { host, lasts } => {
                self.strike(Some(host), lasts, false);
                let mut net = self.net.lock();
                for id in net.of(Some(host)) {
                    net.stray(id, lasts);
                }
            }
            Trouble::Refuse { host, with, lasts } => {
                self.strike(host, lasts, false);
                self.server.refusals.push((host, with));
                if with == Refusal::Dial {
                    let mut net = self.net.lock();
                    for (place, path) in net.paths.iter_mut().enumerate() {
                        path.refuses |= host.is_none_or(|host| host == place);
                    }
                }
            }
            Trouble::CrashHost { host, silent, .. } => self.crash(host, silent),
            Trouble::PauseHost { host, lasts } => {
                self.strike(Some(host), lasts, true);
                self.paused[host] = true;
            }
            Trouble::EndRuntime { host } => {
                self.strike(Some(host), 0, false);
                if self.machines[host].is_on() && !self.paused[host] {
                    self.machines[host].stop();
                    self.machines[host].start();
                }
            }
            Trouble::CrashServer { keeps, silent, .. } => self.crash_server(keeps, silent),
            Trouble::PauseServer { lasts } => {
                self.strike(None, lasts, false);
                self.server_stands = true;
            }
            Trouble::Replace { lasts } => {
                self.strike(None, lasts, false);
                self.wiped(None, lasts);
                self.server.replace();
            }
            Trouble::Flush => {
                self.strike(None, 0, false);
                self.wiped(None, 0);
                self.server.ask(&["FLUSHALL"]);
            }
            Trouble::ForgetScripts => {
                self.server.ask(&["SCRIPT", "FLUSH"]);
            }
            Trouble::Evict { thing } => {
                let key = self.plan.things[thing].key(thing);
                self.strike(None, 0, false);
                self.wiped(Some(key.clone()), 0);
                self.server.ask(&["DEL", &key]);
            }
        }
        self.follow(trouble);
    }

    /// Has a trouble end when it should.
    fn follow(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Partition { host, lasts, .. } => self.later(lasts, Due::Open { host }),
            Trouble::Slow { host, lasts, .. } => {
                self.strike(Some(host), lasts, false);
                self.later(lasts, Due::Hasten { host });
            }
            Trouble::Refuse { host, with, lasts } => self.later(lasts, Due::Allow(host, with)),
            Trouble::CrashHost { host, lasts, .. } => self.later(lasts, Due::Boot { host }),
            Trouble::PauseHost { host, lasts } => self.later(lasts, Due::Resume { host }),
            Trouble::CrashServer { lasts, .. } => self.later(lasts, Due::Serve),
            Trouble::PauseServer { lasts } => self.later(lasts, Due::Go),
            Trouble::Replace { lasts } => self.later(lasts, Due::EndOld),
            _ => {}
        }
    }

    fn crash(&mut self, host: usize, silent: bool) {
        if !self.machines[host].is_on() || self.paused[host] {
            return;
        }
        // What it held is left to its lease, and everybody waits for that.
        self.strike(None, self.plan.terms.lease, false);
        if let Some(process) = self.machines[host].process() {
            self.log.crashed(process, self.now);
        }
        {
            let mut net = self.net.lock();
            net.paths[host].off = true;
            for id in net.of(Some(host)) {
                net.silence(id);
                if !silent {
                    self.server.disconnect(id);
                    net.links.remove(&id);
                }
            }
        }
        let machine = &mut self.machines[host];
        machine.inside(|| {
            let mut slot = machine
                .host
                .client
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            drop(slot.take());
        });
        machine.stop();
    }

    fn crash_server(&mut self, keeps: bool, silent: bool) {
        self.strike(None, if silent { 32_000 } else { 0 }, false);
        if !keeps {
            self.wiped(None, 0);
        }
        self.server.crash(keeps);
        let mut net = self.net.lock();
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
