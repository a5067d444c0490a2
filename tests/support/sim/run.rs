//! Runs a plan: moves the time, brings about the faults, and looks at what is left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use super::act::Host;
use super::alone::Alone;
use super::cluster::Roles;
use super::faults::{Due, Struck, write_down};
use super::flood;
use super::log::{Clock, Log};
use super::machine::Machine;
use super::node::Node;
use super::plan::{Fault, Plan, Refusal, Trouble};
use super::tickets::Tickets;
use super::ttl::SetTtl;
use super::wall::{self, Jump};
use crate::history::{self, History, Ms, Ran, Violation};

/// Four times the longest pause of `engine/hub/rivals.rs`.
const YIELDS: Ms = 64;
/// No run takes longer.
const LONGEST: Ms = 600_000;
/// What happens at once when nothing is on its way.
const LEAP: Ms = 4;
/// How often clients that do nothing are looked at.
const IDLE: Ms = 50;
/// The longest pause of `Backoff::default`, with its jitter.
const BACKOFF: Ms = 256;

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What all did.
    pub history: History,
    /// What breaks a rule.
    pub violations: Vec<Violation>,
    /// How often something was excused that would break one, and by what.
    pub excused: BTreeMap<&'static str, usize>,
    /// The time line.
    pub lines: Vec<String>,
}

/// All that there is in a run.
pub(super) struct World {
    pub(super) struck: Vec<Struck>,
    pub(super) jumps: Vec<Jump>,
    pub(super) plan: Arc<Plan>,
    pub(super) nodes: Vec<Node>,
    /// What the nodes are, if they are those of a cluster.
    pub(super) cluster: Option<Roles>,
    pub(super) log: Log,
    pub(super) machines: Vec<Machine>,
    pub(super) paused: Vec<bool>,
    /// What is done at its time, and at which server.
    pub(super) due: Vec<(Ms, usize, Due)>,
    pub(super) now: Ms,
    /// When clients that do nothing are looked at next.
    look_at: Ms,
    /// Keys whose time to live another program has set.
    pub(super) ttls: Vec<SetTtl>,
    /// What clients had in Redis while they did nothing.
    pub(super) ghosts: Vec<Violation>,
}

/// Runs a plan on this thread.
pub fn run(plan: &Plan) -> Report {
    let _alone = Alone::for_run_of(plan);
    fastrand::seed(plan.seed);
    let mut world = World::new(plan);
    let mut violations: Vec<Violation> = world.play().into_iter().collect();
    violations.extend(world.rest());
    violations.append(&mut world.ghosts);
    let outdated = world.nodes.iter().flat_map(|node| &node.server.outdated);
    violations.extend(outdated.map(|(process, at)| {
        let what = format!("process {process} asks a server that it has left");
        Violation::new("outdated", *at, what)
    }));
    world.end();
    world.write_down_nodes();
    wall::write_down(&world.jumps, &mut world.log.lock());
    write_down(&world.struck, &world.log);
    let written = std::mem::take(&mut *world.log.lock());
    let mut history = written.history;
    history.end = world.now;
    let most = world.nodes.iter().map(|node| node.net.lock().most);
    history.in_flight = most.max().unwrap_or_default();
    history.calls_run = world.nodes.iter().map(|node| node.server.calls).sum();
    let verdict = history::judge(&history);
    violations.extend(verdict.broken);
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
        excused: verdict.excused,
        lines,
    }
}

impl World {
    fn new(plan: &Plan) -> Self {
        let plan = Arc::new(plan.clone());
        let mut nodes = Node::all(&plan);
        let cluster = Roles::of(&plan, &mut nodes);
        let log = Log::new();
        log.lock().history.terms = history::Terms {
            latency: plan.terms.latency.1,
            waiter_timeout: plan.terms.waiter,
            response: plan.terms.response,
            server: plan.quorum.map_or(0, |servers| servers.timeout),
            connect: plan.terms.connect,
            poll: 2 * plan.terms.poll,
            backoff: BACKOFF,
            yields: YIELDS,
            keeps_lost_connections: plan.refuses(Refusal::Kill),
            sets_clock_back: plan.faults.iter().any(|fault| {
                let by = match fault.what {
                    Trouble::SetClock { by } => by,
                    _ => 0,
                };
                by < 0
            }),
            forgets_scripts: plan
                .faults
                .iter()
                .any(|fault| fault.what == Trouble::ForgetScripts),
            throng: plan.is_throng(),
            flood: plan.flood.map(|of| history::Flood {
                from: of.from,
                until: of.until,
                turn: flood::COMMANDS * of.each,
            }),
            replicas: plan.copies().map_or(0, |of| of.timeout),
            copying: plan.copies().map_or(0, |of| of.delay),
            skew: plan
                .terms
                .skew
                .iter()
                .map(|skew| skew.unsigned_abs())
                .max()
                .unwrap_or(0),
        };
        let processes = Arc::new(Mutex::new(0));
        let tickets = Tickets::default();
        let machines = (0..plan.hosts.len()).map(|place| {
            let host = Host {
                place,
                plan: Arc::clone(&plan),
                nets: nodes.iter().map(|node| node.net.clone()).collect(),
                log: log.clone(),
                clock: Clock::new(),
                slot: Mutex::new(None),
                java: Mutex::new(None),
                connecting: tokio::sync::Mutex::new(()),
                threads: AtomicU64::new(0),
                wall: Arc::new(AtomicI64::new(0)),
                processes: Arc::clone(&processes),
                tickets: tickets.clone(),
                progress: Mutex::new(vec![0; plan.hosts[place].len()]),
                active: AtomicUsize::new(0),
            };
            Machine::new(Arc::new(host), plan.terms.skew[place % 2])
        });
        let machines: Vec<Machine> = machines.collect();
        let begin = |fault: &Fault| (fault.at, fault.server, Due::Begin(fault.what));
        let mut world = Self {
            struck: Vec::new(),
            jumps: Vec::new(),
            nodes,
            cluster,
            paused: vec![false; machines.len()],
            due: plan.faults.iter().map(begin).collect(),
            now: 0,
            look_at: IDLE,
            ttls: Vec::new(),
            ghosts: Vec::new(),
            machines,
            plan,
            log,
        };
        if world.plan.copies().is_some() {
            world.copy_from(0, 0);
        }
        world
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
    pub(super) fn step(&mut self) {
        while let Some(place) = self.due.iter().position(|(at, ..)| *at <= self.now) {
            let (_, server, due) = self.due.remove(place);
            self.act(server, due);
        }
        let next = self.due.iter().map(|(at, ..)| *at).min();
        let mut quiet = true;
        for node in &self.nodes {
            let mut net = node.net.lock();
            net.now = self.now;
            net.arrive();
            quiet &= net.is_quiet();
        }
        let window = match quiet {
            true => LEAP.min(next.unwrap_or(Ms::MAX) - self.now),
            false => 1,
        };
        for (machine, paused) in self.machines.iter_mut().zip(&self.paused) {
            match paused {
                true => machine.still += window,
                false => machine.run(self.now, window),
            }
        }
        self.now += window;
        self.copy_along();
        for server in 0..self.nodes.len() {
            if !self.nodes[server].stands {
                self.serve(server);
            }
        }
        if self.now >= self.look_at {
            self.look_at = self.now + IDLE;
            self.look_at_idle();
            self.look_at_ttls();
        }
    }

    /// Has a server run what has arrived.
    fn serve(&mut self, at: usize) {
        let now = self.now;
        let name = self.name(at);
        let Node {
            net,
            server,
            sights,
            each,
            busy,
            ..
        } = &mut self.nodes[at];
        let mut sights = match &mut self.cluster {
            // What it does not know yet that it has not got any more is not looked at.
            Some(roles) => roles.is_master(at).then_some(&mut roles.sights),
            None => Some(sights),
        };
        server.at(now);
        let mut net = net.lock();
        net.now = now;
        let mut lines = Vec::new();
        let mut ran = false;
        if let Some(sights) = sights.as_mut().filter(|sights| sights.is_due(now)) {
            sights.look(server, &self.log, now, true);
        }
        // One message after the other, so that no state of a queue goes unseen.
        loop {
            if std::mem::take(&mut server.changed)
                && let Some(sights) = &mut sights
            {
                sights.look(server, &self.log, now, false);
            }
            let mut tell = |host, text| lines.push(format!("h{host}{name}{text}"));
            if *busy > now || !server.run_one(&mut net, &mut tell) {
                break;
            }
            *busy = now + *each;
            ran = true;
            let calls = server.ran.drain(..);
            if self.plan.flood.is_none() {
                let history = &mut self.log.lock().history;
                let sight = history.sights.len() + history.server_sights.len();
                history.ran.extend(calls.map(|words| Ran {
                    at: now,
                    server: at,
                    sight,
                    words,
                }));
            }
        }
        let mut tell = |host, text| lines.push(format!("h{host}{name}{text}"));
        server.answer_waits(&mut net, &mut tell);
        let cut = std::mem::take(&mut net.cut);
        drop(net);
        let published = server.published();
        self.pass_on(at, &published);
        for (host, lasts) in cut {
            self.strike(Some(at), Some(host), lasts);
        }
        if ran {
            let mut written = self.log.lock();
            written
                .lines
                .extend(lines.into_iter().map(|text| (now, text)));
        }
    }

    /// What a server is called in the time line, where there are several.
    pub(super) fn name(&self, server: usize) -> String {
        match self.nodes.len() {
            1 => String::new(),
            _ => format!(" s{server}"),
        }
    }

    fn end(&mut self) {
        for machine in &mut self.machines {
            machine.forget_clients();
            machine.stop();
        }
    }
}
