//! The ways in which a command or its reply is lost.

use super::{Matcher, Proxy};

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
    /// Loses the next `times` of these calls.
    pub fn lose(&self, loss: Loss, calls: impl Into<Matcher>, times: usize) {
        let calls = calls.into();
        match loss {
            Loss::Reply => self.swallow_reply(calls, times),
            Loss::Request => self.swallow_request(calls, times),
            Loss::CutAfter => (0..times).for_each(|_| self.cut_after_request(calls.clone())),
            Loss::CutBefore => (0..times).for_each(|_| self.cut_before_request(calls.clone())),
        }
    }
}
