//! The primitives that a loom model replaces by its own.

#[cfg(test)]
mod modelled;

use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard, PoisonError};
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

#[cfg(not(test))]
pub(crate) use self::lock_std as lock;
#[cfg(test)]
pub(crate) use self::modelled::{AtomicBool, Mutex, MutexGuard, lock, model};

/// Locks, and uses the state even after a panic under the lock: the states here are valid between
/// any two statements that can panic.
pub(crate) fn lock_std<T>(mutex: &StdMutex<T>) -> StdGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
