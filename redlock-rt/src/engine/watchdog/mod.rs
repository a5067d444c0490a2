//! The watchdog: one task a client renews all its locks, in batches.
//!
//! # Lock order
//!
//! The schedule's lock, then a hold's lease. A guard that ends takes both, and so does the task
//! from picking what is due to handing the batch to the connection: a renewal is either on its way
//! before the release began, or it is never sent.

mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::hold::Hold;
use super::lease::Plan;
use super::schedule::Schedule;
use super::signal::Signal;
use crate::clock;
use crate::connection::Home;
use crate::shim::{Mutex, lock};

pub(crate) use self::task::run;

/// The holds of a client and when each is to be looked after.
pub(crate) struct Watchdog {
    schedule: Mutex<Schedule<Arc<Hold>>>,
    pub(super) signal: Signal,
    /// Something happened after which the server may know nothing of our locks.
    doubt: AtomicBool,
    /// The server that was last connected to; another one may have lost everything.
    run_id: Mutex<Option<String>>,
}

impl Watchdog {
    pub(super) fn new() -> Self {
        Self {
            schedule: Mutex::new(Schedule::default()),
            signal: Signal::default(),
            doubt: AtomicBool::new(false),
            run_id: Mutex::new(None),
        }
    }

    /// Looks after a hold from now on.
    pub(super) fn watch(&self, hold: &Arc<Hold>, now: Instant) {
        let mut schedule = lock(&self.schedule);
        let Some(at) = moment(hold, now) else {
            return;
        };
        let wake = schedule.set(hold.number, at, Arc::clone(hold));
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
        drop(schedule);
        drop(removed);
        left
    }

    /// A connection was made; `again`: after one that was lost. Another server than before, or the
    /// same after a restart, may know nothing of our locks.
    pub(super) fn connected(&self, run_id: Option<&str>, again: bool) {
        let mut last = lock(&self.run_id);
        let other = last.is_some() && last.as_deref() != run_id;
        *last = run_id.map(str::to_owned);
        drop(last);
        if other || again {
            self.doubt();
        }
    }

    /// Has every lock verified as soon as the task comes to it. Takes no lock: it is called from
    /// where tasks are dropped.
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

    /// The holds that are looked after.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule)
            .items()
            .map(|(_, hold)| Arc::clone(hold))
            .collect()
    }

    /// The runtimes in which they were acquired, each once.
    pub(super) fn homes(&self) -> Vec<Home> {
        let mut homes: Vec<Home> = Vec::new();
        for (_, hold) in lock(&self.schedule).items() {
            if let Some(home) = &hold.home
                && !homes.contains(home)
            {
                homes.push(home.clone());
            }
        }
        homes
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
