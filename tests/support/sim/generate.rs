//! Draws a plan from a seed.
//!
//! Every seed has weights of its own, so that some runs are calm and crowded, and others all faults.

use super::flood;
use super::java_plan;
use super::plan::{Cut, Ending, Meanwhile, Plan, Step, Terms, Thing, Turn};
use super::quorum;
use super::replicas;
use super::shards;
use super::throng;
use super::troubles::faults;
use super::watched;
use crate::Random;
use crate::history::Ms;

/// What this seed prefers.
pub(super) struct Weights {
    pub(super) tries: usize,
    pub(super) bounded: usize,
    pub(super) cuts: usize,
    pub(super) drops: usize,
    pub(super) long: usize,
    pub(super) meanwhile: usize,
    pub(super) plain_leases: usize,
    pub(super) think: Ms,
    pub(super) hold: Ms,
}

/// What a seed is about. Most draw from everything; the others bring together what seldom meets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Anything,
    /// Few that wait briefly, short leases, and servers that are not reached for longer.
    Outages,
    /// Many long holds of each client, and keys that go away.
    Evictions,
    /// Messages that arrive when their connections are gone, and cannot be ended.
    Stragglers,
    /// Replies that do not arrive.
    Repeats,
    /// Many of one client that want one thing, and give up.
    Crowds,
    /// Messages that take a good part of a lease, and holders that keep what they have until it ends.
    LongWays,
    /// Many of one client that want one permit or two of a few, and those who want two give up.
    Permits,
    /// Redisson's clients among ours.
    Java,
    /// Many of one client that want a lock on the same terms, briefly, and hand it over.
    Chains,
}

/// How many seeds of a hundred are about chains of hand-overs, and what they are drawn by.
const CHAINS: usize = 10;
const ASIDE: u64 = 0x7061_7373_6573;

impl Plan {
    /// The plan of this seed.
    pub fn of_seed(seed: u64) -> Self {
        if quorum::is_of(seed) {
            return quorum::plan(seed);
        }
        if throng::is_of(seed) {
            return throng::plan(seed);
        }
        if shards::is_of(seed) {
            return shards::plan(seed);
        }
        if watched::is_of(seed) {
            return watched::plan(seed);
        }
        if flood::is_of(seed) {
            return flood::plan(seed);
        }
        if replicas::is_of(seed) {
            return replicas::plan(seed);
        }
        let mut random = Random::new(seed);
        let random = &mut random;
        let subject = match random.below(100) {
            0..10 => Subject::Outages,
            10..18 => Subject::Evictions,
            18..26 => Subject::Stragglers,
            26..34 => Subject::Repeats,
            34..44 => Subject::Crowds,
            44..50 => Subject::LongWays,
            50..56 => Subject::Permits,
            _ => Subject::Anything,
        };
        // Drawn aside, so that all other seeds stay what they were.
        let java = java_plan::is_drawn(seed);
        let chains = !java && Random::new(seed ^ ASIDE).percent(CHAINS);
        let subject = match (java, chains) {
            (true, _) => Subject::Java,
            (_, true) => Subject::Chains,
            _ => subject,
        };
        let mut terms = terms(random);
        let things = things(random, subject);
        let mut weights = Weights {
            tries: one_of(random, &[0, 10, 40]),
            bounded: one_of(random, &[10, 40, 80]),
            cuts: one_of(random, &[0, 10, 40]),
            drops: one_of(random, &[5, 30, 60]),
            long: one_of(random, &[0, 5, 15]),
            meanwhile: one_of(random, &[0, 20, 50]),
            plain_leases: one_of(random, &[0, 10, 50]),
            think: one_of(random, &[1, 30, 400]) as Ms,
            hold: one_of(random, &[1, 30, 200]) as Ms,
        };
        let (mut count, mut fewest, mut tasks) = (2 + random.below(4), 1, 3);
        match subject {
            Subject::Outages => {
                weights.bounded = 100;
                weights.plain_leases = 100;
                tasks = 1;
            }
            Subject::Evictions => {
                weights.long = 70;
                weights.plain_leases = 0;
                (count, tasks) = (2, 4);
            }
            Subject::Java => {
                weights.cuts = weights.cuts.min(10);
                count = 2 + random.below(2);
            }
            Subject::Crowds => {
                weights.cuts = 40;
                weights.think = 30;
                count = 2;
                tasks = 6;
            }
            Subject::LongWays => {
                weights.cuts = weights.cuts.min(10);
                weights.meanwhile = 0;
                weights.plain_leases = 100;
                weights.tries = 0;
                weights.bounded = 10;
                // Longer than a message takes, or whoever is near has it again and again.
                weights.think = 400;
                (count, tasks) = (2 + random.below(2), 1);
            }
            Subject::Permits => {
                weights.cuts = 10;
                weights.long = 15;
                weights.tries = 0;
                weights.think = 30;
                // Another client would take what the first of these leaves.
                (count, fewest, tasks) = (1, 5, 4);
            }
            Subject::Chains => {
                weights.bounded = weights.bounded.min(40);
                weights.meanwhile = weights.meanwhile.min(20);
                (weights.think, weights.hold) = (1, one_of(random, &[1, 4]) as Ms);
                // Several turns fit into a chain.
                terms.latency = [(1, 1), (1, 3)][random.below(2)];
                (count, fewest, tasks) = (1 + random.below(2), 3, 4);
            }
            _ => {}
        }
        let mut hosts = hosts(random, count, (fewest, tasks), (&weights, &things, &terms));
        let (mut lease, mut renew) = (None, true);
        if chains && random.percent(60) {
            lease = Some(300 + up_to(random, 1500));
            renew = random.percent(30);
        }
        for step in hosts.iter_mut().flatten().flatten() {
            let Step::Turn(turn) = step else { continue };
            match subject {
                // A few on other terms.
                Subject::Chains if random.percent(90) => (turn.lease, turn.renew) = (lease, renew),
                Subject::LongWays => outlast(random, turn),
                Subject::Permits => give_up(random, turn),
                _ => {}
            }
        }
        let faults = faults(random, &terms, &things, hosts.len(), subject);
        let mut plan = Self {
            faults,
            ..Self::without_faults(seed, terms, things, hosts)
        };
        if java {
            plan.add_java(random);
        }
        plan.add_aside();
        plan.add_tickets();
        plan.add_barrier();
        plan.add_service();
        plan
    }
}

pub(super) fn one_of(random: &mut Random, from: &[usize]) -> usize {
    from[random.below(from.len())]
}

/// A number up to a bound, the bound included.
pub(super) fn up_to(random: &mut Random, bound: Ms) -> Ms {
    random.bits() % (bound + 1)
}

pub(super) fn terms(random: &mut Random) -> Terms {
    let latency = [(1, 1), (1, 3), (1, 10), (2, 40)][random.below(4)];
    let skews = [0, 0, 0, 900, -900, 300, -500];
    let mut skew = || skews[random.below(skews.len())];
    Terms {
        latency,
        skew: [skew(), skew(), 0],
        lease: one_of(random, &[600, 2000, 10_000, 30_000]) as Ms,
        response: one_of(random, &[500, 1000, 3000]) as Ms,
        connect: one_of(random, &[500, 3000]) as Ms,
        poll: one_of(random, &[1000, 1000, 3000]) as Ms,
        linger: one_of(random, &[1, 300, 1000]) as Ms,
        waiter: one_of(random, &[600, 2000, 5000]) as Ms,
    }
}

fn things(random: &mut Random, subject: Subject) -> Vec<Thing> {
    let few = |random: &mut Random| 1 + u32::try_from(random.below(3)).unwrap_or(0);
    if subject == Subject::Java {
        return java_plan::things(random);
    }
    if subject == Subject::Chains {
        let kinds = [Thing::Fenced, Thing::Reentrant, Thing::Fair];
        let count = 1 + random.below(2);
        return (0..count).map(|_| kinds[random.below(3)]).collect();
    }
    if subject == Subject::Evictions {
        let kinds = [
            Thing::Reentrant,
            Thing::Fenced,
            Thing::Fair,
            Thing::ReadWrite,
        ];
        return (0..3).map(|_| kinds[random.below(kinds.len())]).collect();
    }
    let count = match subject {
        Subject::Crowds | Subject::LongWays | Subject::Permits => 1,
        _ => 1 + random.below(3),
    };
    let kinds = match subject {
        // All that have leases.
        Subject::LongWays => 8,
        _ => 11,
    };
    let mut things: Vec<Thing> = (0..count)
        .map(|_| match random.below(kinds) {
            _ if subject == Subject::Permits => {
                [Thing::Semaphore(2), Thing::Permits(2)][random.below(2)]
            }
            0 | 1 => Thing::Reentrant,
            2 | 3 => Thing::Fair,
            4 => Thing::Fenced,
            5 => Thing::Spin,
            6 | 7 => Thing::ReadWrite,
            8 => Thing::Permits(few(random)),
            9 => Thing::Semaphore(few(random)),
            _ => Thing::Multi,
        })
        .collect();
    if matches!(subject, Subject::Stragglers | Subject::Repeats) {
        things.push(Thing::Semaphore(few(random)));
    }
    if random.percent(25) || subject == Subject::Repeats {
        things.push(Thing::Latch(2 + random.bits() % 8));
    }
    things
}

/// So many hosts, each with one of so many numbers of tasks, the least of which is `fewest`.
pub(super) fn hosts(
    random: &mut Random,
    count: usize,
    (fewest, numbers): (usize, usize),
    (weights, things, terms): (&Weights, &[Thing], &Terms),
) -> Vec<Vec<Vec<Step>>> {
    let host = |_| {
        let tasks = fewest + random.below(numbers);
        let draw = |_| steps(random, weights, things, terms);
        (0..tasks).map(draw).collect()
    };
    (0..count).map(host).collect()
}

fn steps(random: &mut Random, weights: &Weights, things: &[Thing], terms: &Terms) -> Vec<Step> {
    let count = 2 + random.below(9);
    let mut steps: Vec<Step> = (0..count)
        .map(|_| {
            let thing = random.below(things.len());
            let after = up_to(random, weights.think);
            match things[thing] {
                Thing::Latch(_) => match random.below(8) {
                    0 => Step::Look { thing, after },
                    1 | 2 => Step::Await {
                        thing,
                        after,
                        wait: Some(100 + up_to(random, 3000)),
                    },
                    _ => Step::CountDown {
                        thing,
                        after,
                        by_guard: random.percent(30),
                    },
                },
                of => Step::Turn(turn(random, weights, (thing, of), terms, after)),
            }
        })
        .collect();
    if random.percent(4) {
        let place = random.below(steps.len());
        let drain = random.percent(50).then(|| up_to(random, 500));
        let after = up_to(random, weights.think);
        steps.insert(place, Step::ShutDown { after, drain });
    }
    steps
}

fn turn(
    random: &mut Random,
    weights: &Weights,
    (thing, of): (usize, Thing),
    terms: &Terms,
    after: Ms,
) -> Turn {
    let counted = matches!(of, Thing::Semaphore(_));
    let wait = match random.below(100) {
        draw if draw < weights.tries => Some(0),
        draw if draw < weights.tries + weights.bounded || counted => {
            let longest = one_of(random, &[20, 300, 3000]) as Ms;
            Some(1 + up_to(random, longest))
        }
        _ => None,
    };
    let lease = random
        .percent(weights.plain_leases)
        .then(|| 200 + up_to(random, 1500));
    let renew = lease.is_none() || random.percent(50);
    let hold = match random.percent(weights.long) {
        true => up_to(random, terms.lease.min(2000) * 3 / 2),
        // Longer than it may.
        false if !renew && random.percent(40) => lease.unwrap_or(0) + up_to(random, 400),
        false => up_to(random, weights.hold),
    };
    let cut = random
        .percent(weights.cuts)
        .then(|| match random.percent(50) {
            true => Cut::Polls(u32::try_from(random.below(8)).unwrap_or(0)),
            false => Cut::After(up_to(random, 60)),
        });
    let meanwhile = match random.percent(weights.meanwhile) {
        false => Meanwhile::Nothing,
        true => match random.below(3) {
            0 => Meanwhile::Extend(300 + up_to(random, 2000)),
            1 => Meanwhile::Reenter,
            _ if of == Thing::Reentrant && wait.is_some() && random.percent(50) => Meanwhile::Body,
            _ if of == Thing::RedLock && wait.is_none() && random.percent(50) => Meanwhile::Body,
            _ if of == Thing::ReadWrite && random.percent(60) => Meanwhile::Convert,
            _ => Meanwhile::Nest,
        },
    };
    let end = match random.percent(weights.drops) {
        false => Ending::Unlock,
        true => match random.percent(30) {
            true => Ending::Cut(u32::try_from(random.below(4)).unwrap_or(0)),
            false => Ending::Drop,
        },
    };
    Turn {
        thing,
        after,
        strong: random.percent(40),
        wait,
        renew,
        lease,
        cut,
        hold,
        meanwhile,
        end,
        ack: None,
    }
}

/// A holder that keeps a lock until its lease is over.
fn outlast(random: &mut Random, turn: &mut Turn) {
    turn.renew &= random.percent(20);
    if !turn.renew {
        turn.hold = turn.lease.unwrap_or(0) + up_to(random, 100);
    }
}

/// Who wants two permits gives up soon, and who wants one waits and keeps it for longer than that.
fn give_up(random: &mut Random, turn: &mut Turn) {
    let wait = match turn.strong {
        true => 100 + up_to(random, 600),
        false => 3000,
    };
    turn.wait = Some(wait);
    turn.hold += 200 + up_to(random, 800);
}
