//! What several clients did, and the rules by which it is right.
//!
//! Whoever runs them (the simulation, or a program on a real server) writes a [`History`] with one
//! clock that all share; [`check`] reads it and names what breaks a rule. Nothing in here runs, waits
//! or draws, so the rules are tested with histories written by hand.

mod barriers;
mod bounds;
mod counts;
mod exclusion;
mod fifo;
mod fires;
mod floods;
mod foreign;
mod handed;
mod latches;
mod leaders;
mod losses;
mod majorities;
mod moves;
mod record;
mod refusals;
mod replicated;
mod serving;
mod shares;
mod tickets;
mod tokens;
mod told;
mod turns;
mod verdict;

use std::fmt;

pub use self::{
    record::{
        Ack, Acquisition, Adoption, Again, Ahead, End, Flood, Foreign, Grant, Heard, History,
        LatchAct, LatchCall, Mode, Moved, Ms, Outcome, Part, Pause, Ran, Redirection, Sight,
        Started, Strike, Terms, TimedCall, Wiped,
    },
    turns::{History as TurnLog, Overlap, Turn, Turns},
    verdict::{EXCUSES, Verdict},
};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name.
    pub rule: &'static str,
    /// When it was broken, or seen to be.
    pub at: Ms,
    /// By whom, and how.
    pub what: String,
}

impl Violation {
    /// Tells of a broken rule.
    pub fn new(rule: &'static str, at: Ms, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { rule, at, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.rule, self.at, self.what)
    }
}

/// Names all that breaks a rule, in order of time.
pub fn check(history: &History) -> Vec<Violation> {
    judge(history).broken
}

/// Names all that breaks a rule, in order of time, and counts what is excused.
pub fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for rule in [
        exclusion::check,
        fifo::check,
        tokens::check,
        tickets::check,
        bounds::check,
        serving::check,
        shares::check,
        told::check,
        refusals::check,
        latches::check,
        barriers::check,
        leaders::check,
        fires::check,
        losses::check,
        counts::check,
        foreign::check,
        handed::check,
        majorities::check,
        moves::check,
        replicated::check,
        floods::check,
    ] {
        rule(history, &mut verdict);
    }
    verdict.broken.sort_by_key(|violation| violation.at);
    verdict
}
