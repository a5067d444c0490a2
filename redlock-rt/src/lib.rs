//! Distributed locks and synchronisers on Redis for async Rust, wire-compatible with Redisson.

mod client;
mod clock;
mod connection;
#[cfg(feature = "embedded")]
pub mod embedded;
mod engine;
mod error;
mod name;
mod shim;
mod sync;
mod wire;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use client::{Client, ClientBuilder, Shutdown, Stats, default_client, set_default_client};
pub use engine::{GuardState, LostReason, Owner, Unlocked};
pub use error::{Error, ErrorKind};
pub use name::OwnerId;
pub use sync::{Kind, Lock, LockGuard, LockOptions, RLock, RLockGuard, Reentrant, Renew};
