//! The waiters of a queue, in order.

use std::collections::BTreeMap;

use super::queue::Ticket;

/// Values by ticket. The first is outside of the map: a task that waits alone takes no memory for a
/// map, and nearly every lock is taken by such a task.
///
/// If there is no first one, nobody is behind it.
#[derive(Debug)]
pub(super) struct Line<W> {
    first: Option<(Ticket, W)>,
    behind: BTreeMap<Ticket, W>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            first: None,
            behind: BTreeMap::new(),
        }
    }
}

impl<W> Line<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether there are others behind the first.
    pub(super) fn has_more(&self) -> bool {
        !self.behind.is_empty()
    }

    pub(super) fn push(&mut self, ticket: Ticket, value: W) {
        match self.first() {
            Some(first) if first < ticket => drop(self.behind.insert(ticket, value)),
            _ => self.behind.extend(self.first.replace((ticket, value))),
        }
    }

    pub(super) fn first(&self) -> Option<Ticket> {
        self.first.as_ref().map(|(ticket, _)| *ticket)
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut W> {
        self.first.as_mut().map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut W> {
        match &mut self.first {
            Some((first, value)) if *first == ticket => Some(value),
            _ => self.behind.get_mut(&ticket),
        }
    }

    /// Returns whether it was here.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let is_first = self.first() == Some(ticket);
        if is_first {
            self.first = self.behind.pop_first();
        }
        is_first || self.behind.remove(&ticket).is_some()
    }

    /// Takes all that are before `ticket`.
    pub(super) fn take_before(&mut self, ticket: Ticket) -> Self {
        let mut later = Self {
            first: None,
            behind: self.behind.split_off(&ticket),
        };
        match self.first.take_if(|(first, _)| *first >= ticket) {
            // Nobody is before it, and `behind` is empty now.
            Some(first) => later.first = Some(first),
            None => later.first = later.behind.pop_first(),
        }
        std::mem::replace(self, later)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut W> {
        let first = self.first.as_mut().map(|(_, value)| value);
        first.into_iter().chain(self.behind.values_mut())
    }
}

impl<W> IntoIterator for Line<W> {
    type Item = (Ticket, W);
    type IntoIter = std::iter::Chain<
        std::option::IntoIter<(Ticket, W)>,
        std::collections::btree_map::IntoIter<Ticket, W>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.behind)
    }
}
