//! The queue of those who wait for a fair lock: its keys and channels.

use std::time::Duration;

use super::keys;
use super::reply::Reply;
use super::script::{Call, PUBLISH, Script, millis};
use crate::name::{HoldId, LockName};

/// What the waiters of a fair lock are granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FairTerms {
    /// How long the waiters of a client that was not heard count as alive.
    pub(crate) alive: Duration,
    /// How long a waiter counts at most for the deadlines by which Redisson judges those behind it.
    /// Redisson's `fairLockWaitTimeout`.
    pub(crate) longest: Duration,
}

/// A turn that nobody announced is found after so long at the latest; and often enough that no
/// deadline passes between two beats, which put it off a minute before.
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

    /// How often a client must be heard, and hears whose turn it is.
    pub(crate) fn beat_every(&self) -> Duration {
        (self.terms.alive / 3).min(LONGEST_BEAT)
    }

    /// The channel on which clients that are not ours announce a waiter's turn.
    pub(crate) fn channel_of(&self, waiter: &HoldId) -> String {
        [&self.prefix, ":", waiter.as_str()].concat()
    }

    /// Whether the answer to an attempt to acquire says that clients that are not ours have the lock,
    /// or are queued beside the one that asked.
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
            .arg(PUBLISH)
            .arg(keys::WAKE)
            .arg(&self.prefix)
            .number(millis(self.terms.longest))
    }
}
