//! The primitives: one file each, over the common engine.
//!
//! **Cancel safety**, here and in the docs of every method, says what is left in Redis and in the
//! process when the future is dropped at any of its awaits.

mod barrier;
mod convert;
mod counted;
mod fair;
mod fence;
mod fenced;
mod fenced_value;
mod group;
mod guard;
mod idempotent;
mod kind;
mod latch;
mod leader;
mod lock;
mod majority;
mod multi_lock;
mod once;
mod options;
mod permit;
mod permit_options;
mod permits;
mod read_write;
mod redlock;
mod rlock;
mod semaphore;
mod spin;
mod ticket;

pub use self::barrier::{Arrival, CyclicBarrier, DoubleBarrier, DoubleBarrierGuard};
pub use self::convert::{ConvertError, DowngradeError, UpgradeError};
pub use self::fair::{Fair, FairLock, FairLockGuard};
pub use self::fence::{FenceGate, StaleToken};
pub use self::fenced::{Fenced, FencedLock, FencedLockGuard};
pub use self::fenced_value::FencedValue;
pub use self::guard::{LockGuard, OnLost};
pub use self::idempotent::{Answer, Idempotent};
pub use self::kind::{Adoptable, Kind};
pub use self::latch::{CountDownGuard, CountDownLatch};
pub use self::leader::{Leader, LeaderElection, Leadership};
pub use self::lock::Lock;
pub use self::multi_lock::{MultiLock, MultiLockGuard, Part};
pub use self::once::{Fire, FireGuard, Fires, Once};
pub(crate) use self::options::check_lease;
pub use self::options::{LockOptions, Renew};
pub use self::permit::LeasedPermit;
pub use self::permit_options::PermitOptions;
pub use self::permits::PermitExpirableSemaphore;
pub use self::read_write::{
    Read, ReadGuard, ReadLock, ReadWriteLock, Write, WriteGuard, WriteLock,
};
pub use self::redlock::{Quorum, RedLock, RedLockGuard};
pub use self::rlock::{RLock, RLockGuard, Reentrant};
pub use self::semaphore::{Semaphore, SemaphorePermit};
pub use self::spin::{Spin, SpinLock, SpinLockGuard};
pub use self::ticket::Ticket;
