//! Runs of the simulation, step by step in the model of the `RLock`: the model has to allow what the library
//! and its scripts do.
//!
//! What Redis ran and what guards said is seen. What clients sent and read is not. So each holder is in a set
//! of states: all those of the model that are possible after what was seen.

use std::collections::{BTreeMap, HashSet};

use tests::history::{End as How, History, Ms, Ran, Sight};
use tests::sim::{Ending, Meanwhile, Plan, Step as Planned, Thing, Trouble, run};

use crate::rlock::Step::*;
use crate::rlock::{CALL, Client, Does, Does::*, Key, Phase, RENEWAL, RLock, STALE, State, Step};

const MODEL: RLock = RLock(None);
const SEEDS: std::ops::Range<u64> = 0..60;

/// What is seen of a key, and of whom.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// Redis ran a [`call`].
    Ran(Does, u32, bool),
    /// A guard said that it was valid.
    Valid,
    /// The end of a guard began.
    Ended,
    /// Redis was made to forget the key.
    Forgotten,
    /// Who has the key in Redis.
    Key(Option<String>),
}

/// The moment, and the order of what was seen then.
pub(crate) type When = (Ms, u8, usize);

const MANY: usize = 1_000_000;

/// When a call ran, of those at this place.
pub(crate) fn when_ran(ran: &Ran, place: usize) -> When {
    (ran.at, 1, ran.sight * MANY + place)
}

/// When a key was looked at, behind all calls before that.
pub(crate) fn when_seen(sight: &Sight, place: usize) -> When {
    (sight.at, 1, place * MANY + MANY - 1)
}

/// What was seen of a key, in order: when, of whom, and what.
fn events(history: &History, key: &str) -> Vec<(When, String, Seen)> {
    let mut all = Vec::new();
    for (place, ran) in history.ran.iter().enumerate() {
        let call = call(&ran.words, key);
        all.extend(call.map(|(of, does, lease, is_plain)| {
            let seen = Seen::Ran(does, lease, is_plain);
            (when_ran(ran, place), of.to_owned(), seen)
        }));
    }
    for (place, sight) in history.sights.iter().enumerate() {
        let holder = sight.holders.first().map(|(owner, _)| owner.clone());
        if sight.key == key {
            all.push((when_seen(sight, place), String::new(), Seen::Key(holder)));
        }
    }
    let wiped = history.wiped(key);
    all.extend(wiped.map(|wiped| ((wiped.at, 2, 0), String::new(), Seen::Forgotten)));
    let grants = history.acquisitions.iter().filter(|one| one.key == key);
    for grant in grants.filter_map(|one| one.grant.as_ref()) {
        let mut see = |at, order, seen| all.push(((at, 0, order), grant.owner.clone(), seen));
        see(grant.at, 0, Seen::Valid);
        see(grant.believed, 0, Seen::Valid);
        if let Some((at, How::Released)) = grant.ended {
            see(at, 1, Seen::Ended);
        }
    }
    all.sort_by_key(|(order, ..)| *order);
    all
}

/// For whom a call is, what it does to a key, for so long a lease, and whether it is a plain command in place of
/// a script; by the form of its words (`docs/protocol.md`).
pub(crate) fn call<'a>(words: &'a [String], key: &str) -> Option<(&'a str, Does, u32, bool)> {
    let seen = |of: &'a str, does, lease: &str, is_plain| {
        Some((of, does, lease.parse().expect("a lease"), is_plain))
    };
    match &*words[0] {
        // The owner stands in the serialized hash, behind its length.
        "RESTORE" if words[1] == key => {
            let length = usize::from(words[3].as_bytes()[2]);
            seen(&words[3][3..3 + length], Acquire, &words[2], true)
        }
        "HDEL" if words[1] == key => seen(&words[2], Release, "0", true),
        "EVALSHA" => {
            let (keys, of) = keys_and_rest(words);
            let at = 5 * keys.iter().position(|one| one == key)?;
            match of.len() {
                0 => None,
                2 => seen(&of[1], Acquire, &of[0], false),
                3 => seen(&of[0], Release, "0", false),
                // `renew`, and `rlock_update`, whose words are the same there.
                more if more == 5 * keys.len() => seen(&of[at + 1], Lengthen, &of[at], false),
                _ => panic!("what does {words:?} do?"),
            }
        }
        _ => None,
    }
}

/// The keys of an EVALSHA, and the words behind them; of another command nothing.
pub(crate) fn keys_and_rest(words: &[String]) -> (&[String], &[String]) {
    let count = words.get(2).filter(|_| words[0] == "EVALSHA");
    let count = count.map_or(0, |count| count.parse().expect("a number of keys"));
    words.get(3..).unwrap_or_default().split_at(count)
}

/// What may be of a key, and of all who asked for it.
#[derive(Default)]
struct Replay {
    key: Option<(String, u32)>,
    holders: BTreeMap<String, HashSet<Client>>,
    /// How often what was seen.
    matched: BTreeMap<&'static str, usize>,
}

impl Replay {
    fn has(&self, owner: &str) -> bool {
        self.key.as_ref().is_some_and(|(holder, _)| holder == owner)
    }

    /// A step of a holder, which is the first client of the model; the others are the second.
    fn step(&self, owner: &str, client: &Client, step: Step) -> Option<(Client, Option<Key>)> {
        let holder = (usize::from(!self.has(owner)), 0);
        let key = self.key.as_ref().map(|(_, ttl)| (holder, *ttl, holder));
        let clients = vec![client.clone(), Client::default()];
        let mut state = State { key, clients };
        MODEL.step(&mut state, 0, step)?;
        Some((state.clients.swap_remove(0), state.key))
    }

    /// All that may be of a holder after these steps, in any number and order.
    fn close(&self, owner: &str, from: HashSet<Client>, steps: &[Step]) -> HashSet<Client> {
        let mut open: Vec<Client> = from.iter().cloned().collect();
        let mut all = from;
        while let Some(client) = open.pop() {
            for step in steps {
                let after = self.step(owner, &client, *step).map(|(after, _)| after);
                open.extend(after.filter(|after| all.insert(after.clone())));
            }
        }
        all
    }

    /// Whether the model allows what was seen of a holder. `hidden`: what is not seen and may come before.
    fn see(&mut self, owner: &str, seen: &Seen, hidden: &[Step]) -> bool {
        let new = || HashSet::from([Client::default()]);
        let before = self.holders.remove(owner).unwrap_or_else(new);
        let (mut after, mut keys) = (HashSet::new(), HashSet::new());
        for client in self.close(owner, before, hidden) {
            let runs = |place: &usize| match (&client.calls[*place], seen) {
                (Some(call), Seen::Ran(does, lease, _)) => {
                    (call.does, call.lease) == (*does, *lease)
                }
                _ => false,
            };
            let places = [CALL, RENEWAL, STALE].into_iter();
            let steps: Vec<Step> = match *seen {
                Seen::Ran(..) => places.filter(runs).map(Run).collect(),
                Seen::Ended => vec![End],
                Seen::Forgotten => vec![Forget],
                Seen::Valid if client.left == 0 => vec![],
                Seen::Valid | Seen::Key(_) => vec![Pass(0)],
            };
            let possible = steps
                .iter()
                .filter_map(|step| self.step(owner, &client, *step));
            possible.for_each(|(client, key)| {
                after.insert(client);
                keys.insert(key);
            });
        }
        let is_allowed = keys.len() == 1;
        for key in keys {
            if key.is_none_or(|(holder, ..)| holder.0 == 0) {
                self.key = key.map(|(_, ttl, _)| (owner.to_owned(), ttl));
            }
        }
        // A reply may arrive before the guard is lost, or after that.
        let after = self.close(owner, after, &[Hear(RENEWAL)]);
        self.holders.insert(owner.to_owned(), after);
        is_allowed
    }

    fn pass(&mut self, ticks: u32) {
        for (owner, clients) in std::mem::take(&mut self.holders) {
            let passed = clients
                .iter()
                .filter_map(|one| self.step(&owner, one, Pass(ticks)));
            let passed = passed.map(|(client, _)| client).collect();
            self.holders.insert(owner, passed);
        }
        let is_over = self.key.take_if(|(_, ttl)| *ttl < ticks).is_some();
        *self.matched.entry("expired").or_default() += usize::from(is_over);
        self.key.iter_mut().for_each(|(_, ttl)| *ttl -= ticks);
    }

    /// Does in the model what was seen, and names it; `None`: the model does not allow it.
    fn follow(&mut self, of: &str, seen: &Seen, hidden: &[Step]) -> Option<&'static str> {
        let (is_free, had) = (self.key.is_none(), self.has(of));
        let name = match seen {
            Seen::Key(holder) => {
                let key = self.key.as_ref().map(|(owner, _)| owner);
                return (key == holder.as_ref()).then_some("seen");
            }
            Seen::Forgotten => {
                let holder = self.key.as_ref().map(|(owner, _)| owner.clone());
                let is_done = holder.is_none_or(|holder| self.see(&holder, seen, &[]));
                return is_done.then_some("forgotten");
            }
            // Plain commands that change nothing: the script follows.
            Seen::Ran(Acquire, _, true) if !is_free => return Some("refused"),
            Seen::Ran(Release, _, true) if !had => return Some("repeated"),
            // One of several on their way. Who reads that, and when, is not seen.
            Seen::Ran(Lengthen, ..) if !had => return Some("told of a loss"),
            Seen::Ran(Lengthen, ..) => "renewed",
            Seen::Ran(Release, ..) if had => "released",
            Seen::Ran(Release, ..) => "repeated",
            Seen::Ran(Acquire, ..) if is_free || had => "acquired",
            Seen::Ran(Acquire, ..) => "refused",
            Seen::Valid => "valid",
            Seen::Ended => "ended",
        };
        self.see(of, seen, hidden).then_some(name)
    }

    /// Goes through all that was seen of a key; an error says what the model does not allow.
    fn run(&mut self, history: &History, key: &str) -> Result<(), String> {
        let hidden = |of: &str| {
            let mut clients = history
                .clients
                .iter()
                .filter(|(client, _)| of.starts_with(client));
            let mut crashed = history.crashed.iter().map(|(process, _)| process);
            let died = clients.any(|(_, process)| crashed.any(|of| of == process));
            let calls = [CALL, RENEWAL].map(|place| [Hear(place), Break(place)]);
            let steps = calls.into_iter().flatten().chain([Cancel]);
            steps.chain(died.then_some(Die)).collect::<Vec<_>>()
        };
        let (events, mut now) = (events(history, key), 0);
        for (place, ((at, ..), of, seen)) in events.iter().enumerate() {
            self.pass(u32::try_from(at - now).expect("a short run"));
            now = *at;
            let of_it = |one: &&(When, String, Seen)| one.1 == *of;
            let later = || events[place..].iter().filter(of_it).map(|(.., seen)| seen);
            let ends = |all: &mut dyn Iterator<Item = &Seen>| {
                all.filter(|seen| **seen == Seen::Ended).count()
            };
            if *seen == Seen::Ended && ends(&mut later()) > 1 {
                // The tasks of a process hand it over to each other.
                continue;
            }
            let mut hidden = hidden(of);
            // Of cancelled calls no guard is seen.
            let all = &mut events.iter().filter(of_it).map(|(.., seen)| seen);
            hidden.extend((ends(all) == 0).then_some(End));
            // It may be sent by now.
            let sends = later().filter_map(|seen| match *seen {
                Seen::Ran(Lengthen, lease, _) => Some(Renew(lease)),
                Seen::Ran(_, lease, _) => Some(Ask(lease)),
                _ => None,
            });
            hidden.extend(sends.take(2));
            let name = self.follow(of, seen, &hidden);
            let name = name.ok_or_else(|| format!("{at} ms, {of}, {key}: {seen:?}"))?;
            *self.matched.entry(name).or_default() += 1;
        }
        // In the end all are at rest.
        for (owner, clients) in &self.holders {
            let mut all = self
                .close(owner, clients.clone(), &hidden(owner))
                .into_iter();
            if !all.any(|one| matches!(one.phase, Phase::Idle | Phase::Dead)) {
                return Err(format!("{owner} still has {key}"));
            }
        }
        Ok(())
    }
}

/// A plan like that of a seed, with things of one kind alone, and of faults that a model has; `None`: there is
/// none.
pub(crate) fn plan(seed: u64, thing: Thing) -> Option<Plan> {
    let mut plan = Plan::of_seed(seed);
    let is_small = plan.hosts.len() <= 8 && plan.flood.is_none();
    let is_other = match thing {
        Thing::RedLock => plan.quorum.is_none(),
        _ => plan.servers() > 1,
    };
    if is_other || !is_small || !plan.java.is_empty() {
        return None;
    }
    plan.things.fill(thing);
    for steps in plan.hosts.iter_mut().flatten() {
        steps.retain(|step| match step {
            Planned::Turn(turn) => turn.meanwhile != Meanwhile::Body && turn.end != Ending::Ticket,
            _ => false,
        });
    }
    plan.faults.retain(|fault| {
        use Trouble::{Refuse, Replace, SetClock, SetTtl};
        let others = matches!(fault.what, SetTtl { .. } | SetClock { .. } | Replace { .. });
        !others && !matches!(fault.what, Refuse { .. })
    });
    Some(plan)
}

#[test]
fn what_the_library_does_is_a_run_of_the_model() {
    let mut matched = BTreeMap::new();
    for plan in SEEDS.filter_map(|seed| plan(seed, Thing::Reentrant)) {
        let history = run(&plan).history;
        for (place, thing) in plan.things.iter().enumerate() {
            let mut replay = Replay::default();
            let outcome = replay.run(&history, &thing.key(place));
            assert_eq!(outcome, Ok(()), "seed {}", plan.seed);
            for (name, count) in replay.matched {
                *matched.entry(name).or_insert(0) += count;
            }
        }
    }
    // A trace in which nothing happens proves nothing.
    for name in ["acquired", "ended", "seen", "refused", "released", "valid"] {
        assert!(matched[name] > 300, "{name}: {matched:?}");
    }
    for name in ["expired", "forgotten", "renewed", "repeated"] {
        assert!(matched[name] > 10, "{name}: {matched:?}");
    }
}
