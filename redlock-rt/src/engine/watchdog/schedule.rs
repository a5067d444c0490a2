//! A schedule ordered by time. Pure state.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Items with one time each.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    moments: HashMap<u64, Instant>,
    queue: BTreeMap<(Instant, u64), T>,
    /// When the task next looks on its own, or was told to look.
    armed: Option<Instant>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            moments: HashMap::default(),
            queue: BTreeMap::new(),
            armed: None,
        }
    }
}

impl<T> Schedule<T> {
    /// Adds or moves an item. Returns whether the task must be woken for it.
    #[must_use]
    pub(crate) fn set(&mut self, id: u64, at: Instant, item: T) -> bool {
        if let Some(old) = self.moments.insert(id, at) {
            self.queue.remove(&(old, id));
        }
        self.queue.insert((at, id), item);
        self.hasten(at)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        let at = *self.moments.get(&id)?;
        self.queue.get(&(at, id))
    }

    /// Moves an item if it is still here. Returns whether the task must be woken for it.
    #[must_use]
    pub(crate) fn reset(&mut self, id: u64, at: Instant) -> bool {
        let Some(moment) = self.moments.get_mut(&id) else {
            return false;
        };
        let old = std::mem::replace(moment, at);
        if let Some(item) = self.queue.remove(&(old, id)) {
            self.queue.insert((at, id), item);
        }
        self.hasten(at)
    }

    /// Returns whether the task must be woken to look at `at`; this is returned once.
    fn hasten(&mut self, at: Instant) -> bool {
        let wake = self.armed.is_none_or(|armed| at < armed);
        if wake {
            self.armed = Some(at);
        }
        wake
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.moments.remove(&id)?;
        self.queue.remove(&(at, id))
    }

    /// Takes the first item that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(u64, T)> {
        let entry = self
            .queue
            .first_entry()
            .filter(|entry| entry.key().0 <= now)?;
        let (_, id) = *entry.key();
        let item = entry.remove();
        self.moments.remove(&id);
        Some((id, item))
    }

    /// The time until which the task may sleep. It is stored, so that only an earlier time wakes
    /// the task.
    ///
    /// With an empty schedule the task sleeps until the last stored time. Otherwise each
    /// short-lived item would wake the task for nothing.
    pub(crate) fn arm(&mut self, now: Instant) -> Option<Instant> {
        let first = self.queue.first_key_value().map(|((at, _), _)| *at);
        self.armed = first.or_else(|| self.armed.filter(|armed| *armed > now));
        self.armed
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = (u64, &T)> {
        self.queue.iter().map(|((_, id), item)| (*id, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn due_items_come_in_order_and_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        let _ = schedule.set(1, now + 2 * S, "b");
        let _ = schedule.set(2, now + S, "a");
        let _ = schedule.set(3, now + 9 * S, "c");
        assert_eq!(schedule.pop_due(now), None);
        assert_eq!(schedule.pop_due(now + 3 * S), Some((2, "a")));
        assert_eq!(schedule.pop_due(now + 3 * S), Some((1, "b")));
        assert_eq!(schedule.pop_due(now + 3 * S), None);
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn only_an_earlier_moment_wakes_the_task() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        assert!(schedule.set(1, now + 5 * S, ()));
        assert_eq!(schedule.arm(now), Some(now + 5 * S));
        assert!(!schedule.set(2, now + 6 * S, ()));
        assert!(schedule.reset(2, now + S));
        assert!(schedule.remove(2).is_some());
        assert!(!schedule.reset(2, now));
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn items_that_come_and_go_do_not_wake_the_task_one_by_one() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        assert!(schedule.set(1, now + 5 * S, ()));
        assert!(!schedule.set(2, now + 5 * S, ()), "told already");
        assert!(schedule.remove(1).is_some() && schedule.remove(2).is_some());
        assert_eq!(schedule.arm(now), Some(now + 5 * S));
        assert!(!schedule.set(3, now + 6 * S, ()));
        assert!(schedule.remove(3).is_some());
        // The client became idle: the task looks once more, and then no more.
        assert_eq!(schedule.arm(now + 5 * S), None);
        assert!(schedule.set(4, now + 9 * S, ()));
    }
}
