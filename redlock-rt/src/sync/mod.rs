//! The primitives: one file each, over the one engine.
//!
//! **Cancel safety**, here and in the docs of every method, means what is left in Redis and in the
//! process when the future is dropped at any of its awaits.

mod fence;
mod fenced;
mod fenced_value;
mod guard;
mod lock;
mod options;
mod rlock;
mod spin;

pub use self::fence::{FenceGate, StaleToken};
pub use self::fenced::{Fenced, FencedLock, FencedLockGuard};
pub use self::fenced_value::FencedValue;
pub use self::guard::LockGuard;
pub use self::lock::{Kind, Lock};
pub(crate) use self::options::check_lease;
pub use self::options::{LockOptions, Renew};
pub use self::rlock::{RLock, RLockGuard, Reentrant};
pub use self::spin::{Spin, SpinLock, SpinLockGuard};
