//! Looks at wait queues, each at its moment. The task of the releases makes them.

use std::sync::Arc;
use std::time::Instant;

use super::signal::Signal;
use super::watchdog::Schedule;
use crate::shim::{Mutex, lock};

/// Looks, and returns when to look again.
type TimedLook = Box<dyn FnMut(Instant) -> Option<Instant> + Send>;

#[derive(Default)]
pub(crate) struct Timers {
    looks: Mutex<Looks>,
    /// That of the task.
    pub(super) signal: Arc<Signal>,
}

/// By their moments; the number of the last one.
#[derive(Default)]
struct Looks {
    schedule: Schedule<TimedLook>,
    last: u64,
}

impl Timers {
    /// Has the task look then.
    pub(super) fn set(&self, at: Instant, look: TimedLook) {
        let mut looks = lock(&self.looks);
        looks.last += 1;
        let id = looks.last;
        let wake = looks.schedule.set(id, at, look);
        drop(looks);
        if wake {
            self.signal.notify();
        }
    }

    /// Looks at all whose moment has come. Returns the next moment.
    pub(super) fn look(&self, now: Instant) -> Option<Instant> {
        while let Some((_, mut look)) = { lock(&self.looks).schedule.pop_due(now) } {
            if let Some(at) = look(now) {
                self.set(at, look);
            }
        }
        lock(&self.looks).schedule.arm(now)
    }
}
