//! Locks that a release passes on to the next task of the same client.

use std::time::Duration;

use redlock_rt::{Client, Fenced, Kind, Lock, LockGuard, LockOptions, Reentrant};

/// A kind of lock of which one call ends a hold and begins the next.
pub trait Passed: Kind + Sized {
    /// That call.
    const SCRIPT: &str;

    /// The lock of that name.
    fn lock(client: &Client, name: &str) -> Lock<Self>;

    /// With these it is passed on.
    fn options() -> LockOptions;

    /// The fencing token, of a kind that has one.
    fn token(guard: &LockGuard<Self>) -> Option<u64>;
}

impl Passed for Fenced {
    const SCRIPT: &str = "fenced_pass";

    fn lock(client: &Client, name: &str) -> Lock<Self> {
        client.fenced_lock(name)
    }

    fn options() -> LockOptions {
        LockOptions::new()
    }

    fn token(guard: &LockGuard<Self>) -> Option<u64> {
        Some(guard.token())
    }
}

/// A renewed one is handed over without a call.
impl Passed for Reentrant {
    const SCRIPT: &str = "rlock_pass";

    fn lock(client: &Client, name: &str) -> Lock<Self> {
        client.rlock(name)
    }

    fn options() -> LockOptions {
        LockOptions::new()
            .lease(Duration::from_secs(60))
            .renew(false)
    }

    fn token(_: &LockGuard<Self>) -> Option<u64> {
        None
    }
}
