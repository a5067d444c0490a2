//! What the rules say of a history: what breaks one, and what would if it were not excused.

use std::collections::BTreeMap;

use super::Violation;

/// All that excuses what would break a rule: the rule, and the reason. `docs/testing.md` explains each.
pub const EXCUSES: [&str; 42] = [
    "barrier: forgotten",
    "bound: stood still",
    "count: late",
    "count: failed over",
    "exclusion: forgotten",
    "exclusion: failed over",
    "exclusion: repeated by another kind",
    "exclusion: given back by another kind",
    "exclusion: set by another kind",
    "fifo: struck",
    "fifo: forgotten",
    "foreign: clocks",
    "foreign: struck",
    "handed: stood still",
    "latch: forgotten",
    "latch: failed over",
    "latch: repeated by another kind",
    "leader: struck",
    "loss: forgotten",
    "loss: struck",
    "loss: taken back by another kind",
    "loss: keys apart",
    "majority: forgotten",
    "majority: struck",
    "majority: shut down",
    "moved: struck",
    "moved: told late",
    "moved: nobody waits",
    "moved: short of lease",
    "moved: forgotten",
    "once: forgotten",
    "refusal: two servers",
    "refusal: own client",
    "refusal: struck",
    "replicated: forgotten",
    "replicated: struck",
    "serving: struck",
    "serving: failed over",
    "serving: not announced",
    "serving: waits for replicas",
    "told: struck",
    "tokens: forgotten",
];

/// See the module.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What breaks a rule.
    pub broken: Vec<Violation>,
    /// How often which of [`EXCUSES`] kept something from breaking one.
    pub excused: BTreeMap<&'static str, usize>,
}

impl Verdict {
    pub(super) fn push(&mut self, violation: Violation) {
        self.broken.push(violation);
    }

    /// Counts an excuse for what would break a rule, if it is one here.
    pub(super) fn excuses(&mut self, excuse: &'static str, holds: bool) -> bool {
        debug_assert!(EXCUSES.contains(&excuse), "{excuse}");
        if holds {
            *self.excused.entry(excuse).or_default() += 1;
        }
        holds
    }
}
