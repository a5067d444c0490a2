//! What stands in Redis: key and channel names, scripts, replies. No I/O, no clock.
//!
//! The format is Redisson's; `docs/protocol.md` has it key by key.

pub(crate) mod keys;
mod multi;
mod recipe;
mod renew;
mod reply;
mod rlock;
mod script;

pub(crate) use self::multi::{Together, acquire_all, is_taken_together};
pub(crate) use self::recipe::{Ask, Recipe, Relation};
pub(crate) use self::renew::{Renewal, renew};
pub(crate) use self::reply::{AcquireReply, HoldReply, Holder, Malformed, Reply};
pub(crate) use self::rlock::RLockWire;
pub(crate) use self::script::{Call, Script};
