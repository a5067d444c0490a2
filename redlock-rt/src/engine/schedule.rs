//! What is due when: pure, ordered by moment.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Items with one moment each.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    moments: HashMap<u64, Instant>,
    queue: BTreeMap<(Instant, u64), T>,
    /// When the task that works this off will look next by itself.
    armed: Option<Instant>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            moments: HashMap::new(),
            queue: BTreeMap::new(),
            armed: None,
        }
    }
}

impl<T> Schedule<T> {
    /// Adds or moves an item. Answers whether the task must be woken for it.
    #[must_use]
    pub(crate) fn set(&mut self, id: u64, at: Instant, item: T) -> bool {
        if let Some(old) = self.moments.insert(id, at) {
            self.queue.remove(&(old, id));
        }
        self.queue.insert((at, id), item);
        self.armed.is_none_or(|armed| at < armed)
    }

    /// Moves an item if it is still here. Answers whether the task must be woken for it.
    #[must_use]
    pub(crate) fn reset(&mut self, id: u64, at: Instant) -> bool {
        let Some(moment) = self.moments.get_mut(&id) else {
            return false;
        };
        let old = std::mem::replace(moment, at);
        if let Some(item) = self.queue.remove(&(old, id)) {
            self.queue.insert((at, id), item);
        }
        self.armed.is_none_or(|armed| at < armed)
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

    /// The moment until which the task may sleep; remembered, so that only an earlier one wakes it.
    pub(crate) fn arm(&mut self) -> Option<Instant> {
        self.armed = self.queue.first_key_value().map(|((at, _), _)| *at);
        self.armed
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The first items up to `until`, in order.
    pub(crate) fn upcoming(&self, until: Instant) -> impl Iterator<Item = (u64, &T)> {
        let upcoming = self.queue.range(..=(until, u64::MAX));
        upcoming.map(|((_, id), item)| (*id, item))
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
        assert_eq!(schedule.arm(), Some(now + 5 * S));
        assert!(!schedule.set(2, now + 6 * S, ()));
        assert!(schedule.reset(2, now + S));
        assert!(schedule.remove(2).is_some());
        assert!(!schedule.reset(2, now));
        assert_eq!(schedule.len(), 1);
    }
}
