//! Mutexes of tests, some of which fail.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also behind a panic under the lock: what the harness keeps there is whole at every moment.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
