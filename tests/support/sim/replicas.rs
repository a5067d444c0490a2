//! Draws a plan with replicas that copy from their master, and callers that ask how many of them have a lock.
//!
//! Replicas stand still, and masters are replaced by them, with what they have by then.

use super::generate::{one_of, up_to};
use super::plan::{Copies, Fault, Meanwhile, Plan, Trouble, Watched};
use super::shards::{OTHERS, fails_over};
use super::troubles::trouble;
use super::watched::{still, without_faults};
use crate::Random;
use crate::history::{Ack, Ms};

/// How many seeds in a hundred have such replicas, of those that have no other servers than one.
const SHARE: usize = 6;
/// How many turns in a hundred ask for replicas.
const ASKS: usize = 70;

/// Whether the plan of this seed has replicas that copy.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x0072_6570_6c69_6361).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let replicas = 1 + random.below(3);
    let watched = Watched {
        replicas,
        sentinels: 1,
        lag: one_of(random, &[0, 5, 100]) as Ms,
        copies: Some(Copies {
            delay: one_of(random, &[1, 10, 100, 200]) as Ms,
            timeout: one_of(random, &[300, 1000, 3000]) as Ms,
        }),
    };
    let mut plan = without_faults(seed, random, watched, 1..=3, |random, turn| {
        let may_ask = !matches!(turn.meanwhile, Meanwhile::Body | Meanwhile::Convert);
        if may_ask && random.percent(ASKS) {
            turn.ack = Some(ack(random, replicas));
        }
    });
    plan.faults = faults(random, &plan, replicas);
    plan
}

fn ack(random: &mut Random, replicas: usize) -> Ack {
    match random.below(4) {
        0 => Ack::Majority,
        1 => Ack::All,
        // Now and then more than there are.
        _ => Ack::AtLeast(u32::try_from(1 + random.below(replicas + 1)).unwrap_or(1)),
    }
}

fn faults(random: &mut Random, plan: &Plan, replicas: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    let at = |random: &mut Random| {
        let latest = one_of(random, &[300, 1500, 4000]) as Ms;
        30 + up_to(random, latest)
    };
    // In two plans of five nothing but replicas that stand still.
    let changes = random.percent(60);
    for _ in 0..random.below(5) {
        let lasts = one_of(random, &[50, 500, 4000]) as Ms;
        let what = Trouble::StopReplica {
            replica: random.below(replicas),
            lasts: 20 + up_to(random, lasts),
        };
        let (at, server) = (at(random), 0);
        faults.push(Fault { at, what, server });
    }
    for _ in 0..if changes { 1 + random.below(3) } else { 0 } {
        let still = still(random);
        let what = match random.percent(30) {
            true => Trouble::Switch { still },
            false => fails_over(random, &plan.terms, 1, still),
        };
        let (at, server) = (at(random), 0);
        faults.push(Fault { at, what, server });
    }
    let others = if changes { random.below(3) } else { 0 };
    for _ in 0..others {
        let kind = OTHERS[random.below(OTHERS.len())];
        let (terms, things) = (&plan.terms, &plan.things);
        let what = trouble(random, kind, terms, things, plan.hosts.len());
        let (at, server) = (at(random), 0);
        faults.push(Fault { at, what, server });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}
