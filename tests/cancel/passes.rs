//! Calls of a lock, fenced or with a fixed lease, which is passed on to the next task of the client by
//! one call.

use futures::poll;
use redlock_rt::{Error, Fenced, Lock, LockGuard, Reentrant, Unlocked};
use tests::Passed;
use tokio::{
    task::{JoinHandle, yield_now},
    time::timeout,
};

use crate::stage::{At, Stage, unlocked};

async fn lock<K: Passed>(lock: Lock<K>) -> Result<LockGuard<K>, Error> {
    lock.lock_with(K::options()).await
}

/// Waits in a separate task, as one of so many.
async fn waits<K: Passed>(stage: &mut Stage, count: usize) -> JoinHandle<bool> {
    let next = stage.passed::<K>();
    let next = tokio::spawn(async move { unlocked(Some(lock(next).await)).await });
    while stage.client.stats().waiting < count {
        yield_now().await;
    }
    next
}

async fn assert_served(stage: &mut Stage, at: At, waiting: JoinHandle<bool>) {
    stage.finish_events();
    let served = timeout(stage.next(), waiting).await;
    let served = served.unwrap_or_else(|_| panic!("{at:?}: the other is not served"));
    assert!(served.unwrap());
}

/// The dropped call passes the lock on.
async fn unlock<K: Passed>(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage.passed::<K>()).await.unwrap();
    let next = waits::<K>(stage, 1).await;
    let outcome = stage.drop_at(at, guard.unlock()).await;
    assert_served(stage, at, next).await;
    outcome
        .map(|outcome| assert_eq!(outcome.unwrap(), Unlocked::Released))
        .is_some()
}

/// The dropped call is passed the lock.
async fn next<K: Passed>(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage.passed::<K>()).await.unwrap();
    stage.then(move || drop(guard));
    let call = lock(stage.passed::<K>());
    unlocked(stage.drop_at(at, call).await).await
}

async fn before_another<K: Passed>(stage: &mut Stage, at: At) -> bool {
    let guard = lock(stage.passed::<K>()).await.unwrap();
    let mut call = Box::pin(lock(stage.passed::<K>()));
    assert!(poll!(&mut call).is_pending());
    let behind = waits::<K>(stage, 2).await;
    stage.then(move || drop(guard));
    let completed = unlocked(stage.drop_at(at, call).await).await;
    assert_served(stage, at, behind).await;
    completed
}

/// Makes a case of each kind of lock.
macro_rules! cases {
    ($($case:ident: $fenced:ident $fixed:ident;)*) => {
        $(
            pub(crate) async fn $fenced(stage: &mut Stage, at: At) -> bool {
                $case::<Fenced>(stage, at).await
            }

            pub(crate) async fn $fixed(stage: &mut Stage, at: At) -> bool {
                $case::<Reentrant>(stage, at).await
            }
        )*
    };
}

cases! {
    unlock: fenced_unlock_that_passes_on unlock_that_passes_on;
    next: fenced_lock_that_is_passed_on lock_that_is_passed_on;
    before_another:
        fenced_lock_that_is_passed_on_before_another_waiter
        lock_that_is_passed_on_before_another_waiter;
}
