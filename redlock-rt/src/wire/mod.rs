//! The data in Redis: key and channel names, scripts, replies. No I/O, no clock.
//!
//! The format is Redisson's; `docs/protocol.md` lists every key.

mod barrier;
mod dump;
mod fair;
mod fair_queue;
mod fast_path;
mod fenced;
mod fenced_value;
mod identity;
mod inspection;
pub(crate) mod keys;
mod latch;
mod multi;
mod once;
mod one_slot;
mod operation;
mod permits;
mod profile;
mod recipe;
mod renew;
mod reply;
mod rlock;
mod rw;
mod script;
mod semaphore;
mod slot;
mod steal;
mod touch;
mod value;

pub(crate) use self::barrier::{BROKEN, BarrierWire, Generation, LEFT};
pub(crate) use self::fair::{Beat, Heartbeat, TurnMessage, beat, position as fair_position};
pub(crate) use self::fair_queue::{FairPlace, FairQueue};
pub(crate) use self::fast_path::{Carried, FastPath};
pub(crate) use self::fenced::{FencedWire, ask_leader, ask_token, present_leader, present_token};
pub(crate) use self::fenced_value::{FencedWrite, exec as exec_fenced, was_run};
pub use self::identity::ClientIdentity;
pub(crate) use self::identity::identity;
pub use self::inspection::{FoundKind, Holding, Inspection};
pub(crate) use self::inspection::{inspect, page as name_page, pattern_in, scan};
pub(crate) use self::latch::{GREATEST_COUNT, Gate, GateState, LatchWire, count_left, was_done};
pub(crate) use self::multi::{acquire_all, first_held, is_taken_together};
pub(crate) use self::once::{Found, Mark, OnceTerms, OnceWire};
pub(crate) use self::one_slot::Named;
pub(crate) use self::operation::{NOTED, Operation};
pub(crate) use self::permits::{ID_DIGITS, PermitsWire};
pub(crate) use self::profile::yields;
pub(crate) use self::recipe::{Ask, LockRecipe, Recipe, Relation, WantedLease};
pub(crate) use self::renew::{Renewal, renew};
pub use self::reply::Reply;
pub(crate) use self::reply::{
    AcquireReply, Acquired, Announcement, HoldReply, Holder, Malformed, Tokens,
};
pub(crate) use self::rlock::RLockWire;
pub(crate) use self::rw::{ReadWire, WriteWire};
pub(crate) use self::script::{Call, LONGEST_SPAN, Publish, Script};
pub(crate) use self::semaphore::SemaphoreWire;
pub(crate) use self::semaphore::{
    add as add_permits, available as available_permits, drain as drain_permits, set as set_permits,
};
pub(crate) use self::slot::Slot;
pub(crate) use self::steal::Steal;
pub(crate) use self::touch::{touch, touched};
pub(crate) use self::value::{ServerError, Value};
