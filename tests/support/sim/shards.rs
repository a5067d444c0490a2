//! Draws a plan with a Redis Cluster from a seed.
//!
//! Its slots move and its masters fail while locks of all kinds but `RedLock` are in use, in most plans
//! beside a few other troubles.

use super::generate::{Weights, hosts, one_of, terms, up_to};
use super::plan::{Fault, Plan, Shards, Terms, Thing, Trouble};
use super::troubles::trouble;
use crate::Random;
use crate::history::Ms;

/// How many seeds in a hundred have a cluster, of those that have no quorum.
const SHARE: usize = 9;
/// Kinds of [`trouble`] that make sense at a node: partitions, slow ways, connections that end, hosts that
/// crash or stand still, a node that does, lost scripts.
pub(super) const OTHERS: [usize; 11] = [0, 1, 2, 3, 5, 6, 9, 10, 11, 13, 14];

/// Which changes the cluster goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Moves,
    Failovers,
    Both,
}

/// Whether the plan of this seed has a cluster.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x0073_6c6f_7473).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let subject = match random.below(100) {
        0..40 => Subject::Moves,
        40..70 => Subject::Failovers,
        _ => Subject::Both,
    };
    let cluster = Shards {
        masters: 2 + random.below(2),
        spares: 1 + random.below(2),
    };
    let mut terms = terms(random);
    terms.lease = one_of(random, &[600, 2000, 10_000, 30_000]) as Ms;
    let things = things(random);
    let weights = weights(random);
    let count = 2 + random.below(3);
    let hosts = hosts(random, count, (1, 3), (&weights, &things, &terms));
    let faults = faults(
        random,
        subject,
        &terms,
        &things,
        (hosts.len(), cluster.masters),
    );
    Plan {
        faults,
        cluster: Some(cluster),
        ..Plan::without_faults(seed, terms, things, hosts)
    }
}

/// How clients use the locks of nodes that take each other's place.
pub(super) fn weights(random: &mut Random) -> Weights {
    Weights {
        tries: one_of(random, &[0, 10, 40]),
        bounded: one_of(random, &[10, 40, 80]),
        cuts: one_of(random, &[0, 0, 20]),
        drops: one_of(random, &[5, 30, 60]),
        // Many holds last for longer than a change.
        long: one_of(random, &[20, 50, 80]),
        meanwhile: one_of(random, &[0, 20, 50]),
        plain_leases: one_of(random, &[0, 10, 30]),
        think: one_of(random, &[1, 30, 400]) as Ms,
        hold: one_of(random, &[10, 100, 300]) as Ms,
    }
}

pub(super) fn things(random: &mut Random) -> Vec<Thing> {
    let few = |random: &mut Random| 1 + u32::try_from(random.below(3)).unwrap_or(0);
    let count = 1 + random.below(3);
    let mut things: Vec<Thing> = (0..count)
        .map(|_| match random.below(10) {
            0 | 1 => Thing::Reentrant,
            2 | 3 => Thing::Fair,
            4 => Thing::Fenced,
            5 => Thing::Spin,
            6 => Thing::ReadWrite,
            7 => Thing::Permits(few(random)),
            8 => Thing::Semaphore(few(random)),
            _ => Thing::Multi,
        })
        .collect();
    if random.percent(25) {
        things.push(Thing::Latch(2 + random.bits() % 8));
    }
    things
}

fn faults(
    random: &mut Random,
    subject: Subject,
    terms: &Terms,
    things: &[Thing],
    (hosts, masters): (usize, usize),
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = 0;
    // Always the same one, there and back.
    let returns = random.percent(40).then(|| random.below(things.len()));
    for turn in 0..2 + random.below(6) {
        let latest = one_of(random, &[100, 400, 1500]) as Ms;
        at += 5 + up_to(random, latest);
        let fails = match subject {
            Subject::Moves => false,
            Subject::Failovers => true,
            Subject::Both => random.percent(40),
        };
        let what = match fails {
            true => fails_over(random, terms, things.len(), 0),
            false => Trouble::MoveSlot {
                thing: returns.unwrap_or_else(|| random.below(things.len())),
                to: match returns {
                    Some(_) => turn % masters,
                    None => random.below(masters),
                },
                lasts: match random.below(10) {
                    0..4 => up_to(random, 50),
                    4..9 => 50 + up_to(random, 500),
                    _ => 600 + up_to(random, 2000),
                },
            },
        };
        let server = random.below(masters);
        faults.push(Fault { at, what, server });
    }
    let others = match random.below(10) {
        0..5 => 0,
        _ => 1 + random.below(4),
    };
    let kinds = [(); 2].map(|()| OTHERS[random.below(OTHERS.len())]);
    for _ in 0..others {
        let kind = kinds[random.below(kinds.len())];
        faults.push(Fault {
            at: 5 + up_to(random, at + 500),
            what: trouble(random, kind, terms, things, hosts),
            server: random.below(masters),
        });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

pub(super) fn fails_over(random: &mut Random, terms: &Terms, things: usize, still: Ms) -> Trouble {
    Trouble::FailOver {
        thing: random.below(things),
        lost: match random.percent(50) {
            true => 0,
            false => 1 + up_to(random, 200),
        },
        lasts: match random.below(4) {
            0 => 1 + up_to(random, 50),
            1 | 2 => 50 + up_to(random, terms.response),
            _ => 50 + up_to(random, 2 * terms.response),
        },
        late: random.percent(50).then(|| {
            let longest = one_of(random, &[20, 300, 2000]) as Ms;
            1 + up_to(random, longest)
        }),
        still,
    }
}
