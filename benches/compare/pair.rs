//! One lock and one unlock.

use std::{future::Future, time::Instant};

use raw::RawLock;
use redlock_rt::{Kind, Lock, RLock, Unlocked};

/// A task's work: one lock and one unlock.
pub(crate) trait Pair: Send + 'static {
    /// The commands that the server counts once for each call of this lock; none if that
    /// is not known.
    #[allow(dead_code, reason = "not every program counts calls")]
    const CALLS: &'static [&'static str] = &["evalsha", "restore", "hdel"];

    /// Returns when it had the lock.
    fn pair(&mut self) -> impl Future<Output = Instant> + Send;
}

impl<K: Kind> Pair for Lock<K> {
    async fn pair(&mut self) -> Instant {
        let guard = self.lock().await.expect("the lock is free or comes free");
        let held = Instant::now();
        let unlocked = guard.unlock().await.expect("the server answers");
        assert_eq!(unlocked, Unlocked::Released);
        held
    }
}

impl Pair for RawLock {
    async fn pair(&mut self) -> Instant {
        let taken = self.acquire().await.expect("the server answers");
        assert_eq!(taken, None, "the lock is free");
        let held = Instant::now();
        let free = self.release().await.expect("the server answers");
        assert_eq!(free, Some(true));
        held
    }
}

/// A lock whose guard is dropped instead of unlocked.
#[allow(dead_code, reason = "not every program drops guards")]
pub(crate) struct Dropping(pub(crate) RLock);

impl Pair for Dropping {
    async fn pair(&mut self) -> Instant {
        let guard = self.0.lock().await.expect("it comes free");
        let held = Instant::now();
        drop(guard);
        held
    }
}
