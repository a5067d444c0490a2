//! Looks at wait queues, each at its time. The task of the releases does this.

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
    /// The signal of the task.
    pub(super) signal: Arc<Signal>,
}

/// By their times; and the number of the last one.
#[derive(Default)]
struct Looks {
    schedule: Schedule<TimedLook>,
    last: u64,
}

impl Timers {
    /// Makes the task look at that time.
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

    /// Does all due looks. Returns the time of the next one.
    pub(super) fn look(&self, now: Instant) -> Option<Instant> {
        while let Some((_, mut look)) = { lock(&self.looks).schedule.pop_due(now) } {
            if let Some(at) = look(now) {
                self.set(at, look);
            }
        }
        lock(&self.looks).schedule.arm(now)
    }
}
