//! Draws a plan from a seed.
//!
//! Every seed has weights of its own, so that some runs are calm and crowded, and others all faults.

use super::java_plan;
use super::plan::{
    Cut, Ending, Fault, Meanwhile, Place, Plan, Refusal, Step, Terms, Thing, Trouble, Turn,
};
use super::quorum;
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
enum Subject {
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
    /// Redisson's clients among ours.
    Java,
}

impl Plan {
    /// The plan of this seed.
    pub fn of_seed(seed: u64) -> Self {
        if quorum::is_of(seed) {
            return quorum::plan(seed);
        }
        let mut random = Random::new(seed);
        let random = &mut random;
        let subject = match random.below(100) {
            0..10 => Subject::Outages,
            10..18 => Subject::Evictions,
            18..26 => Subject::Stragglers,
            26..34 => Subject::Repeats,
            34..44 => Subject::Crowds,
            _ => Subject::Anything,
        };
        // Drawn aside, so that all other seeds stay what they were.
        let java = java_plan::is_drawn(seed);
        let subject = if java { Subject::Java } else { subject };
        let terms = terms(random);
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
        let (mut hosts, mut tasks) = (2 + random.below(4), 3);
        match subject {
            Subject::Outages => {
                weights.bounded = 100;
                weights.plain_leases = 100;
                tasks = 1;
            }
            Subject::Evictions => {
                weights.long = 70;
                weights.plain_leases = 0;
                (hosts, tasks) = (2, 4);
            }
            Subject::Java => {
                weights.cuts = weights.cuts.min(10);
                hosts = 2 + random.below(2);
            }
            Subject::Crowds => {
                weights.cuts = 40;
                weights.think = 30;
                hosts = 2;
                tasks = 6;
            }
            _ => {}
        }
        let hosts = (0..hosts)
            .map(|_| {
                let tasks = 1 + random.below(tasks);
                (0..tasks)
                    .map(|_| steps(random, &weights, &things, &terms))
                    .collect()
            })
            .collect::<Vec<Vec<Vec<Step>>>>();
        let faults = faults(random, &terms, &things, hosts.len(), subject);
        let mut plan = Self {
            seed,
            terms,
            things,
            hosts,
            java: Vec::new(),
            faults,
            quorum: None,
        };
        if java {
            plan.add_java(random);
        }
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
        Subject::Crowds => 1,
        _ => 1 + random.below(3),
    };
    let mut things: Vec<Thing> = (0..count)
        .map(|_| match random.below(11) {
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

pub(super) fn steps(
    random: &mut Random,
    weights: &Weights,
    things: &[Thing],
    terms: &Terms,
) -> Vec<Step> {
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
    }
}

/// How many kinds of faults [`trouble`] knows.
const KINDS: usize = 18;

fn faults(
    random: &mut Random,
    terms: &Terms,
    things: &[Thing],
    hosts: usize,
    subject: Subject,
) -> Vec<Fault> {
    let count = match random.below(10) {
        _ if subject == Subject::Crowds => 0,
        _ if subject == Subject::Java => random.below(3),
        _ if subject == Subject::Repeats => 6 + random.below(10),
        _ if subject != Subject::Anything => 3 + random.below(6),
        0 | 1 => 0,
        2..=5 => 1 + random.below(3),
        _ => 3 + random.below(8),
    };
    // Faults of one seed are of a few kinds, so that some kinds come alone.
    let kinds: Vec<usize> = match subject {
        Subject::Anything | Subject::Crowds | Subject::Java => (0..1 + random.below(4))
            .map(|_| random.below(KINDS))
            .collect(),
        Subject::Outages => vec![0, 13],
        Subject::Evictions => vec![14],
        Subject::Stragglers => vec![6],
        Subject::Repeats => vec![2],
    };
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let latest = one_of(random, &[300, 3000, 8000]) as Ms;
            let kind = kinds[random.below(kinds.len())];
            Fault {
                at: 5 + up_to(random, latest),
                what: trouble(random, kind, terms, things, hosts),
                server: 0,
            }
        })
        .collect();
    if subject == Subject::Repeats {
        // Where the message has run.
        for fault in &mut faults {
            if let Trouble::Cut { place, .. } = &mut fault.what {
                *place = [Place::After, Place::Reply][random.below(2)];
            }
        }
    }
    if subject == Subject::Stragglers && random.percent(60) {
        let with = Refusal::Kill;
        let (host, lasts) = (None, 20_000);
        let what = Trouble::Refuse { host, with, lasts };
        faults.push(Fault {
            at: 0,
            what,
            server: 0,
        });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

pub(super) fn trouble(
    random: &mut Random,
    kind: usize,
    terms: &Terms,
    things: &[Thing],
    hosts: usize,
) -> Trouble {
    let host = random.below(hosts);
    // Short, about a time-out, or longer than a lease.
    let lasts = match random.below(4) {
        0 => 1 + up_to(random, 50),
        1 | 2 => 50 + up_to(random, 2 * terms.response),
        _ => terms.lease.min(4000) + up_to(random, 3000),
    };
    match kind {
        0 => match random.below(3) {
            0 => Trouble::Partition {
                host,
                up: true,
                down: false,
                lasts,
            },
            1 => Trouble::Partition {
                host,
                up: false,
                down: true,
                lasts,
            },
            _ => Trouble::Partition {
                host,
                up: true,
                down: true,
                lasts,
            },
        },
        1 => Trouble::Slow {
            host,
            more: 5 + up_to(random, 300),
            lasts,
        },
        2..=4 => Trouble::Cut {
            host,
            after: 1 + u32::try_from(random.below(12)).unwrap_or(0),
            place: [Place::Before, Place::Middle, Place::After, Place::Reply][random.below(4)],
        },
        5 => Trouble::Silence { host },
        6 => Trouble::Stray {
            host,
            lasts: 1 + up_to(random, 800),
        },
        7 | 8 => Trouble::Refuse {
            host: random.percent(60).then_some(host),
            with: [
                Refusal::Busy,
                Refusal::Loading,
                Refusal::OutOfMemory,
                Refusal::MaxClients,
                Refusal::Dial,
                Refusal::Forbidden,
                Refusal::Login,
                Refusal::Kill,
            ][random.below(8)],
            lasts,
        },
        9 => Trouble::CrashHost {
            host,
            silent: random.percent(50),
            lasts,
        },
        10 => Trouble::PauseHost { host, lasts },
        11 => Trouble::EndRuntime { host },
        12 => Trouble::CrashServer {
            keeps: random.percent(70),
            silent: random.percent(20),
            lasts,
        },
        13 => Trouble::PauseServer { lasts },
        14 => Trouble::Evict {
            thing: random.below(things.len()),
        },
        15 => Trouble::Replace { lasts },
        _ => match random.below(5) {
            0 => Trouble::SetClock {
                by: lasts as i64 * if random.percent(50) { 1 } else { -1 },
            },
            1 | 2 => Trouble::Flush,
            _ => Trouble::ForgetScripts,
        },
    }
}
