//! Draws a plan in which very many want one thing all the time, and nothing goes wrong: many processes with
//! one task each, or one process with very many tasks beside another.

use super::generate::{one_of, terms, up_to};
use super::plan::{Ending, Meanwhile, Plan, Step, Thing, Turn};
use crate::Random;
use crate::history::Ms;

/// How many seeds in a hundred are about such a throng.
const SHARE: usize = 6;
/// How many acquisitions one plan has, about.
const TURNS: usize = 320;
/// The fewest and the most turns of a task.
const STEPS: (usize, usize) = (1, 60);
/// The fewest turns of a process with one task.
const LONE: usize = 12;
/// The longest hold.
const HOLD: Ms = 5;
/// A semaphore's wait has a bound.
const WAIT: Ms = 120_000;

/// Whether the plan of this seed is about a throng.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x7468_726f_6e67).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut terms = terms(random);
    // If all messages took the same time, the order of the connections would decide each race.
    terms.latency = [(1, 2), (1, 3)][random.below(2)];
    // A client knows for so long who else wants it.
    terms.linger = one_of(random, &[300, 1000]) as Ms;
    terms.lease = one_of(random, &[2000, 10_000, 30_000]) as Ms;
    let kinds = [
        Thing::Reentrant,
        Thing::Fenced,
        Thing::ReadWrite,
        Thing::Fair,
        Thing::Permits(1),
        Thing::Semaphore(1),
    ];
    let thing = kinds[random.below(kinds.len())];
    let tasks = match random.percent(25) {
        true => vec![one_of(random, &[100, 300, 1000]), 1],
        false => vec![1; one_of(random, &[2, 4, 8, 8, 20, 20, 40])],
    };
    let all: usize = tasks.iter().sum();
    let steps = (TURNS / all).clamp(STEPS.0, STEPS.1);
    let hold = one_of(random, &[0, 1, HOLD as usize]) as Ms;
    let hosts = tasks.iter().map(|tasks| {
        // A lone task has as much to do as many.
        let steps = if *tasks == 1 { steps.max(LONE) } else { steps };
        let of = |random: &mut Random| (0..steps).map(|_| turn(random, thing, hold)).collect();
        (0..*tasks).map(|_| of(random)).collect()
    });
    Plan::without_faults(seed, terms, vec![thing], hosts.collect())
}

impl Plan {
    /// Whether all want one thing all the time, and nothing goes wrong.
    pub(super) fn is_throng(&self) -> bool {
        let asks_again = |step: &Step| match step {
            Step::Turn(turn) => {
                let plain = turn.cut.is_none() && turn.meanwhile == Meanwhile::Nothing;
                let patient = turn.wait.is_none_or(|wait| wait == WAIT);
                plain && patient && turn.after == 0 && turn.hold <= HOLD
            }
            _ => false,
        };
        let mut steps = self.hosts.iter().flatten().flatten();
        let alone = self.things.len() == 1 && self.faults.is_empty() && self.java.is_empty();
        alone && steps.all(asks_again)
    }
}

/// One that asks again as soon as it has released.
fn turn(random: &mut Random, thing: Thing, hold: Ms) -> Step {
    Step::Turn(Turn {
        thing: 0,
        after: 0,
        strong: thing == Thing::ReadWrite,
        wait: matches!(thing, Thing::Semaphore(_)).then_some(WAIT),
        lease: None,
        renew: true,
        cut: None,
        hold: up_to(random, hold),
        meanwhile: Meanwhile::Nothing,
        end: Ending::Unlock,
        ack: None,
    })
}
