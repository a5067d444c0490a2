//! A lock that is taken and given back.

use std::panic::Location;

use redlock_rt::{Kind, Lock, Unlocked};

/// Takes the lock, waiting as the client says, and releases it.
#[track_caller]
pub fn lock_and_unlock<K: Kind>(lock: &Lock<K>) -> impl Future<Output = Unlocked> {
    let caller = Location::caller();
    async move {
        let guard = lock.lock().await;
        let guard = guard.unwrap_or_else(|error| panic!("{caller}: {error}"));
        let unlocked = guard.unlock().await;
        unlocked.unwrap_or_else(|error| panic!("{caller}: {error}"))
    }
}
