//! The ways in which a command or its reply is lost.

use super::{
    Matcher, Proxy,
    state::{Action, Phase},
};

/// How a command or its reply is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The command runs, but no reply comes on the connection, which stays open.
    Reply,
    /// The command does not arrive, and the connection stays open.
    Request,
    /// The connection ends after the command has run.
    CutAfter,
    /// The connection ends before the command arrives.
    CutBefore,
}

impl Loss {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reply, Self::Request, Self::CutAfter, Self::CutBefore];
}

impl Proxy {
    /// Loses the next `times` of these calls, of which there has to be one.
    pub fn lose(&self, loss: Loss, calls: impl Into<Matcher>, times: usize) {
        let (phase, action) = match loss {
            Loss::Reply => (Phase::Reply, Action::Swallow),
            Loss::Request => (Phase::Request, Action::Swallow),
            Loss::CutAfter => (Phase::Reply, Action::Cut),
            Loss::CutBefore => (Phase::Request, Action::Cut),
        };
        self.state
            .add_rule(phase, calls.into(), action, Some(times), true);
    }
}
