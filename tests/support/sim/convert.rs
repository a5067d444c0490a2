//! A turn with a read-write lock that is converted to its other mode.

use redlock_rt::{Error, Kind, Lock, LockGuard, ReadWriteLock};

use super::act::{Host, told};
use super::guard::{Hold, Locked};
use super::log::Entry;
use super::plan::Turn;
use super::turn::options;
use crate::history::{Mode, Outcome};

impl Host {
    /// Writes, then reads.
    pub(super) async fn downgrade(&self, entry: Entry, turn: Turn, lock: ReadWriteLock) {
        let writing = self.take(entry, turn, lock.write_lock()).await;
        let Some((entry, Locked(guard, before))) = writing else {
            return;
        };
        let next = entry.converts(Mode::Shared);
        let response = self.terms().response;
        match self
            .timed(entry.process, "downgrade", response, guard.downgrade())
            .await
        {
            Ok(guard) => {
                self.converted(entry, next, turn, Locked(guard, lock.read_lock()))
                    .await
            }
            Err(refused) => {
                next.refused(failed(refused.error()));
                self.unchanged(entry, turn, Locked(refused.into_guard(), before))
                    .await;
            }
        }
    }

    /// Reads, then writes if nobody else reads.
    pub(super) async fn upgrade(&self, entry: Entry, turn: Turn, lock: ReadWriteLock) {
        let reading = self.take(entry, turn, lock.read_lock()).await;
        let Some((entry, Locked(guard, before))) = reading else {
            return;
        };
        let next = entry.converts(Mode::Exclusive);
        let response = self.terms().response;
        match self
            .timed(entry.process, "try_upgrade", response, guard.try_upgrade())
            .await
        {
            Ok(guard) => {
                self.converted(entry, next, turn, Locked(guard, lock.write_lock()))
                    .await
            }
            Err(refused) => {
                next.refused(failed(refused.error()));
                self.unchanged(entry, turn, Locked(refused.into_guard(), before))
                    .await;
            }
        }
    }

    /// Waits for the lock; `None`: it was not given out.
    pub(super) async fn take<K: Kind + Send + Sync>(
        &self,
        entry: Entry,
        turn: Turn,
        lock: Lock<K>,
    ) -> Option<(Entry, Locked<K>)> {
        let acquire = async {
            let guard: LockGuard<K> = lock.lock_with(options(turn)).await?;
            Ok(Locked(guard, lock.clone()))
        };
        self.acquire(entry, turn, acquire, |_| None).await
    }

    async fn converted<H: Hold>(&self, before: Entry, now: Entry, turn: Turn, held: H) {
        before.over("has converted");
        let lease = Some(turn.lease.unwrap_or_else(|| self.terms().lease));
        now.granted(&held.owner(), None, (lease, turn.renew), held.is_valid());
        self.keep(now, turn, held).await;
    }

    async fn unchanged<H: Hold>(&self, entry: Entry, turn: Turn, held: H) {
        entry.goes_on();
        self.keep(entry, turn, held).await;
    }
}

fn failed(error: &Error) -> Outcome {
    Outcome::Failed(told(error))
}
