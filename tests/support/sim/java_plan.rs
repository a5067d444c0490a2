//! Draws what a plan with Redisson's clients has of its own.

use super::generate::{one_of, up_to};
use super::plan::{Fault, Plan, Step, Thing, Trouble};
use crate::Random;
use crate::history::Ms;

/// For other numbers than those of the rest of the plan.
const ASIDE: u64 = 0x6a61_7661;
/// How often a seed has Redisson's clients, in a hundred.
const OFTEN: usize = 20;
/// The longest wait for permits, which Redisson may lose for ever, and of its own in fair queues.
const LONGEST: Ms = 3000;

pub(super) fn is_drawn(seed: u64) -> bool {
    Random::new(seed ^ ASIDE).percent(OFTEN)
}

/// What is shared: most often a lock whose scripts tell the two kinds of clients apart.
pub(super) fn things(random: &mut Random) -> Vec<Thing> {
    let few = |random: &mut Random| 1 + u32::try_from(random.below(3)).unwrap_or(0);
    let count = 1 + random.below(2);
    let mut things: Vec<Thing> = (0..count)
        .map(|_| match random.below(12) {
            0..=3 => Thing::Fair,
            4..=6 => Thing::ReadWrite,
            7 => Thing::Reentrant,
            8 | 9 => Thing::Fenced,
            10 => Thing::Permits(few(random)),
            _ if random.percent(50) => Thing::Semaphore(few(random)),
            _ => Thing::Spin,
        })
        .collect();
    if random.percent(15) {
        things.push(Thing::Latch(2 + random.bits() % 6));
    }
    things
}

impl Plan {
    /// Gives the last host, or the last two, a Redisson client, and what goes wrong there.
    pub(super) fn add_java(&mut self, random: &mut Random) {
        let hosts = self.hosts.len();
        let first = hosts - 1 - usize::from(hosts > 2 && random.percent(40));
        self.java = (first..hosts).collect();
        for (host, tasks) in self.hosts.iter_mut().enumerate() {
            for step in tasks.iter_mut().flatten() {
                let Step::Turn(turn) = step else { continue };
                let bounded = match self.things[turn.thing] {
                    Thing::Semaphore(_) | Thing::Permits(_) => true,
                    // Where all of ours have died, Redisson waits for them for five minutes.
                    Thing::Fair => host >= first,
                    _ => false,
                };
                if bounded {
                    turn.wait = Some(turn.wait.unwrap_or(LONGEST));
                }
            }
        }
        if self.faults.is_empty() && random.percent(40) {
            return;
        }
        for _ in 0..1 + random.below(3) {
            let latest = one_of(random, &[300, 2000, 6000]) as Ms;
            let host = first + random.below(hosts - first);
            let what = self.trouble_of_java(random, host);
            let at = 5 + up_to(random, latest);
            self.faults.push(Fault {
                at,
                server: 0,
                what,
            });
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    fn trouble_of_java(&self, random: &mut Random, host: usize) -> Trouble {
        let lasts = 50 + up_to(random, 5000);
        match random.below(8) {
            0..=4 => Trouble::CrashHost {
                host,
                silent: random.percent(30),
                lasts,
            },
            5 | 6 => Trouble::PauseHost { host, lasts },
            _ => {
                let by = 1000 + up_to(random, 300_000) as i64;
                // Also of a host of ours, where nothing comes of it.
                let host = random.below(self.hosts.len());
                let by = if random.percent(50) { by } else { -by };
                Trouble::SetWallClock { host, by }
            }
        }
    }
}
