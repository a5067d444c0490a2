//! The queue of a fair lock's waiters: its keys and channels.

use std::time::Duration;

use super::keys::{self, Channel};
use super::reply::{Malformed, Reply, ttl_of};
use super::script::{Call, Script, millis};
use crate::name::{HoldId, LockName};

/// The most that one waiter adds to the deadlines that Redisson computes for the waiters behind it:
/// Redisson's `fairLockWaitTimeout`.
pub(super) const LONGEST: Duration = Duration::from_secs(300);

/// The longest interval of beats. It limits how late a turn without an announcement is found. A beat
/// extends deadlines that are less than a minute away, so no deadline passes between two beats.
const LONGEST_BEAT: Duration = Duration::from_secs(30);

/// The place of a waiter in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FairPlace {
    /// Whether no other waiter is before it.
    pub(crate) is_next: bool,
    /// The remaining lease of the holder; `None` if the lock has no TTL.
    pub(crate) lease: Option<Duration>,
    /// Whether clients of another kind have the lock, or are queued too.
    pub(crate) mixed: bool,
    /// When Redis answered the call that queued the waiter, in microseconds. Later waiters have greater
    /// numbers, unless the server's clock was set back.
    pub(crate) at: u64,
}

impl FairPlace {
    /// Reads the reply to an attempt that was refused.
    pub(super) fn decode(reply: Reply) -> Result<Self, Malformed> {
        reply.read(|items| match items {
            [
                Reply::Int(ttl @ -1..),
                Reply::Int(behind @ 0..=1),
                Reply::Int(mixed @ 0..=1),
                Reply::Int(at @ 0..),
            ] => Some(Self {
                is_next: *behind == 0,
                lease: ttl_of(*ttl),
                mixed: *mixed == 1,
                at: at.unsigned_abs(),
            }),
            _ => None,
        })
    }
}

/// The calls of a FairLock: the parts of its queue's keys and channels, and its time-out.
#[derive(Debug)]
pub(crate) struct FairQueue {
    pub(super) name: LockName,
    /// How long the waiters of a client count as alive after its last beat.
    pub(crate) alive: Duration,
}

impl FairQueue {
    pub(crate) fn new(name: LockName, alive: Duration) -> Self {
        Self { name, alive }
    }

    /// The interval in which a client sends its beat, and learns which waiter is the head.
    pub(crate) fn beat_every(&self) -> Duration {
        (self.alive / 3).min(LONGEST_BEAT)
    }

    /// A waiter's channel is this, a colon, and its owner.
    pub(super) fn prefix(&self) -> Channel<'_> {
        keys::lock_channel(&self.name)
    }

    /// The channel on which other kinds of clients announce a waiter's turn.
    pub(crate) fn channel_of(&self, waiter: &HoldId) -> String {
        format!("{}:{}", String::from(self.prefix()), waiter.as_str())
    }

    pub(super) fn keyed(&self, call: Call) -> Call {
        let name = &self.name;
        call.key(name.as_str())
            .key(&keys::fair_queue(name))
            .key(&keys::fair_deadlines(name))
            .key(&keys::fair_notes(name))
    }

    pub(super) fn call(&self, script: &'static Script) -> Call {
        self.keyed(Call::new(script))
            .publishing()
            .arg(keys::WAKE)
            .channel_arg(self.prefix())
            .number(millis(LONGEST))
    }
}
