//! Runs of the simulation with fair locks: each script that Redis ran has to leave the lock and the queue as
//! the script of the model does.

use std::collections::BTreeMap;

use tests::history::{History, Sight};
use tests::sim::{Plan, Thing, Trouble, run};

use crate::fair::{Fair, State, lengthen};
use crate::trace::{When, keys_and_rest, plan, when_ran, when_seen};

const SEEDS: std::ops::Range<u64> = 0..60;

/// What is seen of a fair lock.
enum Seen<'a> {
    /// Redis ran a script, with these words behind the keys, of which the lock is at this place.
    Ran(&'a [String], usize, usize),
    /// The key and the queue.
    Sight(&'a Sight),
    /// A guard of this owner said that it was valid.
    Valid(&'a str),
}

/// A fair lock in the model.
struct Replay<'a> {
    clients: Vec<&'a str>,
    owners: Vec<String>,
    model: Fair,
    state: State,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History) -> Self {
        let clients = history.clients.iter();
        let clients: Vec<_> = clients.map(|(client, _)| &**client).collect();
        let mut model = Fair::new(None);
        model.of.clear();
        let mut state = State::default();
        state.heard = vec![0; clients.len()];
        Self {
            clients,
            owners: Vec::new(),
            model,
            state,
        }
    }

    fn process(&self, client: &str) -> Option<usize> {
        self.clients.iter().position(|one| *one == client)
    }

    /// The place of an owner in the model.
    fn owner(&mut self, owner: &str) -> usize {
        let known = self.owners.iter().position(|one| one == owner);
        known.unwrap_or_else(|| {
            let (client, _) = owner.rsplit_once(':').expect("an owner");
            let process = self.process(client).expect("a client");
            self.model.of.push(process);
            self.owners.push(owner.to_owned());
            self.owners.len() - 1
        })
    }

    /// Does in the model what Redis ran, by the form of its words (`docs/protocol.md`), and names it.
    fn follow(&mut self, words: &[String], place: usize, keys: usize) -> &'static str {
        let number = |word: &String| word.parse::<u32>().expect("a number");
        if words.len() == 5 * keys {
            // `renew`, and `rlock_update`, whose words are the same there.
            let at = self.owner(&words[5 * place + 1]);
            lengthen(&mut self.state, at, number(&words[5 * place]));
            return "renewed";
        }
        if let Some(process) = self.process(&words[2]) {
            let mut rest = &words[3..];
            let mut next = |count: usize| rest.split_off(..count).expect("words");
            for _ in 0..place / 4 {
                let of = next(5);
                next((number(&of[3]) + number(&of[4])) as usize);
            }
            let of = next(5);
            let gone = next(number(&of[3]) as usize).iter();
            let gone = gone.map(|number| self.owner(&format!("{}:{number}", words[2])));
            let gone: Vec<_> = gone.collect();
            let alive = number(&of[2]);
            self.model.beat(&mut self.state, process, alive, &gone);
            return "beat";
        }
        if words.len() == 8 {
            let at = self.owner(&words[5]);
            let terms = [&words[4], &words[6]].map(number);
            let [lease, alive] = terms;
            return match self.model.acquire(&mut self.state, at, lease, alive) {
                true => "acquired",
                false => "refused",
            };
        }
        assert!(words.len() % 2 == 1 && words.len() <= 13, "{words:?}");
        let at = self.owner(&words[4]);
        let named = words[5..].chunks(2);
        let named = named.map(|one| (self.owner(&one[0]), number(&one[1])));
        let named: Vec<_> = named.collect();
        self.model.release(&mut self.state, at, &named);
        match self.state.key {
            Some((next, _)) if named.iter().any(|(one, _)| *one == next) => "given",
            _ => "released",
        }
    }

    /// Does in the model what was seen. An error says how they differ.
    fn see(&mut self, seen: &Seen<'_>) -> Result<&'static str, String> {
        let name = |at: &usize| &self.owners[*at];
        let holder = self.state.key.as_ref().map(|(holder, _)| name(holder));
        match seen {
            Seen::Ran(words, place, keys) => {
                let name = self.follow(words, *place, *keys);
                let passed = || format!("passed by another: {words:?}");
                (!self.state.passed).then_some(name).ok_or_else(passed)
            }
            Seen::Sight(sight) => {
                let queue: Vec<_> = self.state.queue.iter().map(name).collect();
                let seen = sight.holders.first().map(|(owner, _)| owner);
                let is_same = holder == seen && queue.iter().copied().eq(&sight.queue);
                let other = || format!("{sight:?}, and in the model {holder:?}, {queue:?}");
                is_same.then_some("seen").ok_or_else(other)
            }
            Seen::Valid(owner) => {
                let is_its = holder.is_some_and(|holder| holder == owner);
                let other = || format!("{owner} is valid, and in the model {holder:?}");
                is_its.then_some("valid").ok_or_else(other)
            }
        }
    }
}

/// What was seen of a fair lock, in order.
fn seen<'a>(history: &'a History, key: &str) -> Vec<(When, Seen<'a>)> {
    let mut all = Vec::new();
    for (place, ran) in history.ran.iter().enumerate() {
        let (keys, words) = keys_and_rest(&ran.words);
        let at = keys.iter().position(|one| one == key);
        // A script without other words only looks.
        let at = at.filter(|_| !words.is_empty());
        all.extend(at.map(|at| (when_ran(ran, place), Seen::Ran(words, at, keys.len()))));
    }
    for (place, sight) in history.sights.iter().enumerate() {
        if sight.key == key {
            all.push((when_seen(sight, place), Seen::Sight(sight)));
        }
    }
    let grants = history.acquisitions.iter().filter(|one| one.key == key);
    for grant in grants.filter_map(|one| one.grant.as_ref()) {
        let moments = [grant.at, grant.believed];
        all.extend(moments.map(|at| ((at, 0, 0), Seen::Valid(&grant.owner))));
    }
    all.sort_by_key(|(when, _)| *when);
    all
}

/// A plan like that of a seed, of fair locks alone, of which nothing is forgotten.
fn fair_plan(seed: u64) -> Option<Plan> {
    let mut plan = plan(seed, Thing::Fair)?;
    plan.faults.retain(|fault| {
        use Trouble::{CrashServer, Evict, Flush};
        let forgets = matches!(fault.what, Flush | Evict { .. });
        !forgets && !matches!(fault.what, CrashServer { keeps: false, .. })
    });
    Some(plan)
}

#[test]
fn the_queue_of_the_library_is_that_of_the_model() {
    let mut matched = BTreeMap::new();
    for plan in SEEDS.filter_map(fair_plan) {
        let history = run(&plan).history;
        for (place, thing) in plan.things.iter().enumerate() {
            let mut replay = Replay::new(&history);
            let mut now = 0;
            for ((at, ..), seen) in seen(&history, &thing.key(place)) {
                let passed = u32::try_from(at - now).expect("a short run");
                replay.model.pass(&mut replay.state, passed);
                now = at;
                let name = replay.see(&seen);
                let name = name.unwrap_or_else(|why| panic!("seed {}, {at} ms: {why}", plan.seed));
                *matched.entry(name).or_insert(0) += 1;
            }
        }
    }
    // A trace in which nothing happens proves nothing.
    for name in [
        "acquired", "beat", "given", "seen", "refused", "released", "valid",
    ] {
        assert!(matched.get(name) > Some(&100), "{name}: {matched:?}");
    }
    assert!(matched.get("renewed") > Some(&10), "{matched:?}");
}
