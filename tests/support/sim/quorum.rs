//! Draws a plan with several servers from a seed: all about a `RedLock`.
//!
//! A majority of the servers is a RedLock's word for it, so what matters is how many of them a fault
//! strikes at the same time: most plans strike a minority, and some a majority.

use super::generate::{Weights, hosts, one_of, terms, up_to};
use super::plan::{Fault, Plan, Servers, Step, Terms, Thing, Trouble};
use super::troubles::trouble;
use crate::Random;
use crate::history::Ms;

/// How many seeds in a hundred are about a RedLock.
const SHARE: usize = 15;
/// How many in a hundred of the plans with forgetful servers have one task only, with long holds.
const ALONE: usize = 50;
/// By how much these are longer: more than it takes to notice, with the longest lease there.
const LONG: Ms = 1500;
/// How many ways of a message a server has for its answer at least.
const ANSWER: Ms = 6;

/// Which faults there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// None.
    Calm,
    /// Servers that forget, one after the other.
    Forgetful,
    /// A minority that is not well.
    Minority,
    /// Whatever, wherever.
    Anything,
}

/// Whether the plan of this seed has several servers.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x7265_646c_6f63_6b73).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let subject = match random.below(100) {
        0..15 => Subject::Calm,
        15..50 => Subject::Forgetful,
        50..75 => Subject::Minority,
        _ => Subject::Anything,
    };
    let mut terms = terms(random);
    let leases = match subject {
        // So that most holds are renewed often enough to notice.
        Subject::Forgetful => &[600, 600, 2000][..],
        _ => &[600, 2000, 2000, 10_000],
    };
    terms.lease = one_of(random, leases) as Ms;
    let timeout = one_of(random, &[20, 60, 250]) as Ms;
    let servers = Servers {
        count: if random.percent(75) { 3 } else { 5 },
        timeout: timeout.max(ANSWER * terms.latency.1),
    };
    let mut things = vec![Thing::RedLock; 1 + random.below(2)];
    if random.percent(20) {
        let others = [Thing::Reentrant, Thing::Fair, Thing::Semaphore(2)];
        things.push(others[random.below(3)]);
    }
    let weights = Weights {
        tries: one_of(random, &[0, 10, 40]),
        bounded: one_of(random, &[10, 40, 80]),
        cuts: one_of(random, &[0, 10, 40]),
        drops: one_of(random, &[5, 30, 60]),
        long: match subject {
            Subject::Forgetful => 70,
            _ => one_of(random, &[5, 20, 40]),
        },
        meanwhile: one_of(random, &[0, 20, 50]),
        plain_leases: match subject {
            Subject::Forgetful => 0,
            _ => one_of(random, &[0, 10, 30]),
        },
        think: one_of(random, &[1, 30, 400]) as Ms,
        hold: one_of(random, &[1, 30, 200]) as Ms,
    };
    let count = 2 + random.below(3);
    let mut hosts = hosts(random, count, (1, 3), (&weights, &things, &terms));
    let faults = faults(random, (subject, servers.count), &terms, &things, &hosts);
    if subject == Subject::Forgetful && random.percent(ALONE) {
        hosts.truncate(1);
        hosts[0].truncate(1);
        hosts[0][0].iter_mut().for_each(lengthen);
    }
    Plan {
        faults,
        quorum: Some(servers),
        ..Plan::without_faults(seed, terms, things, hosts)
    }
}

fn faults(
    random: &mut Random,
    (subject, servers): (Subject, usize),
    terms: &Terms,
    things: &[Thing],
    hosts: &[Vec<Vec<Step>>],
) -> Vec<Fault> {
    let count = match subject {
        Subject::Calm => 0,
        Subject::Forgetful => 4 + random.below(10),
        Subject::Minority | Subject::Anything => 1 + random.below(8),
    };
    let kinds: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(18)).collect();
    let first = random.below(servers);
    let mut at = 0;
    let mut faults = Vec::new();
    for _ in 0..count {
        let what = match subject {
            Subject::Forgetful => forgets(random),
            _ => {
                let kind = kinds[random.below(kinds.len())];
                trouble(random, kind, terms, things, hosts.len())
            }
        };
        at = match subject {
            // One after the other, so that each may be given its part again before the next.
            Subject::Forgetful => at + 20 + up_to(random, 2 * terms.lease),
            _ => {
                let latest = one_of(random, &[300, 3000, 8000]) as Ms;
                5 + up_to(random, latest)
            }
        };
        let server = match subject {
            Subject::Minority => (first + random.below(servers / 2)) % servers,
            _ => random.below(servers),
        };
        faults.push(Fault { at, what, server });
        if subject == Subject::Anything && random.percent(30) {
            let most = servers / 2 + random.below(2);
            faults.extend((1..=most).map(|next| Fault {
                at: at + up_to(random, 50),
                what,
                server: (server + next) % servers,
            }));
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Nobody else has a part that is missing, so it is seen for how long.
fn lengthen(step: &mut Step) {
    if let Step::Turn(turn) = step {
        turn.hold += LONG;
    }
}

/// A server forgets, and is there again at once, or nearly.
fn forgets(random: &mut Random) -> Trouble {
    match random.below(4) {
        0 => Trouble::Flush,
        1 => Trouble::CrashServer {
            keeps: false,
            silent: false,
            lasts: 1 + up_to(random, 100),
        },
        _ => Trouble::Evict { thing: 0 },
    }
}
