//! The task of a quorum, which acquires lost parts again while enough others are left.
//!
//! The task sleeps while no part of any guard is missing. An acquired part counts only if enough
//! other parts are still there without interruption, asked *after* the acquisition. Otherwise
//! another client could have had a majority in between and released it, unnoticed.
//!
//! A majority is never restored: a guard with fewer parts is lost, and everything is released. Guards of one
//! name that are valid at the same time share their holds, since there can be only one majority. If a part
//! was acquired again for one guard, the others re-enter it. If each guard acquired the part separately,
//! they would compete.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;

use super::super::group::{Group, Parts};
use super::round::{RoundParams, is_silent};
use crate::clock;
use crate::connection::Home;
use crate::engine::{Hold, HoldGuard, Signal, ensure};
use crate::pause::{Growth, Pause};
use crate::shim::{Mutex, lock};

/// After a try that left a gap. The pause grows up to a third of the lease.
const PAUSE: Growth = Growth {
    shortest: Duration::from_millis(20),
    longest: Duration::MAX,
    factor: 2.0,
    least: 0.5,
};

/// A group under repair, with the parameters for its parts.
pub(super) struct RepairJob {
    pub(super) group: Arc<Group>,
    pub(super) asking: RoundParams,
    /// The servers without a part when the lock was acquired.
    pub(super) missing: BTreeSet<usize>,
    /// When the servers with a part were asked.
    pub(super) started: Instant,
    /// The runtime in which it was acquired; `None` if no runtime of a caller is needed.
    pub(super) home: Option<Home>,
}

impl RepairJob {
    /// For a group that a round has acquired. `missing`: where the round did not acquire the lock.
    pub(super) fn new(
        asking: &RoundParams,
        group: Group,
        missing: BTreeSet<usize>,
        started: Instant,
    ) -> Self {
        Self {
            group: Arc::new(group),
            asking: asking.clone(),
            missing,
            started,
            home: asking.engines.first().and_then(|engine| engine.home()),
        }
    }

    /// Repairs the group until it is released or lost; releases a lost group.
    async fn tend(self: &Arc<Self>, repairer: &Repairer) {
        tokio::select! {
            // First: a lost group is not repaired.
            biased;
            state = self.group.over() => {
                tracing::debug!(lock = &*self.group.name, ?state, "a group is over");
                self.group.leave();
            }
            () = self.mend(repairer) => {}
        }
    }

    /// Acquires lost parts again, in an endless loop.
    async fn mend(self: &Arc<Self>, repairer: &Repairer) {
        // A lease without renewal does not begin anew.
        if self.asking.terms.iter().any(|terms| terms.renew.is_none()) {
            return pending().await;
        }
        let longest = self.asking.terms.iter().map(|terms| terms.lease / 3).min();
        let longest = longest.unwrap_or_default().max(PAUSE.shortest);
        let mut pause = Pause::new(&PAUSE);
        loop {
            let gaps = self.gaps();
            tokio::select! {
                biased;
                // Not delayed by servers that stay unreachable.
                () = self.group.part_lost(&gaps) => pause.reset(),
                // Also at first: the servers were asked just now, and most locks are released before another
                // try is useful.
                () = clock::sleep(pause.take_up_to(longest)), if !gaps.is_empty() => {}
            }
            if !self.group.state().is_valid() {
                return pending().await;
            }
            self.fill(repairer, &self.gaps()).await;
        }
    }

    /// The servers where the group lacks a part.
    fn gaps(&self) -> BTreeSet<usize> {
        let (held, lost) = self.group.places();
        &(&lost | &self.missing) - &held
    }

    /// Tries once to acquire the missing parts.
    async fn fill(self: &Arc<Self>, repairer: &Repairer, gaps: &BTreeSet<usize>) {
        let until = clock::after(clock::now(), self.asking.server_timeout);
        let tries = gaps.iter();
        let tries = tries.map(|&place| self.acquire(repairer, place, until));
        let acquired: Parts = join_all(tries).await.into_iter().flatten().collect();
        if acquired.is_empty() {
            return;
        }
        let until = clock::after(clock::now(), self.asking.server_timeout);
        let confirmed = self.group.confirm(until).await;
        for (place, guard) in acquired {
            // A refused part is dropped, and so released.
            let admitted = self.group.admit(place, guard, &confirmed);
            tracing::debug!(lock = &*self.group.name, place, admitted, "a part is back");
        }
    }

    /// The remaining `max_hold` for a part that is acquired again now.
    pub(super) fn max_hold(&self, place: usize) -> Option<Duration> {
        let passed = clock::now().saturating_duration_since(self.started);
        let max_hold = self.asking.terms[place].max_hold;
        max_hold.map(|max_hold| max_hold.saturating_sub(passed))
    }

    async fn acquire(
        self: &Arc<Self>,
        repairer: &Repairer,
        place: usize,
        until: Instant,
    ) -> Option<(usize, HoldGuard)> {
        let terms = self.asking.terms[place].within(self.max_hold(place));
        if terms.max_hold.is_some_and(|rest| rest.is_zero())
            || is_silent(&self.asking.engines[place])
        {
            return None;
        }
        let lock = async {
            match repairer.hold_of_kin(self, place) {
                Some(hold) => hold.reenter(terms, Some(until)).await,
                None => self.asking.try_at(place, terms).await,
            }
        };
        match clock::timeout_at(clock::to_tokio(until), lock).await {
            Ok(Ok(guard)) => Some((place, guard)),
            Ok(Err(error)) => {
                tracing::debug!(place, %error, "a part is still missing");
                None
            }
            Err(_) => None,
        }
    }
}

/// The groups of a quorum, and the signal of the repairing task.
#[derive(Default)]
pub(super) struct Repairer {
    jobs: Mutex<RepairJobs<Arc<RepairJob>>>,
    signal: Arc<Signal>,
}

/// The key of a group under repair: its name, and a number.
pub(super) type RepairKey = (Arc<str>, u64);

/// The groups under repair. By name, because after a server has lost everything, each group asks
/// for others of its name.
struct RepairJobs<T> {
    all: BTreeMap<RepairKey, T>,
    /// The groups that the task has not seen.
    fresh: Vec<RepairKey>,
    next: u64,
}

impl<T> Default for RepairJobs<T> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            fresh: Vec::new(),
            next: 0,
        }
    }
}

impl<T: Clone> RepairJobs<T> {
    fn add(&mut self, name: &Arc<str>, job: T) -> RepairKey {
        let key = (Arc::clone(name), self.next);
        self.next += 1;
        self.all.insert(key.clone(), job);
        self.fresh.push(key.clone());
        key
    }

    fn named(&self, name: &Arc<str>) -> Vec<T> {
        let [first, last] = [0, u64::MAX].map(|number| (Arc::clone(name), number));
        self.all
            .range(first..=last)
            .map(|(_, job)| job.clone())
            .collect()
    }

    /// The new groups; all groups for a starting task.
    fn take(&mut self, begins: bool) -> Vec<(RepairKey, T)> {
        let fresh = std::mem::take(&mut self.fresh);
        let keys = match begins {
            true => self.all.keys().cloned().collect(),
            false => fresh,
        };
        let job = |key| self.all.get(&key).cloned().map(|job| (key, job));
        keys.into_iter().filter_map(job).collect()
    }
}

impl Repairer {
    /// Adds a group; the key is for [`forget`](Self::forget).
    pub(super) fn watch(self: &Arc<Self>, job: &Arc<RepairJob>) -> RepairKey {
        let key = lock(&self.jobs).add(&job.group.name, Arc::clone(job));
        self.signal.notify();
        self.ensure(job);
        key
    }

    /// Starts the task if it does not run.
    pub(super) fn ensure(self: &Arc<Self>, job: &RepairJob) {
        let Some(engine) = job.asking.engines.first() else {
            return;
        };
        let repairer = Arc::downgrade(self);
        let ending = move || {
            let repairer = repairer.upgrade();
            move || repairer.iter().for_each(Self::task_ended)
        };
        ensure(&engine.spawner, &self.signal, ending, || {
            run(Arc::clone(self))
        });
    }

    /// The runtime of the task has ended. The task continues in a runtime in which a guard was
    /// acquired.
    fn task_ended(self: &Arc<Self>) {
        let all: Vec<_> = lock(&self.jobs).all.values().cloned().collect();
        let mut homes = Vec::new();
        for job in all {
            let Some(home) = job.home.clone().filter(|home| !homes.contains(home)) else {
                continue;
            };
            let repairer = Arc::clone(self);
            // The list includes the runtime that has just ended; it drops this work.
            home.run(move || repairer.ensure(&job));
            homes.push(home);
        }
    }

    /// The group has ended.
    pub(super) fn forget(&self, key: &RepairKey) {
        let forgotten = lock(&self.jobs).all.remove(key);
        drop(forgotten);
    }

    /// The hold at this place of another guard that shares the holds. If each guard acquired the part again,
    /// the guards would compete for it. Groups of one name that are valid at the same time share their
    /// holds, since there can be only one majority.
    fn hold_of_kin(&self, job: &Arc<RepairJob>, place: usize) -> Option<Arc<Hold>> {
        let named = lock(&self.jobs).named(&job.group.name);
        let kin = named
            .iter()
            .filter(|other| !Arc::ptr_eq(other, job) && other.group.state().is_valid());
        let mut holds = kin.filter_map(|other| other.group.holds().remove(&place));
        holds.find(|hold| hold.is_valid())
    }

    pub(super) fn close(&self) {
        self.signal.close();
    }
}

async fn run(repairer: Arc<Repairer>) {
    let mut under_way = FuturesUnordered::new();
    let mut begins = true;
    while !repairer.signal.is_closed() {
        let new = lock(&repairer.jobs).take(begins);
        for (key, job) in new {
            let repairer = &*repairer;
            under_way.push(async move {
                job.tend(repairer).await;
                key
            });
        }
        begins = false;
        tokio::select! {
            // Ended groups first, without starving new ones: each turn removes one, and takes the new ones.
            biased;
            Some(key) = under_way.next(), if !under_way.is_empty() => repairer.forget(&key),
            () = repairer.signal.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static LOOKED_AT: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug, PartialEq)]
    struct Counted(usize);

    impl Clone for Counted {
        fn clone(&self) -> Self {
            LOOKED_AT.fetch_add(1, Ordering::Relaxed);
            Self(self.0)
        }
    }

    /// Each guard that missed a server looked through all guards of the quorum.
    #[test]
    fn kin_are_found_without_a_look_at_guards_of_other_names() {
        let names: Vec<Arc<str>> = (0..500).map(|name| format!("n:{name}").into()).collect();
        let mut jobs = RepairJobs::default();
        let keys: Vec<_> = (0..1000)
            .map(|at| jobs.add(&names[at % 500], Counted(at)))
            .collect();
        assert_eq!(jobs.named(&names[7]), [Counted(7), Counted(507)]);
        assert_eq!(LOOKED_AT.load(Ordering::Relaxed), 2);
        for key in &keys[..500] {
            assert!(jobs.all.remove(key).is_some());
        }
        assert_eq!(jobs.all.remove(&keys[7]), None);
        assert_eq!(jobs.named(&names[7]), [Counted(507)]);
        assert_eq!(jobs.take(false).len(), 500);
        assert!(jobs.all.remove(&keys[507]).is_some());
        assert!(jobs.named(&names[7]).is_empty());
        assert_eq!(jobs.all.len(), 499);
    }
}
