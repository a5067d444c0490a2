//! The watchdog: one task a client renews all its locks, in batches.
//!
//! # Lock order
//!
//! The schedule's lock, then the moment of the last doubt, the homes, or a hold's lease. A guard that
//! ends takes the schedule's and the lease's, and so does the task from picking what is due to handing
//! the batch to the connection: a renewal is either on its way before the release began, or it is never
//! sent.

#[cfg(all(test, redlock_loom))]
mod loom;
mod losses;
mod schedule;
mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::losses::Losses;
pub(super) use self::schedule::Schedule;
use super::hold::{Hold, LostReason, Plan};
use super::signal::Signal;
use crate::clock;
use crate::connection::Home;
use crate::shim::{Mutex, lock};

pub(crate) use self::task::run;

/// The holds of a client and when each is to be looked after.
pub(crate) struct Watchdog {
    schedule: Mutex<Schedule<Arc<Hold>>>,
    /// When all locks were last put in doubt. Written with the schedule's lock held.
    doubted: Mutex<Option<Instant>>,
    /// Where the holds were acquired. Its lock is taken inside the schedule's.
    homes: Mutex<Homes>,
    pub(super) losses: Losses,
    pub(super) signal: Signal,
    /// Something happened after which the server may know nothing of our locks.
    doubt: AtomicBool,
}

impl Watchdog {
    pub(super) fn new() -> Self {
        Self {
            schedule: Mutex::new(Schedule::default()),
            doubted: Mutex::new(None),
            homes: Mutex::new(Homes::default()),
            losses: Losses::new(),
            signal: Signal::default(),
            doubt: AtomicBool::new(false),
        }
    }

    /// Looks after a hold from now on, which was acquired by a command sent at `sent`. If all locks
    /// were put in doubt since, it is in doubt as well: the answer may be of a server that was left.
    pub(super) fn watch(&self, hold: &Arc<Hold>, sent: Instant, now: Instant) {
        let mut schedule = lock(&self.schedule);
        if lock(&self.doubted).is_some_and(|since| sent <= since) {
            hold.doubt(now);
        }
        let Some(at) = moment(hold, now) else {
            return;
        };
        let wake = schedule.set(hold.number, at, Arc::clone(hold));
        lock(&self.homes).add(hold.home.as_ref());
        drop(schedule);
        if wake {
            self.signal.notify();
        }
    }

    /// The terms of a hold changed.
    pub(super) fn rewatch(&self, hold: &Hold) {
        let mut schedule = lock(&self.schedule);
        let Some(at) = moment(hold, clock::now()) else {
            return;
        };
        let wake = schedule.reset(hold.number, at);
        drop(schedule);
        if wake {
            self.signal.notify();
        }
    }

    /// Does `leave`, and looks after the hold no more if that says so; nothing comes between.
    pub(super) fn unwatch_if<T>(&self, hold: &Hold, leave: impl FnOnce() -> (T, bool)) -> T {
        let mut schedule = lock(&self.schedule);
        let (left, last) = leave();
        let removed = if last {
            schedule.remove(hold.number)
        } else {
            None
        };
        if removed.is_some() {
            self.left(hold);
        }
        drop(schedule);
        drop(removed);
        left
    }

    /// A hold is not among the scheduled any more; the schedule's lock is held by the caller.
    fn left(&self, hold: &Hold) {
        lock(&self.homes).remove(hold.home.as_ref());
    }

    /// Has every lock verified as soon as the task comes to it: a connection was lost or made anew,
    /// or leads to another server, which may know nothing of our locks. Takes no lock: it is called
    /// from where tasks are dropped.
    pub(super) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
        self.signal.notify();
    }

    fn doubt_all(&self) {
        if !self.doubt.swap(false, Ordering::AcqRel) {
            return;
        }
        let now = clock::now();
        let mut schedule = lock(&self.schedule);
        *lock(&self.doubted) = Some(now);
        let ids: Vec<u64> = schedule
            .items()
            .map(|(id, hold)| {
                hold.doubt(now);
                id
            })
            .collect();
        for id in ids {
            let _ = schedule.reset(id, now);
        }
    }

    /// Tells of a lock that was lost.
    pub(super) fn report(&self, name: &str, reason: LostReason, now: Instant) {
        if self.losses.add(name, reason, now) {
            self.signal.notify();
        }
    }

    /// The holds that are looked after.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule)
            .items()
            .map(|(_, hold)| Arc::clone(hold))
            .collect()
    }

    /// The runtimes in which they were acquired, each once.
    pub(super) fn homes(&self) -> Vec<Home> {
        lock(&self.homes).all().cloned().collect()
    }

    /// How many holds there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.schedule).len()
    }

    /// How many holds are renewed.
    pub(crate) fn renewals(&self) -> usize {
        let now = clock::now();
        lock(&self.schedule)
            .items()
            .filter(|(_, hold)| hold.is_renewed(now))
            .count()
    }
}

/// The runtimes of holds, each with the number of its holds: few, however many holds there are.
#[derive(Debug, Default)]
struct Homes(Vec<(Home, usize)>);

impl Homes {
    fn add(&mut self, home: Option<&Home>) {
        let Some(home) = home else { return };
        match self.0.iter_mut().find(|(known, _)| known == home) {
            Some((_, holds)) => *holds += 1,
            None => self.0.push((home.clone(), 1)),
        }
    }

    fn remove(&mut self, home: Option<&Home>) {
        let Some(home) = home else { return };
        if let Some(at) = self.0.iter().position(|(known, _)| known == home) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.swap_remove(at);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Home> {
        self.0.iter().map(|(home, _)| home)
    }
}

/// When a hold is to be looked after next, as long as it is.
fn moment(hold: &Hold, now: Instant) -> Option<Instant> {
    match hold.plan(now) {
        Plan::Renew(_) => Some(now),
        Plan::Wait(at) => Some(at),
        Plan::Done => None,
    }
}

impl AsRef<Signal> for Watchdog {
    fn as_ref(&self) -> &Signal {
        &self.signal
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog")
            .field("holds", &self.len())
            .finish_non_exhaustive()
    }
}
