//! Everything that ends, frees or gives back what tasks of the same client may wait for.

use std::{future::Future, pin::Pin};

use redlock_rt::{Client, LockOptions, Unlocked};
use tests::{Proxy, eventually};
use tokio::task::JoinHandle;

use crate::DEADLINE;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
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

pub(crate) const ENDS: [End; 16] = [
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

fn assert_ended(unlocked: Unlocked) {
    assert!(!matches!(unlocked, Unlocked::AlreadyExpired));
}

impl End {
    /// Something is held and a task waits for it: the end, and that wait.
    async fn prepared(self, client: &Client, name: &str) -> (Boxed, Boxed) {
        let plain = client.semaphore(name);
        let leased = client.permit_expirable_semaphore(name);
        let latch = client.count_down_latch(name);
        let rw = client.read_write_lock(name);
        match self {
            Self::Lock => {
                let lock = client.rlock(name);
                let guard = lock.lock().await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.unlock().await.unwrap()) }),
                    Box::pin(async move { drop(lock.lock().await.unwrap()) }),
                )
            }
            Self::Forced => {
                let lock = client.rlock(name);
                let guard = lock.lock().await.unwrap();
                let forced = lock.clone();
                (
                    Box::pin(async move {
                        assert!(forced.force_unlock().await.unwrap());
                        drop(guard);
                    }),
                    Box::pin(async move { drop(lock.lock().await.unwrap()) }),
                )
            }
            Self::Reader => {
                let guard = rw.read_lock().lock().await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.unlock().await.unwrap()) }),
                    Box::pin(async move { drop(rw.write_lock().lock().await.unwrap()) }),
                )
            }
            Self::Writer => {
                let guard = rw.write_lock().lock().await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.unlock().await.unwrap()) }),
                    Box::pin(async move { drop(rw.read_lock().lock().await.unwrap()) }),
                )
            }
            Self::Fair => {
                let lock = client.fair_lock(name);
                let guard = lock.lock().await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.unlock().await.unwrap()) }),
                    Box::pin(async move { drop(lock.lock().await.unwrap()) }),
                )
            }
            Self::FairForced => {
                let lock = client.fair_lock(name);
                let guard = lock.lock().await.unwrap();
                let forced = lock.clone();
                (
                    Box::pin(async move {
                        assert!(forced.force_unlock().await.unwrap());
                        drop(guard);
                    }),
                    Box::pin(async move { drop(lock.lock().await.unwrap()) }),
                )
            }
            Self::MinHold => {
                let lock = client.rlock(name);
                let min = LockOptions::new().min_hold(std::time::Duration::from_millis(500));
                let guard = lock.lock_with(min).await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.unlock().await.unwrap()) }),
                    Box::pin(async move { drop(lock.lock().await.unwrap()) }),
                )
            }
            Self::Permits => {
                assert!(plain.try_set_permits(1).await.unwrap());
                let guard = plain.acquire().await.unwrap();
                (
                    Box::pin(async move { assert_ended(guard.release().await.unwrap()) }),
                    Box::pin(async move { plain.acquire().await.unwrap().forget() }),
                )
            }
            Self::PermitsAdded => {
                assert!(plain.try_set_permits(0).await.unwrap());
                let adding = plain.clone();
                (
                    Box::pin(async move { adding.release(1).await.unwrap() }),
                    Box::pin(async move { plain.acquire().await.unwrap().forget() }),
                )
            }
            Self::PermitsSet => {
                let setting = plain.clone();
                (
                    Box::pin(async move { assert!(setting.try_set_permits(1).await.unwrap()) }),
                    Box::pin(async move { plain.acquire().await.unwrap().forget() }),
                )
            }
            Self::Leased => {
                assert!(leased.try_set_permits(1).await.unwrap());
                let permit = leased.acquire().await.unwrap();
                (
                    Box::pin(async move { assert_ended(permit.release().await.unwrap()) }),
                    Box::pin(async move { drop(leased.acquire().await.unwrap()) }),
                )
            }
            Self::LeasedById => {
                assert!(leased.try_set_permits(1).await.unwrap());
                let id = leased.acquire().await.unwrap().forget().remove(0);
                let giving = leased.clone();
                (
                    Box::pin(async move { giving.release(&id).await.unwrap() }),
                    Box::pin(async move { drop(leased.acquire().await.unwrap()) }),
                )
            }
            Self::LeasedSet => {
                assert!(leased.try_set_permits(0).await.unwrap());
                let setting = leased.clone();
                (
                    Box::pin(async move { setting.set_permits(1).await.unwrap() }),
                    Box::pin(async move { drop(leased.acquire().await.unwrap()) }),
                )
            }
            Self::CountDown | Self::CountDownDropped | Self::LatchDeleted => {
                assert!(latch.try_set_count(1).await.unwrap());
                let counted = latch.clone();
                let end: Boxed = match self {
                    Self::CountDown => Box::pin(async move {
                        assert_eq!(counted.count_down().await.unwrap(), 0);
                    }),
                    Self::LatchDeleted => Box::pin(async move {
                        assert!(counted.delete().await.unwrap());
                    }),
                    _ => Box::pin(async move { drop(counted.count_down_guard().unwrap()) }),
                };
                (end, Box::pin(async move { drop(latch.wait().await) }))
            }
        }
    }

    /// Has a task wait that listens: what remains is the end, which wakes it.
    pub(crate) async fn awaited(
        self,
        client: &Client,
        proxy: &Proxy,
        name: &str,
    ) -> (Boxed, JoinHandle<()>) {
        let (end, wait) = self.prepared(client, name).await;
        let waiter = tokio::spawn(wait);
        eventually(DEADLINE, async || client.stats().waiting == 1).await;
        proxy.wait_for_answer("SUBSCRIBE").await;
        // Behind what the waiter asks once it listens: it was told that it has to wait.
        for _ in 0..3 {
            client.rlock("another").is_locked().await.unwrap();
        }
        (end, waiter)
    }
}
