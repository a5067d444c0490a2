//! The watchdog: one task per client renews all its locks, in batches.
//!
//! # Lock order
//!
//! The schedule's mutex, then that of the holds in doubt, or a hold's lease. An ending guard takes the mutexes
//! of the schedule and the lease. The task holds the same mutexes from the selection of the due holds until
//! the batch is handed to the connection. So a renewal is either sent before the release began, or never.

mod batch;
mod introduction;
#[cfg(test)]
mod loom;
mod losses;
mod node_loads;
mod schedule;
mod task;
mod tracking;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use self::losses::Losses;
pub(super) use self::schedule::Schedule;
use self::tracking::{APART, Flushes, WATCHED_AFTER};
use super::hold::{GuardId, Hold, LostReason, RenewalPlan};
use super::signal::Signal;
use crate::clock;
use crate::connection::{Exchange, Home, Nodes, Watched};
use crate::name::LockName;
use crate::shim::{AtomicBool, Mutex, lock, lock_std};

pub(crate) use self::introduction::Introduction;
pub(crate) use self::task::run;
pub(crate) use self::tracking::Tracking;

/// The holds.
#[derive(Default)]
struct Scheduled {
    holds: Schedule<Arc<Hold>>,
    /// The holds whose keys the server is to watch, and when it was last asked.
    tracked: HashMap<LockName, (u64, Instant)>,
}

impl Scheduled {
    /// Removes a hold that has ended. Drop the result with no mutex held.
    #[must_use]
    fn end(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let ended = self.holds.remove(hold.number)?;
        self.forget(hold);
        Some(ended)
    }

    /// A hold that is no longer scheduled has ended.
    fn forget(&mut self, hold: &Hold) {
        let name = hold.recipe.name();
        if self
            .tracked
            .get(name)
            .is_some_and(|known| known.0 == hold.number)
        {
            self.tracked.remove(name);
        }
    }

    /// Makes the server watch the keys of these holds, after their renewal.
    fn track<'a>(
        &mut self,
        holds: impl Iterator<Item = &'a Arc<Hold>>,
        renewal: &Exchange,
        now: Instant,
    ) -> Option<Watched> {
        let (mut keys, mut listens) = (Vec::new(), None);
        for hold in holds.filter(|hold| hold.is_tracked()) {
            let name = hold.recipe.name();
            self.tracked.insert(name.clone(), (hold.number, now));
            // Otherwise the confirmation of the channel, which waits for this mutex, has the key watched.
            let listens = *listens.get_or_insert_with(|| hold.is_listened_for());
            if hold.lease().watches(clock::after(now, APART)) && listens {
                keys.push(name.as_str());
            }
        }
        if keys.is_empty() {
            return None;
        }
        renewal.watch_keys(&keys)
    }
}

/// The number of holds that are put in doubt before other tasks run.
const AT_A_TIME: usize = 100;

/// The holds of a client, and when each is due.
#[derive(Default)]
pub(crate) struct Watchdog {
    schedule: Mutex<Scheduled>,
    /// When all locks were last put in doubt. Written with the schedule's lock held, and read inside that of
    /// a lease; no other mutex is taken inside, so the loom models need not know of this one.
    doubted: StdMutex<Option<Instant>>,
    /// The holds that are still to be put in doubt, and since when they are. Its mutex is taken inside the
    /// schedule's.
    doubtful: Mutex<VecDeque<(u64, Instant)>>,
    pub(super) losses: Losses,
    pub(super) signal: Arc<Signal>,
    /// An event after which the server may no longer have our locks.
    doubt: AtomicBool,
    /// No other mutex is taken inside its own.
    flushes: StdMutex<Flushes>,
}

impl Watchdog {
    /// Adds a hold that was acquired by a command sent at `sent`. If all locks came into doubt
    /// since then, the hold is in doubt too: the reply may come from an abandoned server. Returns whether
    /// its guard is valid.
    pub(super) fn watch(
        &self,
        hold: &Arc<Hold>,
        guard: GuardId,
        sent: Instant,
        now: Instant,
    ) -> bool {
        let mut schedule = lock(&self.schedule);
        let mut lease = hold.lease();
        if lock_std(&self.doubted).is_some_and(|at| at >= sent) {
            lease.doubt(now);
        }
        if hold.is_tracked() {
            lease.watch_at(clock::after(sent, WATCHED_AFTER));
        }
        let is_valid = lease.state(guard, now).is_valid();
        let plan = lease.plan(now);
        drop(lease);
        let Some(at) = moment(plan, now) else {
            return is_valid;
        };
        let wake = schedule.holds.set(hold.number, at, Arc::clone(hold));
        drop(schedule);
        if wake {
            self.signal.notify();
        }
        is_valid
    }

    /// The number of holds whose renewals fail, and for how long the oldest due renewal has been due.
    pub(crate) fn overdue(&self, now: Instant) -> (usize, Option<Duration>) {
        let schedule = lock(&self.schedule);
        let mut found = (0, None);
        for (_, hold) in schedule.holds.items() {
            let lease = hold.lease();
            found.0 += usize::from(lease.is_suspect());
            found.1 = found.1.max(lease.overdue(now));
        }
        found
    }

    /// The terms of a hold changed.
    pub(super) fn rewatch(&self, hold: &Hold) {
        let mut schedule = lock(&self.schedule);
        let now = clock::now();
        let Some(at) = moment(hold.plan(now), now) else {
            return;
        };
        let wake = schedule.holds.reset(hold.number, at);
        drop(schedule);
        if wake {
            self.signal.notify();
        }
    }

    /// Calls `leave`, and removes the hold if `leave` says so, both under the schedule's mutex.
    pub(super) fn unwatch_if<T>(&self, hold: &Hold, leave: impl FnOnce() -> (T, bool)) -> T {
        let mut schedule = lock(&self.schedule);
        let (left, last) = leave();
        let tracked = !schedule.tracked.is_empty();
        let removed = last.then(|| schedule.end(hold));
        let idle = tracked && schedule.tracked.is_empty();
        drop(schedule);
        drop(removed);
        if idle {
            self.signal.notify();
        }
        left
    }

    /// Another client has written to this key. If it is the key of a lock, verifies the lock. `None`: perhaps
    /// to any watched key.
    fn written_to(&self, key: Option<&str>) {
        let mut schedule = lock(&self.schedule);
        let known: Vec<_> = match key {
            Some(key) => schedule.tracked.get(key).copied().into_iter().collect(),
            None => schedule.tracked.values().copied().collect(),
        };
        let mut wake = false;
        for (id, since) in known {
            let at = clock::now().max(clock::after(since, APART));
            if let Some(hold) = schedule.holds.get(id) {
                let mut lease = hold.lease();
                lease.doubt(at);
                lease.watch_at(at);
            }
            wake |= schedule.holds.reset(id, at);
        }
        drop(schedule);
        if wake {
            self.signal.notify();
        }
    }

    /// Makes the task verify every lock as soon as possible: a connection was lost or made anew, or leads to
    /// another server, which may not have our locks. Takes no mutex, since it is called where tasks are
    /// dropped.
    pub(super) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
        self.signal.notify();
    }

    /// The server says that it was flushed. The task verifies every lock, at once or after a pause.
    fn flushed(&self) {
        lock_std(&self.flushes).told = true;
        self.signal.notify();
    }

    /// Whether the locks came into doubt after a command was sent then.
    pub(super) fn is_doubted_since(&self, sent: Instant) -> bool {
        let told = self.doubt.load(Ordering::Acquire);
        told || lock_std(&self.doubted).is_some_and(|at| at >= sent)
    }

    /// Notes which locks to put in doubt, if that was asked for.
    pub(super) fn doubt_all(&self, nodes: &Nodes) {
        if !self.doubt.swap(false, Ordering::AcqRel) {
            return;
        }
        // In a cluster, only the slots of the affected servers.
        let slots = nodes.cluster().map(|cluster| cluster.take_doubts());
        let is_in_doubt = |hold: &Hold| match &slots {
            None => true,
            Some(slots) => slots.contains(&nodes.slot_of(hold.recipe.name())),
        };
        let now = clock::now();
        let schedule = lock(&self.schedule);
        // A hold that is added from here on is compared with this moment.
        *lock_std(&self.doubted) = Some(now);
        let items = schedule.holds.items().filter(|(_, hold)| is_in_doubt(hold));
        lock(&self.doubtful).extend(items.map(|(id, _)| (id, now)));
    }

    /// Puts some of them in doubt; returns whether there are more. In between other tasks run, and guards may
    /// end.
    pub(super) fn doubt_some(&self) -> bool {
        let mut schedule = lock(&self.schedule);
        let mut doubtful = lock(&self.doubtful);
        let some = doubtful.len().min(AT_A_TIME);
        let some: Vec<_> = doubtful.drain(..some).collect();
        let more = !doubtful.is_empty();
        drop(doubtful);
        for (id, since) in some {
            if let Some(hold) = schedule.holds.get(id) {
                hold.lease().doubt(since);
                let _ = schedule.holds.reset(id, since);
            }
        }
        more
    }

    /// Reports a lost lock.
    pub(super) fn report(&self, name: &str, reason: LostReason, now: Instant) {
        if self.losses.add(name, reason, now) {
            self.signal.notify();
        }
    }

    /// The scheduled holds.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        let schedule = lock(&self.schedule);
        let items = schedule.holds.items();
        items.map(|(_, hold)| Arc::clone(hold)).collect()
    }

    /// The runtimes in which the holds were acquired, each once. Asked only when a task has ended.
    pub(super) fn homes(&self) -> Vec<Home> {
        let schedule = lock(&self.schedule);
        let mut homes = Vec::new();
        let items = schedule.holds.items();
        for home in items.filter_map(|(_, hold)| hold.home.as_ref()) {
            if !homes.contains(home) {
                homes.push(home.clone());
            }
        }
        homes
    }

    /// The number of holds.
    pub(crate) fn len(&self) -> usize {
        lock(&self.schedule).holds.len()
    }

    /// The number of renewed holds.
    pub(crate) fn renewals(&self) -> usize {
        let now = clock::now();
        let holds = self.holds();
        holds
            .iter()
            .filter(|hold| hold.lease().is_renewed(now))
            .count()
    }
}

/// When a hold is due next.
fn moment(plan: RenewalPlan, now: Instant) -> Option<Instant> {
    match plan {
        RenewalPlan::Renew(_) => Some(now),
        RenewalPlan::Wait(at) => Some(at),
        RenewalPlan::Done => None,
    }
}
