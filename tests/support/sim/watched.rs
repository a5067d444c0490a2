//! Draws a plan with a master, its replicas and sentinels from a seed.
//!
//! The master fails, or the sentinels make another one the master though it is well, while locks are in
//! use; in most plans beside a few other troubles, also on the way to the sentinels.

use std::ops::RangeInclusive;

use super::generate::{hosts, one_of, terms, up_to};
use super::plan::{Fault, Plan, Step, Trouble, Turn, Watched};
use super::shards::{OTHERS, fails_over, things, weights};
use super::troubles::trouble;
use crate::Random;
use crate::history::Ms;

/// How many seeds in a hundred have sentinels, of those that have no quorum, throng or cluster.
const SHARE: usize = 6;
/// How many turns in a hundred last for longer than an old master is one.
const LONG: usize = 12;

/// Whether the plan of this seed has sentinels.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x7365_6e74_696e_656c).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let watched = Watched {
        replicas: 1 + random.below(2),
        sentinels: 1 + random.below(3),
        lag: one_of(random, &[0, 5, 100, 3000]) as Ms,
        copies: None,
    };
    let mut plan = without_faults(seed, random, watched, 2..=3, |random, turn| {
        if turn.renew && random.percent(LONG) {
            turn.hold += up_to(random, 8000);
        }
    });
    plan.faults = faults(random, &plan, watched.sentinels);
    plan
}

/// With so many hosts. `change` draws what turns have beside what they have in all plans.
pub(super) fn without_faults(
    seed: u64,
    random: &mut Random,
    watched: Watched,
    counts: RangeInclusive<usize>,
    mut change: impl FnMut(&mut Random, &mut Turn),
) -> Plan {
    let terms = terms(random);
    let things = things(random);
    let weights = weights(random);
    let count = counts.start() + random.below(counts.clone().count());
    let mut hosts = hosts(random, count, (1, 3), (&weights, &things, &terms));
    for step in hosts.iter_mut().flatten().flatten() {
        if let Step::Turn(turn) = step {
            change(random, turn);
        }
    }
    Plan {
        watched: Some(watched),
        ..Plan::without_faults(seed, terms, things, hosts)
    }
}

fn faults(random: &mut Random, plan: &Plan, sentinels: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = 0;
    let switches = one_of(random, &[0, 50, 100]);
    for _ in 0..1 + random.below(4) {
        let latest = one_of(random, &[300, 1500, 4000]) as Ms;
        at += 30 + up_to(random, latest);
        let still = still(random);
        let what = match random.percent(switches) {
            true => Trouble::Switch { still },
            false => fails_over(random, &plan.terms, 1, still),
        };
        let server = 0;
        faults.push(Fault { at, what, server });
    }
    let others = match random.below(10) {
        0..6 => 0,
        _ => 1 + random.below(3),
    };
    for _ in 0..others {
        let kind = OTHERS[random.below(OTHERS.len())];
        let (terms, things) = (&plan.terms, &plan.things);
        faults.push(Fault {
            at: 5 + up_to(random, at + 500),
            what: trouble(random, kind, terms, things, plan.hosts.len()),
            server: random.below(1 + sentinels),
        });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// For how long an old master takes itself for one: sentinels tell it within ten seconds.
pub(super) fn still(random: &mut Random) -> Ms {
    let longest = one_of(random, &[0, 50, 1000, 9000]) as Ms;
    up_to(random, longest)
}
