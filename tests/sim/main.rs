//! The library on a simulated network. Many more seeds: `cargo run --release -p tests --bin sim`.

mod regressions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{LazyLock, Mutex, PoisonError};

use tests::history::{Grant, History, Mode, Outcome};
use tests::sim::{Plan, Report, run};
use tests::{each_seed, lock};

/// Seeds that are run in every build.
const SEEDS: std::ops::Range<u64> = 0..100;
/// Up to here those that have replicas are run, too: there are few of them.
const WITH_REPLICAS: u64 = 300;

/// Seeds that are run again. 23, 28 and 60 end runtimes, whose clocks the next ones take over. 6, 9, 10, 18 and 28
/// have several servers, 1, 27 and 38 a cluster, 3 and 20 sentinels, 30 replicas that copy.
const AGAIN: [u64; 15] = [1, 3, 6, 9, 10, 11, 18, 20, 23, 25, 27, 28, 30, 38, 60];

/// A simulation in which nothing happens proves nothing: what happens in these runs, more often than this.
const HAPPENS: &[(&str, usize)] = &[
    ("a lock was had", 500),
    ("a lock was had after a wait", 100),
    ("a call was cancelled", 50),
    ("a hold had a token", 25),
    ("a majority of 3 had a RedLock", 50),
    ("a majority of 5 had a RedLock", 50),
    ("a RedLock was given a part again", 3),
    ("replicas were waited for", 100),
    ("a hold was given out with its replicas", 40),
    ("a hold was refused without its replicas", 20),
    ("a replica stood still", 3),
    (
        "a cluster's hold outlasted that its key got another master",
        5,
    ),
    ("a cluster's master failed with what it had", 1),
    ("a cluster's master failed and lost something", 3),
    ("MOVED", 5),
    ("ASK", 5),
    ("TRYAGAIN", 5),
    ("CLUSTERDOWN", 5),
    (
        "a watched hold outlasted that its key got another master",
        5,
    ),
    ("a sentinel named another master", 10),
    ("a call met a master that is one no more", 3),
    ("there were two masters for a while", 3),
    ("Redisson had a lock", 100),
    ("Redisson and this library took turns", 50),
];

/// What happened in all runs.
#[derive(Default)]
struct Seen {
    broken: Vec<String>,
    counts: BTreeMap<String, usize>,
    /// The time lines of the seeds that are run again.
    lines: BTreeMap<u64, Vec<String>>,
}

static SEEN: LazyLock<Seen> = LazyLock::new(|| {
    let seen = Mutex::new(Seen::default());
    each_seed(SEEDS.start..WITH_REPLICAS, |seed| {
        let plan = Plan::of_seed(seed);
        if !SEEDS.contains(&seed) && !has_replicas(&plan) {
            return ControlFlow::Continue(());
        }
        let report = run(&plan);
        let mut seen = lock(&seen);
        seen.add(&plan, &report);
        if AGAIN.contains(&seed) {
            seen.lines.insert(seed, report.lines);
        }
        ControlFlow::Continue(())
    });
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
});

#[test]
fn no_seed_breaks_a_rule() {
    assert!(
        SEEN.broken.is_empty(),
        "see `cargo run --release -p tests --bin sim -- --seed N --trace`:\n{}",
        SEEN.broken.join("\n")
    );
}

#[test]
fn what_is_to_be_judged_happens() {
    let seldom = HAPPENS.iter().filter_map(|(what, least)| {
        let count = SEEN.counts.get(*what).copied().unwrap_or(0);
        (count <= *least).then(|| format!("{what}: {count} times"))
    });
    assert_eq!(seldom.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn one_seed_is_one_history() {
    for seed in AGAIN {
        // Other seeds ran on this thread or beside it meanwhile.
        let (first, again) = (&SEEN.lines[&seed], run(&Plan::of_seed(seed)).lines);
        let place = first
            .iter()
            .zip(&again)
            .position(|(one, other)| one != other);
        let place = place.unwrap_or_else(|| first.len().min(again.len()));
        assert_eq!(
            first.get(place),
            again.get(place),
            "seed {seed}, line {place}"
        );
    }
}

#[test]
fn a_plan_is_what_its_text_says() {
    for seed in 0..50 {
        let plan = Plan::of_seed(seed);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(
            serde_json::from_str::<Plan>(&text).unwrap(),
            plan,
            "seed {seed}"
        );
    }
}

impl Seen {
    fn count(&mut self, what: &str, times: usize) {
        *self.counts.entry(what.to_owned()).or_default() += times;
    }

    fn add(&mut self, plan: &Plan, report: &Report) {
        let broken = report.violations.iter();
        let broken = broken.map(|violation| format!("seed {}: {violation}", plan.seed));
        self.broken.extend(broken);
        if plan.flood.is_none() {
            self.add_acquisitions(&report.history);
        }
        if let Some(quorum) = plan.quorum {
            self.add_majorities(&report.history, quorum.count);
        }
        if has_replicas(plan) {
            self.add_replicas(report);
        }
        if plan.cluster.is_some() {
            self.add_slots(report);
        }
        if plan.watched.is_some() {
            self.add_switches(report);
        }
        if !plan.java.is_empty() {
            self.add_turns(&report.history);
        }
    }

    fn add_acquisitions(&mut self, history: &History) {
        for one in &history.acquisitions {
            if matches!(one.returned, Some((_, Outcome::Cancelled))) {
                self.count("a call was cancelled", 1);
            }
            if let Some(grant) = &one.grant {
                self.count("a lock was had", 1);
                let waited = grant.at > one.called + 100;
                self.count("a lock was had after a wait", usize::from(waited));
                self.count("a hold had a token", usize::from(grant.token.is_some()));
            }
        }
    }

    fn add_majorities(&mut self, history: &History, servers: usize) {
        for (place, one) in history.acquisitions.iter().enumerate() {
            let Some(grant) = one.grant.as_ref() else {
                continue;
            };
            if matches!(one.mode, Mode::Majority(_)) {
                self.count(&format!("a majority of {servers} had a RedLock"), 1);
            }
            let parts = history.parts.iter();
            let parts = parts.filter(|part| part.acquisition == place).count();
            // More than there are servers: one of them has had two.
            let again = parts > servers && grant.renewed;
            self.count("a RedLock was given a part again", usize::from(again));
        }
    }

    fn add_replicas(&mut self, report: &Report) {
        self.count("replicas were waited for", said(report, "> WAIT "));
        self.count("a replica stood still", said(report, " StopReplica "));
        let all = report.history.acquisitions.iter();
        for one in all.filter(|one| one.ack.is_some()) {
            match one.returned {
                Some((_, Outcome::Granted)) => {
                    self.count("a hold was given out with its replicas", 1);
                }
                Some((_, Outcome::NotReplicated { .. })) => {
                    self.count("a hold was refused without its replicas", 1);
                }
                _ => {}
            }
        }
    }

    fn add_slots(&mut self, report: &Report) {
        let across = held_across(&report.history);
        self.count(
            "a cluster's hold outlasted that its key got another master",
            across,
        );
        for moved in report.history.moves.iter().filter(|moved| moved.failed) {
            let what = match moved.lost {
                Some(_) => "a cluster's master failed and lost something",
                None => "a cluster's master failed with what it had",
            };
            self.count(what, 1);
        }
        for word in ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"] {
            self.count(word, said(report, &format!("< -{word} ")));
        }
    }

    fn add_switches(&mut self, report: &Report) {
        let across = held_across(&report.history);
        self.count(
            "a watched hold outlasted that its key got another master",
            across,
        );
        self.count("a sentinel named another master", said(report, " names s"));
        self.count(
            "a call met a master that is one no more",
            said(report, "-READONLY"),
        );
        let moves = report.history.moves.iter();
        let two = moves.filter(|moved| moved.at + 100 < moved.until).count();
        self.count("there were two masters for a while", two);
    }

    fn add_turns(&mut self, history: &History) {
        let is_theirs = |process| history.foreign.iter().any(|one| one.process == process);
        let mut had: Vec<(&str, u64, bool)> = Vec::new();
        for one in &history.acquisitions {
            if let Some(grant) = &one.grant {
                had.push((&one.key, grant.at, is_theirs(one.process)));
            }
        }
        let theirs = had.iter().filter(|(.., theirs)| *theirs).count();
        self.count("Redisson had a lock", theirs);
        had.sort_unstable();
        let pairs = had.windows(2);
        let turns = pairs.filter(|pair| pair[0].0 == pair[1].0 && pair[0].2 != pair[1].2);
        self.count("Redisson and this library took turns", turns.count());
    }
}

fn has_replicas(plan: &Plan) -> bool {
    plan.watched.is_some_and(|of| of.copies.is_some())
}

/// In how many lines of the time line this stands.
fn said(report: &Report, text: &str) -> usize {
    let lines = report.lines.iter();
    lines.filter(|line| line.contains(text)).count()
}

/// How many holds outlasted that their key got another master.
fn held_across(history: &History) -> usize {
    let moves = history.moves.iter();
    let across = moves.map(|moved| {
        let held = |grant: &Grant| grant.at < moved.from && moved.at < grant.believed;
        let all = history.acquisitions.iter();
        all.filter(|one| one.key == moved.key && one.grant.as_ref().is_some_and(held))
            .count()
    });
    across.sum()
}
