//! All operations that end a wait of the same client: releases, additions, forced ends.

use std::{pin::Pin, time::Duration};

use redlock_rt::{Client, LockOptions, Unlocked};
use tokio::task::JoinHandle;

use crate::{DEADLINE, Proxy, eventually};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One operation that ends the wait of a task of the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum End {
    Lock,
    Forced,
    Reader,
    Writer,
    Fair,
    FairForced,
    MinHold,
    Permits,
    PermitsAdded,
    PermitsSet,
    Leased,
    LeasedById,
    LeasedSet,
    CountDown,
    CountDownDropped,
    LatchDeleted,
}

/// All of them.
pub const ENDS: [End; 16] = [
    End::Lock,
    End::Forced,
    End::Reader,
    End::Writer,
    End::Fair,
    End::FairForced,
    End::MinHold,
    End::Permits,
    End::PermitsAdded,
    End::PermitsSet,
    End::Leased,
    End::LeasedById,
    End::LeasedSet,
    End::CountDown,
    End::CountDownDropped,
    End::LatchDeleted,
];

/// The operation, and the wait that it ends.
fn pair(
    end: impl Future<Output = ()> + Send + 'static,
    wait: impl Future<Output = ()> + Send + 'static,
) -> (Boxed, Boxed) {
    (Box::pin(end), Box::pin(wait))
}

fn assert_ended(unlocked: Unlocked) {
    assert!(!matches!(unlocked, Unlocked::AlreadyExpired));
}

/// Releases the guard of `$locking`, for which `$lock` waits.
macro_rules! unlocked {
    ($locking:expr, $lock:expr) => {{
        let (guard, lock) = ($locking.await.unwrap(), $lock.clone());
        pair(
            async move { assert_ended(guard.unlock().await.unwrap()) },
            async move { drop(lock.lock().await.unwrap()) },
        )
    }};
}

/// The lock is taken from its holder.
macro_rules! forced {
    ($lock:expr) => {{
        let (guard, forced, lock) = ($lock.lock().await.unwrap(), $lock.clone(), $lock.clone());
        pair(
            async move {
                assert!(forced.force_unlock().await.unwrap());
                drop(guard);
            },
            async move { drop(lock.lock().await.unwrap()) },
        )
    }};
}

impl End {
    /// Holds something, or leaves it unset, and has a task wait for it. Returns the operation and that
    /// wait.
    async fn prepared(self, client: &Client, name: &str) -> (Boxed, Boxed) {
        let (lock, fair) = (client.rlock(name), client.fair_lock(name));
        let rw = client.read_write_lock(name);
        let (reader, writer) = (rw.read_lock(), rw.write_lock());
        let late = LockOptions::new().min_hold(Duration::from_millis(500));
        let plain = client.semaphore(name);
        let takes = {
            let plain = plain.clone();
            async move { plain.acquire().await.unwrap().forget() }
        };
        let leased = client.permit_expirable_semaphore(name);
        let leases = {
            let leased = leased.clone();
            async move { drop(leased.acquire().await.unwrap()) }
        };
        let latch = client.count_down_latch(name);
        let passes = {
            let latch = latch.clone();
            async move { drop(latch.wait().await) }
        };
        if matches!(
            self,
            Self::CountDown | Self::CountDownDropped | Self::LatchDeleted
        ) {
            assert!(latch.try_set_count(1).await.unwrap());
        }
        match self {
            Self::Lock => unlocked!(lock.lock(), lock),
            Self::Forced => forced!(lock),
            Self::Reader => unlocked!(reader.lock(), writer),
            Self::Writer => unlocked!(writer.lock(), reader),
            Self::Fair => unlocked!(fair.lock(), fair),
            Self::FairForced => forced!(fair),
            Self::MinHold => unlocked!(lock.lock_with(late), lock),
            Self::Permits => {
                assert!(plain.try_set_permits(1).await.unwrap());
                let guard = plain.acquire().await.unwrap();
                let end = async move { assert_ended(guard.release().await.unwrap()) };
                pair(end, takes)
            }
            Self::PermitsAdded => {
                assert!(plain.try_set_permits(0).await.unwrap());
                pair(async move { plain.release(1).await.unwrap() }, takes)
            }
            Self::PermitsSet => {
                let end = async move { assert!(plain.try_set_permits(1).await.unwrap()) };
                pair(end, takes)
            }
            Self::Leased => {
                assert!(leased.try_set_permits(1).await.unwrap());
                let permit = leased.acquire().await.unwrap();
                let end = async move { assert_ended(permit.release().await.unwrap()) };
                pair(end, leases)
            }
            Self::LeasedById => {
                assert!(leased.try_set_permits(1).await.unwrap());
                let id = leased.acquire().await.unwrap().forget().remove(0);
                pair(async move { leased.release(&id).await.unwrap() }, leases)
            }
            Self::LeasedSet => {
                assert!(leased.try_set_permits(0).await.unwrap());
                pair(async move { leased.set_permits(1).await.unwrap() }, leases)
            }
            Self::CountDown => {
                let end = async move { assert_eq!(latch.count_down().await.unwrap(), 0) };
                pair(end, passes)
            }
            Self::CountDownDropped => {
                let end = async move { drop(latch.count_down_guard().unwrap()) };
                pair(end, passes)
            }
            Self::LatchDeleted => pair(
                async move { assert!(latch.delete().await.unwrap()) },
                passes,
            ),
        }
    }

    /// Has a task wait until it is subscribed. Returns the operation that wakes it.
    pub async fn awaited(
        self,
        client: &Client,
        proxy: &Proxy,
        name: &str,
    ) -> (Boxed, JoinHandle<()>) {
        let (end, wait) = self.prepared(client, name).await;
        let waiter = tokio::spawn(wait);
        eventually(DEADLINE, async || client.stats().waiting == 1).await;
        proxy.wait_for_answer("SUBSCRIBE").await;
        // After the waiter's try that follows its subscription, which was refused.
        for _ in 0..3 {
            client.rlock("another").is_locked().await.unwrap();
        }
        (end, waiter)
    }
}
