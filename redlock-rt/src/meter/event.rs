//! What happened.

use crate::error::LostReason;

/// What happened to a lock, or to permits, of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockEvent {
    Acquired,
    Suspect,
    ValidAgain,
    Lost(LostReason),
    Released,
}
