//! What stands in Redis: key and channel names, scripts, replies. No I/O, no clock.
//!
//! The format is Redisson's; `docs/protocol.md` has it key by key.

pub(crate) mod keys;
mod reply;
mod rlock;
mod script;

pub(crate) use self::reply::{AcquireReply, HoldReply, Malformed, Reply};
pub(crate) use self::rlock::{Holder, RLockWire};
pub(crate) use self::script::{Call, Script};

use crate::name::{LockName, OwnerId};
use std::time::Duration;

/// What differs between lock kinds on the wire; the engine knows nothing else of them.
///
/// Every state-changing call sets the state that it means, so it may be repeated after a lost
/// reply, and none but [`acquire`](Self::acquire) creates anything.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// Tells kinds apart where holds are looked up by name, for re-entry.
    fn kind(&self) -> &'static str;

    /// The key that is locked.
    fn name(&self) -> &LockName;

    /// Where releases are announced; `None` where waiters can only poll.
    fn channel(&self) -> Option<&str>;

    /// Takes the lock for a new hold. Answered by [`AcquireReply`].
    fn acquire(&self, owner: &OwnerId, lease: Duration) -> Call;

    /// Sets the hold count and never shortens the lease. Answered by [`HoldReply`].
    fn update(&self, owner: &OwnerId, lease: Duration, count: u32) -> Call;

    /// Ends the hold. Answered by [`HoldReply`].
    fn release(&self, owner: &OwnerId) -> Call;

    /// Frees the lock whoever holds it. Answers 1 or 0.
    fn force_release(&self) -> Call;

    /// Asks who holds it. Answered by [`Holder::decode`].
    fn inspect(&self) -> Call;
}
