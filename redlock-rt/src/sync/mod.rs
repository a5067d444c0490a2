//! The primitives: one file each, over the one engine.
//!
//! **Cancel safety**, here and in the docs of every method, means what is left in Redis and in the
//! process when the future is dropped at any of its awaits.

mod ballot;
mod group;
mod guard;
mod lock;
mod multi_lock;
mod options;
mod redlock;
mod rlock;

pub use self::guard::LockGuard;
pub use self::lock::{Kind, Lock};
pub use self::multi_lock::{MultiLock, MultiLockGuard, Part};
pub(crate) use self::options::check_lease;
pub use self::options::{LockOptions, Renew};
pub use self::redlock::{Quorum, RedLock, RedLockGuard};
pub use self::rlock::{RLock, RLockGuard, Reentrant};
