//! What is written down.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The longest pause between two tries to connect.
const LONGEST_PAUSE: Ms = 1000;

/// Milliseconds on the clock that all share.
pub type Ms = u64;

/// What several clients did with what they share.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the run was like.
    pub terms: Terms,
    /// By what Redis knows each process: the part of its owners before the number.
    pub clients: Vec<(String, u32)>,
    /// Clients of another kind. Their own rules are not ours: of them only what they do to others is
    /// judged.
    pub foreign: Vec<Foreign>,
    /// Since when the wall clock of such a client may differ from the server's.
    pub clocks_differ: Option<Ms>,
    /// When the wall clock of such a client was ahead of the server's, after one of them was set.
    pub ahead: Vec<Ahead>,
    /// When another program has set how long which key lives.
    pub ttls: Vec<(Ms, String)>,
    /// All acquisitions, granted or not.
    pub acquisitions: Vec<Acquisition>,
    /// Which of them adopt a ticket.
    pub adoptions: Vec<Adoption>,
    /// The places of a campaign whose leader resigned, and of the next one of the same handle.
    pub resigned: Vec<(usize, usize)>,
    /// The parts of holds on several servers.
    pub parts: Vec<Part>,
    /// What was done with latches.
    pub latches: Vec<LatchCall>,
    /// Calls that wait for nobody else.
    pub calls: Vec<TimedCall>,
    /// What the keys in Redis looked like, whenever one changed.
    pub sights: Vec<Sight>,
    /// The same for keys of a `RedLock`, at each server.
    pub server_sights: Vec<(usize, Sight)>,
    /// The same for keys at each replica that copies from a master.
    pub copies: Vec<(usize, Sight)>,
    /// Which of these stood still, from when until when.
    pub standing: Vec<(usize, Ms, Ms)>,
    /// How many replicas the master has, from when on.
    pub replicas: Vec<(Ms, usize)>,
    /// When whom a fault struck, at the server or, of several, the first.
    pub strikes: Vec<Strike>,
    /// When which process stood still.
    pub pauses: Vec<Pause>,
    /// When which process crashed.
    pub crashed: Vec<(u32, Ms)>,
    /// When which process began to shut its client down.
    pub shut_down: Vec<(u32, Ms)>,
    /// For how long the tasks of which process hand a lock over to each other.
    pub hand_over: Vec<(u32, Ms)>,
    /// What the server forgot although it should not have; of several, the first.
    pub wiped: Vec<Wiped>,
    /// The faults at each server; `None`: at all.
    pub struck_servers: Vec<(Option<usize>, Strike)>,
    /// What each server forgot.
    pub wiped_servers: Vec<(usize, Wiped)>,
    /// The keys whose slots have got another master.
    pub moves: Vec<Moved>,
    /// What nodes of a cluster sent elsewhere.
    pub redirections: Vec<Redirection>,
    /// When a node told a process which epoch of the cluster.
    pub layouts: Vec<(Ms, u32, u64)>,
    /// The words of calls that ran at the nodes of a cluster after its first change.
    pub heard: Vec<Heard>,
    /// The most commands that were on their way to a server on one connection, or waited there.
    pub in_flight: usize,
    /// How many calls for locks the servers have run.
    pub calls_run: usize,
    /// These calls, where the server is not flooded.
    pub ran: Vec<Ran>,
    /// When the run was over.
    pub end: Ms,
}

/// A key has got another master.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Which.
    pub key: String,
    /// The new master.
    pub node: usize,
    /// When it began to leave the old one, or that one failed.
    pub from: Ms,
    /// Since when the new one has it.
    pub at: Ms,
    /// Since when who asks where it is hears of the new one.
    pub told: Ms,
    /// Since when the old one leads nobody on: who does not ask is answered there until then.
    pub followed: Ms,
    /// In which epoch of the cluster.
    pub epoch: u64,
    /// Whether the old one failed.
    pub failed: bool,
    /// Since when what the old one wrote is not known to the new one; `None`: it knows all.
    pub lost: Option<Ms>,
    /// Until when the old one wrote.
    pub until: Ms,
}

/// A node of a cluster did not run a call, and named another one (MOVED).
#[derive(Clone, Copy, Debug)]
pub struct Redirection {
    /// When.
    pub at: Ms,
    /// Whose call.
    pub process: u32,
    /// Which node said so.
    pub node: usize,
    /// Of which slot.
    pub slot: u16,
    /// As of which epoch.
    pub epoch: u64,
}

/// A call ran at a node of a cluster.
#[derive(Clone, Debug)]
pub struct Heard {
    /// When.
    pub at: Ms,
    /// Where.
    pub node: usize,
    /// Its keys and arguments.
    pub words: Vec<String>,
}

/// A call for locks ran at a server.
#[derive(Clone, Debug)]
pub struct Ran {
    /// When.
    pub at: Ms,
    /// Where.
    pub server: usize,
    /// How many of [`History::sights`] and [`History::server_sights`] there were before that.
    pub sight: usize,
    /// Its words.
    pub words: Vec<String>,
}

/// A client of another kind (Redisson), which reads the wall clock of its host.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// By what Redis knows it.
    pub client: String,
    /// Its process.
    pub process: u32,
    /// For how long a waiter of it counts in a fair queue that has no limit to its wait.
    pub wait: Ms,
}

/// The wall clock of a client of another kind is ahead of the server's.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Its process.
    pub process: u32,
    /// Since when.
    pub from: Ms,
    /// Until when.
    pub until: Ms,
}

/// What a run was like, as far as the rules ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// The longest way of a message, one way.
    pub latency: Ms,
    /// How long the waiters of a silent client count as alive.
    pub waiter_timeout: Ms,
    /// The bound of a call that waits for nobody.
    pub response: Ms,
    /// How long one of several servers may take to answer a call for a lock on them.
    pub server: Ms,
    /// The bound of connecting.
    pub connect: Ms,
    /// The longest time after which a waiter that heard nothing looks by itself.
    pub poll: Ms,
    /// The longest time after which a waiter looks to whom nothing is announced.
    pub backoff: Ms,
    /// The longest time for which a client leaves a lock to others that listen to it.
    pub yields: Ms,
    /// By how many in a hundred thousand any clock may be fast or slow.
    pub skew: Ms,
    /// Whether nobody may end a connection that is lost, so that what it sent may run later.
    pub keeps_lost_connections: bool,
    /// Whether the server's clock may be set back.
    pub sets_clock_back: bool,
    /// Whether the server may forget scripts.
    pub forgets_scripts: bool,
    /// Whether all want one thing all the time, and nothing goes wrong.
    pub throng: bool,
    /// More is wanted than the server can serve.
    pub flood: Option<Flood>,
    /// How long replicas are waited for.
    pub replicas: Ms,
    /// How long a write takes at most on its way to one of them.
    pub copying: Ms,
}

impl Terms {
    /// What a clock may show for so long at most.
    pub(super) fn slow(&self, time: Ms) -> Ms {
        time + (time * self.skew).div_ceil(100_000)
    }

    /// By how much two clocks may differ after so long.
    pub(super) fn drift(&self, time: Ms) -> Ms {
        (2 * time * self.skew).div_ceil(100_000)
    }
}

/// More is wanted than a server can serve.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Since when what it serves is judged.
    pub from: Ms,
    /// Until when.
    pub until: Ms,
    /// How long its commands for one turn take.
    pub turn: Ms,
}

/// Who may hold it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One.
    Exclusive,
    /// All that share, and nobody else.
    Shared,
    /// So many of so many.
    Permits {
        /// How many this one takes.
        taken: u32,
        /// How many there are.
        limit: u32,
    },
    /// One, who has most of so many servers.
    Majority(usize),
}

/// How many replicas must have a lock before it is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ack {
    /// This many.
    AtLeast(u32),
    /// So many that most of the servers have it.
    Majority,
    /// All; at least one.
    All,
}

impl Ack {
    /// How many, where the master has so many.
    pub fn wanted(self, replicas: usize) -> usize {
        match self {
            Self::AtLeast(wanted) => wanted as usize,
            Self::Majority => replicas.div_ceil(2).max(1),
            Self::All => replicas.max(1),
        }
    }
}

/// One call for a lock or for permits, and the hold that came of it.
#[derive(Clone, Debug)]
pub struct Acquisition {
    /// The process that called.
    pub process: u32,
    /// What was asked for.
    pub key: String,
    /// How.
    pub mode: Mode,
    /// Whether waiters are told of a release, rather than look now and then.
    pub announced: bool,
    /// When it was called.
    pub called: Ms,
    /// For how long it was to wait at most; 0: not at all.
    pub bound: Option<Ms>,
    /// How many replicas must have it, before it is given out.
    pub ack: Option<Ack>,
    /// When and how it ended; `None` where the run ended before.
    pub returned: Option<(Ms, Outcome)>,
    /// What was given out.
    pub grant: Option<Grant>,
}

/// A call that adopts a hold from a ticket.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The hold that the ticket names.
    pub owner: String,
    /// The place of the call in the history.
    pub acquisition: usize,
}

/// A part of a hold on several servers: the hold on one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of which hold: the place of its acquisition in the history.
    pub acquisition: usize,
    /// Who holds it, as that server knows it.
    pub owner: String,
    /// Since when the guard was seen to count it.
    pub from: Ms,
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was given out.
    Granted,
    /// Somebody else had it, and the call was not to wait.
    Refused,
    /// The wait was over.
    TimedOut,
    /// It was had, and too few replicas had it in time.
    NotReplicated {
        /// How many were to have it.
        wanted: u32,
        /// How many were said to.
        got: u32,
    },
    /// Another error, in words.
    Failed(String),
    /// The caller dropped it.
    Cancelled,
    /// Its process ended.
    Died,
}

/// What was given out.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Who holds it, as Redis knows it.
    pub owner: String,
    /// When the caller had it.
    pub at: Ms,
    /// The last moment at which the guard was seen to say that it is held.
    pub believed: Ms,
    /// The fencing token.
    pub token: Option<u64>,
    /// How long it lives without renewal; `None`: for ever.
    pub lease: Option<Ms>,
    /// The longest time that was asked for since.
    pub lengthened: Ms,
    /// Whether the lease is renewed for as long as the guard lives.
    pub renewed: bool,
    /// When the guard was first seen to say that it is lost.
    pub lost: Option<Ms>,
    /// When it was taken once more.
    pub again: Vec<Again>,
    /// When its end began, and how.
    pub ended: Option<(Ms, End)>,
}

/// A hold that was taken once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// When that was called.
    pub called: Ms,
    /// When the second guard was had, if it was.
    pub at: Option<Ms>,
    /// When the end of the second guard began.
    pub ended: Option<Ms>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was released and the answer awaited, or its guard dropped.
    Released,
    /// Nobody released it: its lease ends it, if it has one.
    Left,
}

/// One call on a latch.
#[derive(Clone, Debug)]
pub struct LatchCall {
    /// The process that called.
    pub process: u32,
    /// The latch.
    pub key: String,
    /// When it was called.
    pub called: Ms,
    /// What was done.
    pub act: LatchAct,
    /// When it was over, in whatever way; `None` where the run ended before.
    pub over: Option<Ms>,
    /// When it returned without an error, and the number that it returned: what is left of the
    /// count, or for a look, what it saw.
    pub returned: Option<(Ms, u64)>,
}

/// What is done with a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchAct {
    /// Gave it this count.
    Set(u64),
    /// Counted down by one.
    CountDown,
    /// Waited until it opened.
    Wait,
    /// Looked at its count.
    Look,
    /// Waited at a barrier; the number is the generation that it passed.
    Arrive {
        /// How many it needs.
        parties: u64,
        /// How long one that died counts.
        lease: Ms,
    },
    /// Started what is to be done once; the number is that of what came of it, as [`Started`] has it.
    Start {
        /// How many attempts there are; 0: any number.
        most: u32,
        /// That of the attempt.
        lease: Ms,
    },
    /// Marked that as done.
    Mark,
}

/// What comes of starting what is to be done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The caller runs it.
    Begun,
    /// Another one does.
    Running,
    /// It was done.
    Done,
    /// It was begun too often.
    Failed,
}

/// A call that waits for nobody else.
#[derive(Clone, Debug)]
pub struct TimedCall {
    /// The process that called.
    pub process: u32,
    /// What was asked for, in words.
    pub what: String,
    /// When it was called.
    pub called: Ms,
    /// How long it may take.
    pub bound: Ms,
    /// How much of that a process needs that stood still meanwhile, when it goes on.
    pub rest: Ms,
    /// When it returned; `None` where its process ended before, or the run, or it was cancelled.
    pub returned: Option<Ms>,
}

/// A key as it stood in Redis, until the next sight of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// When.
    pub at: Ms,
    /// Of what.
    pub key: String,
    /// The owners that are queued, first to last, for a fair lock.
    pub queue: Vec<String>,
    /// Who holds it, and the count of the hold.
    pub holders: Vec<(String, u32)>,
    /// Whether it is held for reading.
    pub shared: bool,
    /// Whether this was brought about by the end of a lease, of which nobody is told.
    pub expired: bool,
    /// How many permits are free, or how far a latch has to be counted down.
    pub number: Option<u64>,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Strike {
    /// When it began.
    pub from: Ms,
    /// When it was over. What follows from it may last longer; the rules know how long.
    pub until: Ms,
    /// The process that it struck; `None`: all of them.
    pub process: Option<u32>,
    /// For how long a process may not know that one of its connections leads nowhere.
    pub unheard: Ms,
    /// It is over at once, and all that it did is in [`History::wiped`].
    pub only_wipes: bool,
}

/// A process stood still, timers and all.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// Which.
    pub process: u32,
    /// When it began.
    pub from: Ms,
    /// When it was over.
    pub until: Ms,
}

/// Redis forgot something.
#[derive(Clone, Debug)]
pub struct Wiped {
    /// When.
    pub at: Ms,
    /// Until when somebody may have been asked who still knew it: a server that was replaced, and
    /// to which connections still led. The same as `at` where there was none.
    pub until: Ms,
    /// What; `None`: everything.
    pub key: Option<String>,
}

impl Grant {
    /// How long it lives at most without renewal; `None`: for ever.
    pub fn longest(&self) -> Option<Ms> {
        self.lease.map(|lease| lease.max(self.lengthened))
    }
}

impl History {
    /// How long what a fault left may keep anybody waiting, once the fault is over: the longest
    /// lease, the waiter time-out, and the time to find a broken connection and to make another.
    pub fn recovery(&self) -> Ms {
        let leases = self.acquisitions.iter();
        let leases = leases.filter_map(|one| one.grant.as_ref()?.longest());
        let terms = &self.terms;
        let reconnect = terms.response + terms.connect + LONGEST_PAUSE;
        terms.slow(leases.max().unwrap_or(0) + terms.waiter_timeout + terms.poll + reconnect)
    }

    /// The faults that struck this process, or all, and whose consequences lasted into that time.
    pub fn struck(&self, process: u32, from: Ms, until: Ms) -> impl Iterator<Item = &Strike> {
        let recovery = self.recovery();
        self.strikes.iter().filter(move |strike| {
            strike.process.is_none_or(|struck| struck == process)
                && strike.from <= until
                && from <= strike.until + recovery
        })
    }

    /// Whether no fault struck this process in that time, or shortly before.
    pub fn is_calm(&self, process: u32, from: Ms, until: Ms) -> bool {
        self.struck(process, from, until).next().is_none()
    }

    /// Whether nothing kept this process from renewing its holds in that time, or shortly before; that Redis
    /// forgot something does not.
    pub fn is_well(&self, process: u32, from: Ms, until: Ms) -> bool {
        let shut = |(of, at): &(u32, Ms)| *of == process && *at <= until;
        let mut struck = self.struck(process, from, until);
        struck.all(|strike| strike.only_wipes)
            && self.stood_until(process, from, until).is_none()
            && !self.shut_down.iter().any(shut)
    }

    /// When the last pause ended in which this process stood still in that time.
    pub fn stood_until(&self, process: u32, from: Ms, until: Ms) -> Option<Ms> {
        let of = self.pauses.iter().filter(|pause| pause.process == process);
        let during = of.filter(|pause| pause.from <= until && from <= pause.until);
        during.map(|pause| pause.until).max()
    }

    /// When Redis forgot this key.
    pub fn wiped(&self, key: &str) -> impl Iterator<Item = &Wiped> {
        let of_key = move |wiped: &&Wiped| wiped.key.as_deref().is_none_or(|of| of == key);
        self.wiped.iter().filter(of_key)
    }

    /// Until when this one lets others win, if its leader has resigned before.
    pub(super) fn stands_aside(&self, one: &Acquisition) -> Ms {
        let is_it = |(_, next): &(usize, usize)| std::ptr::eq(&self.acquisitions[*next], one);
        match self.resigned.iter().any(is_it) {
            true => one.called + self.terms.slow(self.terms.poll),
            false => 0,
        }
    }

    /// When this key got another master.
    pub fn moved(&self, key: &str) -> impl Iterator<Item = &Moved> {
        self.moves.iter().filter(move |moved| moved.key == key)
    }

    /// The keys that were asked for, each once.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        self.acquisitions.iter().map(|one| &*one.key).collect()
    }

    /// The acquisitions of a key.
    pub(super) fn of_key(&self, key: &str) -> Vec<&Acquisition> {
        let all = self.acquisitions.iter();
        all.filter(|one| one.key == key).collect()
    }

    /// The calls on latches that do this, of each key.
    pub(super) fn latch_calls(
        &self,
        is_one: impl Fn(LatchAct) -> bool,
    ) -> BTreeMap<&str, Vec<&LatchCall>> {
        let mut calls = BTreeMap::<&str, Vec<&LatchCall>>::new();
        for call in self.latches.iter().filter(|call| is_one(call.act)) {
            calls.entry(&call.key).or_default().push(call);
        }
        calls
    }

    /// The keys that were looked at, each once.
    pub(super) fn seen_keys(&self) -> BTreeSet<&str> {
        self.sights.iter().map(|sight| &*sight.key).collect()
    }

    /// What a key looked like, each sight with the time of the next one.
    pub(super) fn states(&self, key: &str) -> Vec<(&Sight, Ms)> {
        let of_key = self.sights.iter().filter(|sight| sight.key == key);
        self.until_next(of_key.collect())
    }

    /// Each of these sights of a key with the time of the next one.
    pub(super) fn until_next<'a>(&self, sights: Vec<&'a Sight>) -> Vec<(&'a Sight, Ms)> {
        let ends = sights.iter().skip(1).map(|sight| sight.at);
        let ends: Vec<Ms> = ends.chain([self.end]).collect();
        sights.into_iter().zip(ends).collect()
    }

    /// The process of an owner; `None` for one that is not known.
    pub(super) fn process_of(&self, owner: &str) -> Option<u32> {
        let (client, _) = owner.split_once(':')?;
        let known = self.clients.iter().find(|(name, _)| name == client);
        let foreign = self.foreign.iter().find(|one| one.client == client);
        known
            .map(|(_, process)| *process)
            .or_else(|| foreign.map(|one| one.process))
    }

    /// Whether a process has a client of another kind.
    pub(super) fn is_foreign(&self, process: u32) -> bool {
        self.foreign.iter().any(|one| one.process == process)
    }

    /// What clients of another kind had of this key.
    pub(super) fn had_by_foreign(&self, key: &str) -> impl Iterator<Item = &Acquisition> {
        let all = self.acquisitions.iter().filter(move |one| one.key == key);
        all.filter(|one| one.grant.is_some() && self.is_foreign(one.process))
    }

    /// Whether a fault struck a process at any time, other than that Redis forgot something.
    pub(super) fn was_struck(&self, process: u32) -> bool {
        let mut of = self.strikes.iter().filter(|strike| !strike.only_wipes);
        of.any(|strike| strike.process.is_none_or(|struck| struck == process))
    }
}
