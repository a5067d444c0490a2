//! Draws what goes wrong in a plan.

use super::generate::{Subject, one_of, up_to};
use super::plan::{Fault, Place, Plan, Refusal, Terms, Thing, Trouble};
use crate::Random;
use crate::history::Ms;

/// Longer than most plans take.
const LONG: Ms = 20_000;
/// How many kinds of faults [`trouble`] knows.
const KINDS: usize = 18;

pub(super) fn faults(
    random: &mut Random,
    terms: &Terms,
    things: &[Thing],
    hosts: usize,
    subject: Subject,
) -> Vec<Fault> {
    let count = match random.below(10) {
        _ if matches!(subject, Subject::Crowds | Subject::Permits) => 0,
        _ if subject == Subject::LongWays => 1,
        _ if subject == Subject::Java => random.below(3),
        _ if subject == Subject::Repeats => 6 + random.below(10),
        _ if subject != Subject::Anything => 3 + random.below(6),
        0 | 1 => 0,
        2..=5 => 1 + random.below(3),
        _ => 3 + random.below(8),
    };
    // Faults of one seed are of a few kinds, so that some kinds come alone.
    let kinds: Vec<usize> = match subject {
        // What is handed over is lost on the way, or has gone before.
        Subject::Chains if random.percent(40) => vec![14],
        Subject::Chains if random.percent(40) => vec![2],
        Subject::Anything
        | Subject::Crowds
        | Subject::Permits
        | Subject::Java
        | Subject::Chains => (0..1 + random.below(4))
            .map(|_| random.below(KINDS))
            .collect(),
        Subject::Outages => vec![0, 13],
        Subject::Evictions => vec![14],
        Subject::Stragglers => vec![6],
        Subject::Repeats => vec![2],
        Subject::LongWays => vec![1],
    };
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let latest = match subject {
                // The turns are short, and so is the run.
                Subject::Chains => one_of(random, &[40, 150]),
                _ => one_of(random, &[300, 3000, 8000]),
            } as Ms;
            let kind = kinds[random.below(kinds.len())];
            Fault {
                at: 5 + up_to(random, latest),
                what: trouble(random, kind, terms, things, hosts),
                server: 0,
            }
        })
        .collect();
    if subject == Subject::LongWays {
        for fault in &mut faults {
            if let Trouble::Slow { lasts, more, .. } = &mut fault.what {
                (fault.at, *lasts) = (0, LONG);
                *more += 50;
            }
        }
    }
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
        let (host, lasts) = (None, LONG);
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

/// How many seeds of a hundred have another fault, and what it is drawn by: all others stay what they were.
const ADDED: usize = 12;
const ASIDE: u64 = 0x0061_6464_6564;

impl Plan {
    /// Adds a server that does not keep up, or times to live that another program sets.
    pub(super) fn add_aside(&mut self) {
        let random = &mut Random::new(self.seed ^ ASIDE);
        if !random.percent(ADDED) {
            return;
        }
        // Redisson waits for ever for a lock without a lease.
        let sets = random.percent(60) && self.java.is_empty();
        for _ in 0..1 + random.below(3) {
            let lasts = 50 + up_to(random, 4000);
            let what = match sets {
                true => Trouble::SetTtl {
                    thing: random.below(self.things.len()),
                    to: random.percent(50).then(|| 3_600_000 + up_to(random, 1000)),
                    lasts: 2 * self.terms.lease + lasts,
                },
                false => Trouble::Overload {
                    each: 1 + up_to(random, 6),
                    lasts,
                },
            };
            let at = 5 + up_to(random, 2000);
            self.faults.push(Fault {
                at,
                what,
                server: 0,
            });
        }
        self.faults.sort_by_key(|fault| fault.at);
    }
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
