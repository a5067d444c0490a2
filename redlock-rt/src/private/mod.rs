//! The functions that expanded code calls. Exempt from semantic versioning.
//!
//! As little as possible is generic: an expansion is compiled with each function under the
//! attribute, this module only once.

mod call;
mod fires;
mod guard;
mod key;
mod output;
mod refusal;
mod run;
mod session;

pub use ::core;

pub use crate::blocking::BlockOn;
pub use crate::engine::{Fsync, Owner, ReplicaAck};
pub use crate::sync::LockOptions;

pub use self::call::{AttributeCall, LockKind, Primitive, client, fire, renew};
pub use self::fires::{RunsOnce, fires};
pub use self::guard::{Guard, Held};
pub use self::key::{Key, Segment, key, key_of, keys, list};
pub use self::output::{Deferred, Immediate, Keep, Output, Sendable, Unsendable, never};
pub use self::refusal::{FromLockError, RefusalKind, Skip, map_err, refusal_kind, skip, skipped};
pub use self::run::{Entering, Run};
pub use self::session::{LockedBody, OnLost};

const ACTION: &str = "run a function under a lock";
