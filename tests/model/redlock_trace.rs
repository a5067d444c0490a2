//! Runs of the simulation with `RedLock`s: what ran at each server has to do there what the step of the model
//! does, and a guard that says that it is valid has to hold the lock in the model.

use std::collections::BTreeMap;

use tests::history::{End as How, History, Sight};
use tests::sim::{Thing, run};

use crate::redlock::{RedLock, State, Step, Step::*};
use crate::rlock::Does::{self, Acquire, Lengthen, Release as GiveBack};
use crate::trace::{When, call, plan, when_ran, when_seen};

/// The servers answer as soon as they are there again.
const MODEL: RedLock = RedLock {
    silence: 0,
    restarts: u32::MAX,
    bug: None,
};
const SEEDS: std::ops::Range<u64> = 0..150;

/// What is seen of a lock.
enum Seen<'a> {
    /// This server ran a [`call`].
    Ran(usize, (&'a str, Does, u32, bool)),
    /// The key at this server.
    Sight(usize, &'a Sight),
    /// A guard of this client said that it was valid.
    Valid(usize),
    /// A step, and what it is called.
    Did(usize, Step, &'static str),
}

/// A lock in the model. A client there is an acquisition, with all owners that its guard has named; and one is
/// each other owner.
struct Replay<'a> {
    clients: BTreeMap<&'a str, usize>,
    /// Which owner has the part of each server, or had it last.
    owners: Vec<&'a str>,
    state: State,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History, servers: usize) -> Self {
        let parts = history.parts.iter();
        Self {
            clients: parts.map(|part| (&*part.owner, part.acquisition)).collect(),
            owners: vec![""; servers],
            state: State::new(servers, history.acquisitions.len()),
        }
    }

    fn step(&mut self, at: usize, step: Step) {
        MODEL.step(&mut self.state, at, step);
    }

    fn holder(&self, server: usize) -> Option<usize> {
        self.state.servers[server].key.map(|(at, _)| at)
    }

    /// Does in the model what a server ran, and names it.
    fn follow(
        &mut self,
        server: usize,
        (owner, does, lease, is_plain): (&'a str, Does, u32, bool),
    ) -> &'static str {
        let new = self.state.clients.len();
        let at = *self.clients.entry(owner).or_insert(new);
        if at == new {
            self.state.join();
        }
        let (holder, holds) = (self.holder(server), self.state.clients[at].holds);
        let (step, name, other) = match does {
            // The model knows one owner of a client; and plain commands change no key of another.
            _ if holder == Some(at) && self.owners[server] != owner => return "refused",
            Acquire if is_plain && holder.is_some() => return "refused",
            Acquire if holds => (Ask(server, lease), "repaired", "refused"),
            Acquire => (Ask(server, lease), "granted", "refused"),
            Lengthen => (Renew(server, lease), "renewed", "told of a loss"),
            GiveBack => (Release(server), "released", "repeated"),
        };
        if holds && does != Lengthen {
            self.step(at, Doubt(server));
        }
        self.step(at, step);
        if [holder, self.holder(server)].contains(&Some(at)) {
            self.owners[server] = owner;
            return name;
        }
        other
    }

    /// Does in the model what was seen. An error says how they differ.
    fn see(&mut self, seen: &Seen<'a>) -> Result<&'static str, String> {
        match *seen {
            Seen::Ran(server, call) => Ok(self.follow(server, call)),
            Seen::Did(at, step, name) => {
                self.step(at, step);
                Ok(name)
            }
            Seen::Sight(server, sight) => {
                let seen = sight.holders.first().map(|(owner, _)| &**owner);
                let owner = self.holder(server).map(|_| self.owners[server]);
                let other = || format!("{server}: {sight:?}, and in the model {owner:?}");
                (owner == seen).then_some("seen").ok_or_else(other)
            }
            Seen::Valid(at) => {
                let client = &self.state.clients[at];
                let other = || format!("{at} is valid, and in the model {client:?}");
                client.holds.then_some("valid").ok_or_else(other)
            }
        }
    }
}

/// What was seen of a lock, in order.
fn seen<'a>(history: &'a History, key: &str) -> Vec<(When, Seen<'a>)> {
    let mut all = Vec::new();
    for (place, ran) in history.ran.iter().enumerate() {
        let call = call(&ran.words, key);
        all.extend(call.map(|call| (when_ran(ran, place), Seen::Ran(ran.server, call))));
    }
    for (place, (server, sight)) in history.server_sights.iter().enumerate() {
        if sight.key == key {
            all.push((when_seen(sight, place), Seen::Sight(*server, sight)));
        }
    }
    for (server, wiped) in &history.wiped_servers {
        if wiped.key.as_ref().is_none_or(|of| of == key) {
            let restart = Seen::Did(0, Restart(*server), "forgotten");
            all.push(((wiped.at, 2, 0), restart));
        }
    }
    for (at, one) in history.acquisitions.iter().enumerate() {
        let Some(grant) = one.grant.as_ref().filter(|_| one.key == key) else {
            continue;
        };
        all.push(((grant.at, 0, 0), Seen::Did(at, Win, "won")));
        let parts = history.parts.iter().filter(|part| part.acquisition == at);
        let moments = parts.map(|part| part.from).chain([grant.believed]);
        all.extend(moments.map(|moment| ((moment, 0, 1), Seen::Valid(at))));
        if let Some((moment, How::Released)) = grant.ended {
            all.push(((moment, 0, 2), Seen::Did(at, End, "ended")));
        }
    }
    all.sort_by_key(|(when, _)| *when);
    all
}

#[test]
fn the_servers_of_a_redlock_do_what_those_of_the_model_do() {
    let mut matched = BTreeMap::new();
    for mut plan in SEEDS.filter_map(|seed| plan(seed, Thing::RedLock)) {
        // All clocks of the model are one.
        plan.terms.skew = [0; 3];
        let history = run(&plan).history;
        for (place, thing) in plan.things.iter().enumerate() {
            let mut replay = Replay::new(&history, plan.servers());
            let mut now = 0;
            for ((at, ..), seen) in seen(&history, &thing.key(place)) {
                replay.step(0, Pass(u32::try_from(at - now).expect("a short run")));
                now = at;
                let name = replay.see(&seen);
                let name = name.unwrap_or_else(|why| panic!("seed {}, {at} ms: {why}", plan.seed));
                *matched.entry(name).or_insert(0) += 1;
            }
        }
    }
    // A trace in which nothing happens proves nothing.
    for name in ["granted", "refused", "released", "renewed", "valid", "won"] {
        assert!(matched.get(name) > Some(&100), "{name}: {matched:?}");
    }
    for name in ["forgotten", "repaired", "repeated", "told of a loss"] {
        assert!(matched.get(name) > Some(&10), "{name}: {matched:?}");
    }
}
