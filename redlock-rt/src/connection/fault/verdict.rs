//! What each caller does about a fault.

use super::{Cause, Fault, Stage};

/// The caller that decides what to do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Waits for a lock or a latch.
    Waiter,
    /// Waits for the answer to one call that may be repeated.
    Call,
    /// As [`Call`](Self::Call), for a call that must not run twice.
    CallOnce,
    /// Sends a call that must not be omitted: a release, permits to give back, a count.
    Cleanup,
    /// Renews leases, many in one call.
    Renewal,
    /// Sends heartbeats for the waiters of a fair queue.
    Beat,
    /// Subscribes to a channel.
    Subscription,
}

/// What to do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send it again, after a pause.
    Again,
    /// Send each part separately: one of them may have made all fail.
    Apart,
    /// Give up, with this error.
    Fail,
}

impl Fault {
    /// What `caller` does about it: the table in docs/faults.md.
    pub(crate) fn verdict(&self, caller: Caller) -> Verdict {
        use self::Caller::{Beat, CallOnce, Cleanup, Renewal, Subscription};
        use self::Cause::{
            Closed, Denied, Failed, Loaded, Misconfigured, Misdirected, NoScripts, Passing,
            WrongType,
        };
        use self::Stage::{Answered, Dialing, Unanswered};
        match (caller, self.stage, self.cause) {
            (_, _, Closed) => Verdict::Fail,
            // A failure to connect says nothing about a call that must be sent eventually.
            (Cleanup | Renewal | Beat, Dialing, _) => Verdict::Again,
            // Another connection may lead to a working server.
            (Cleanup | Renewal | Beat | Subscription, Unanswered, _) => Verdict::Again,
            (CallOnce, Unanswered | Answered, _) => Verdict::Fail,
            // Another hold of the call is the reason.
            (Renewal, Answered, Passing) => Verdict::Apart,
            (_, _, Passing | Loaded) => Verdict::Again,
            (Renewal, _, _) => Verdict::Apart,
            (_, _, Denied | WrongType | Misdirected | Misconfigured | NoScripts | Failed) => {
                Verdict::Fail
            }
        }
    }

    /// Whether `caller` is to try again.
    pub(crate) fn is_passing_for(&self, caller: Caller) -> bool {
        self.verdict(caller) == Verdict::Again
    }
}
