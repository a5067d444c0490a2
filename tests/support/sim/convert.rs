//! A turn with a read-write lock that is converted to its other mode.

use redlock_rt::{ConvertError, Kind, Lock, LockGuard, ReadWriteLock};

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
        let call = ("downgrade", guard.downgrade());
        self.convert((entry, next), turn, call, (before, lock.read_lock()))
            .await;
    }

    /// Reads, then writes if nobody else reads.
    pub(super) async fn upgrade(&self, entry: Entry, turn: Turn, lock: ReadWriteLock) {
        let reading = self.take(entry, turn, lock.read_lock()).await;
        let Some((entry, Locked(guard, before))) = reading else {
            return;
        };
        let next = entry.converts(Mode::Exclusive);
        let call = ("try_upgrade", guard.try_upgrade());
        self.convert((entry, next), turn, call, (before, lock.write_lock()))
            .await;
    }

    /// Holds the lock in its other mode, or goes on in the one that it has.
    async fn convert<K: Kind + Send + Sync, L: Kind + Send + Sync>(
        &self,
        (before, next): (Entry, Entry),
        turn: Turn,
        (what, call): (
            &str,
            impl Future<Output = Result<LockGuard<L>, ConvertError<K>>> + Send,
        ),
        (old, new): (Lock<K>, Lock<L>),
    ) {
        let response = self.terms().response;
        match self.timed(before.process, what, response, call).await {
            Ok(guard) => {
                let held = Locked(guard, new);
                before.over("has converted");
                let lease = Some(turn.lease.unwrap_or_else(|| self.terms().lease));
                next.granted(&held.owner(), None, (lease, turn.renew), held.is_valid());
                self.keep(next, turn, held).await;
            }
            Err(refused) => {
                next.refused(Outcome::Failed(told(refused.error())));
                before.goes_on();
                self.keep(before, turn, Locked(refused.into_guard(), old))
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
}
