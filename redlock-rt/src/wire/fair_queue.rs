//! The queue of a fair lock's waiters: its keys and channels.

use std::time::Duration;

use super::keys;
use super::reply::Reply;
use super::script::{Call, Script, millis};
use crate::name::{HoldId, LockName};

/// The time-outs of a fair lock's waiters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FairTerms {
    /// How long the waiters of a client count as alive after its last beat.
    pub(crate) alive: Duration,
    /// The most that one waiter adds to the deadlines that Redisson computes for the waiters behind
    /// it. Redisson's `fairLockWaitTimeout`.
    pub(crate) longest: Duration,
}

/// The longest interval of beats. It limits how late a turn is found that nobody announced. A beat
/// extends deadlines that are less than a minute away, so no deadline passes between two beats.
const LONGEST_BEAT: Duration = Duration::from_secs(30);

/// The keys and channels of a queue.
#[derive(Debug)]
pub(crate) struct FairQueue {
    pub(super) name: LockName,
    pub(super) queue: String,
    deadlines: String,
    notes: String,
    /// A waiter's channel is this, a colon, and its owner.
    pub(super) prefix: String,
    pub(super) terms: FairTerms,
}

impl FairQueue {
    pub(super) fn new(name: LockName, terms: FairTerms) -> Self {
        Self {
            queue: keys::fair_queue(&name),
            deadlines: keys::fair_deadlines(&name),
            notes: keys::fair_notes(&name),
            prefix: keys::lock_channel(&name),
            name,
            terms,
        }
    }

    /// The interval in which a client sends its beat, and learns the head of the queue.
    pub(crate) fn beat_every(&self) -> Duration {
        (self.terms.alive / 3).min(LONGEST_BEAT)
    }

    /// The channel on which other kinds of clients announce a waiter's turn.
    pub(crate) fn channel_of(&self, waiter: &HoldId) -> String {
        [&self.prefix, ":", waiter.as_str()].concat()
    }

    /// Whether the reply to an attempt says that clients of another kind have the lock, or are queued
    /// beside the caller.
    pub(crate) fn is_mixed(&self, reply: &Reply) -> bool {
        matches!(reply, Reply::List(items) if matches!(items.as_slice(), [_, _, Reply::Int(1)]))
    }

    pub(super) fn keyed(&self, call: Call) -> Call {
        call.key(self.name.as_str())
            .key(&self.queue)
            .key(&self.deadlines)
            .key(&self.notes)
    }

    pub(super) fn call(&self, script: &'static Script) -> Call {
        self.keyed(Call::new(script))
            .publishing()
            .arg(keys::WAKE)
            .arg(&self.prefix)
            .number(millis(self.terms.longest))
    }
}
