//! The primitives that the loom models replace by their own (`--cfg redlock_loom`; plain
//! `--cfg loom` would reconfigure Tokio as well).

#[cfg(redlock_loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(redlock_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks, and uses the state even after a panic under the lock: the states here are valid between
/// any two statements that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As [`lock`], of a mutex that the models do not look into.
#[cfg(redlock_loom)]
pub(crate) fn lock_std<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
#[cfg(not(redlock_loom))]
pub(crate) use self::lock as lock_std;
