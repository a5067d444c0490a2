//! Draws a plan in which more is wanted than the server can serve: very many tasks, each of which wants a lock of
//! its own for a limited time, again and again, and a server that takes a while for each command.

use super::generate::{one_of, terms, up_to};
use super::plan::{Ending, Fault, Flood, Meanwhile, Plan, Step, Thing, Trouble, Turn};
use crate::Random;
use crate::history::Ms;

/// How many seeds in a hundred are about that.
const SHARE: usize = 3;
/// How long it lasts, and how much of that is judged: when all have connected, and the first have waited.
const SPAN: (Ms, Ms) = (3000, 9000);
/// How often more is wanted than is served.
const LOADS: [usize; 4] = [3, 3, 6, 12];
/// Instead, so many that want one turn each at the same time: more than are in flight on a connection.
const BURST: usize = 4000;
/// The most clients that want that.
const CLIENTS: usize = 8;
/// Commands of a turn: one that takes it, one that releases it, one that announces that.
pub(super) const COMMANDS: Ms = 3;
/// For how long a task thinks, on average, and then waits.
const THINK: Ms = 500;
const WAIT: Ms = 500;
/// For how long the others do.
const LONG: Ms = 60_000;

/// Whether the plan of this seed has a server that is slower than the demand.
pub(super) fn is_of(seed: u64) -> bool {
    Random::new(seed ^ 0x0066_6c6f_6f64).percent(SHARE)
}

/// The plan of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut terms = terms(random);
    terms.latency = [(1, 1), (1, 3)][random.below(2)];
    terms.lease = one_of(random, &[10_000, 30_000]) as Ms;
    // The default: a shorter one ends connections that are merely slow.
    terms.response = 3000;
    let each = 1 + up_to(random, 2);
    // So many tasks want as many turns as are served, if each waits for nothing.
    let served = usize::try_from(THINK / (COMMANDS * each)).unwrap_or(1);
    let tasks = served * one_of(random, &LOADS);
    let burst = random.percent(30);
    let tasks = if burst { BURST } else { tasks };
    let things = vec![Thing::Reentrant; tasks];
    let task = |random: &mut Random, thing: usize| {
        let (think, wait) = if burst { (0, LONG) } else { (2 * THINK, WAIT) };
        let steps = if burst { 1 } else { SPAN.1 / (THINK + WAIT) };
        (0..steps)
            .map(|_| turn(random, thing, think, wait))
            .collect()
    };
    let clients = 1 + random.below(CLIENTS);
    let mut hosts = vec![Vec::new(); clients];
    for thing in 0..tasks {
        hosts[thing % clients].push(task(random, thing));
    }
    let lasts = SPAN.1;
    Plan {
        faults: vec![Fault {
            at: 1,
            what: Trouble::Overload { each, lasts },
            server: 0,
        }],
        flood: Some(Flood {
            from: SPAN.0,
            until: SPAN.1,
            each,
        }),
        ..Plan::without_faults(seed, terms, things, hosts)
    }
}

fn turn(random: &mut Random, thing: usize, think: Ms, wait: Ms) -> Step {
    Step::Turn(Turn {
        thing,
        after: up_to(random, think),
        strong: false,
        wait: Some(wait),
        lease: None,
        renew: true,
        cut: None,
        hold: 0,
        meanwhile: Meanwhile::Nothing,
        end: Ending::Unlock,
        ack: None,
    })
}
