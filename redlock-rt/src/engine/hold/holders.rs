//! The holds of this client in one lock.

use std::sync::{Arc, Weak};

use super::Hold;
use crate::engine::opaque::OpaqueWeak;
use crate::shim::{Mutex, MutexGuard, lock};

/// The holds of one name and kind.
#[derive(Default)]
pub(crate) struct Holders {
    /// Held briefly, with no other mutex taken inside.
    known: Mutex<Holds>,
}

#[derive(Default)]
struct Holds {
    /// For a kind with one holder at a time.
    one: Weak<Hold>,
    /// For a kind with several holders, which another kind supersedes. Most of them have not ended.
    several: Vec<Weak<Hold>>,
}

impl Holders {
    fn known(&self) -> MutexGuard<'_, Holds> {
        lock(&self.known)
    }

    /// Sets the one holder; returns the hold that was there before.
    pub(super) fn replace(&self, hold: &Arc<Hold>) -> Option<Arc<Hold>> {
        let new = Arc::downgrade(hold);
        let mut known = self.known();
        let before = std::mem::replace(&mut known.one, new);
        drop(known);
        before.upgrade()
    }

    /// Sets the one holder, if it is still `before`. Returns whether it was.
    pub(super) fn follow(&self, before: &Arc<Hold>, hold: &Arc<Hold>) -> bool {
        let mut holds = self.known();
        let is_last = std::ptr::eq(holds.one.as_ptr(), Arc::as_ptr(before));
        if is_last {
            holds.one = Arc::downgrade(hold);
        }
        is_last
    }

    /// Adds one of several holds.
    pub(super) fn add(&self, hold: &Arc<Hold>) {
        push(&mut self.known().several, hold);
    }

    /// The hold has ended.
    pub(super) fn remove(&self, hold: &Hold) {
        let mut known = self.known();
        if std::ptr::eq(known.one.as_ptr(), hold) {
            known.one = Weak::new();
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Hold>> {
        let known = self.known();
        let all = std::iter::once(&known.one).chain(&known.several);
        all.filter_map(Weak::upgrade).collect()
    }

    /// The one holder.
    pub(crate) fn one(&self) -> Option<Arc<Hold>> {
        self.known().one.upgrade()
    }

    /// Whether this client has a valid hold, for a kind with one holder at a time.
    pub(crate) fn is_held(&self) -> bool {
        self.one().is_some_and(|hold| hold.is_valid())
    }
}

/// The holds of one explicit owner in one name, one of a kind.
#[derive(Default)]
pub(crate) struct OwnedHolds(Vec<OpaqueWeak<Hold>>);

impl OwnedHolds {
    pub(crate) fn valid(&self) -> impl Iterator<Item = Arc<Hold>> {
        let holds = self.0.iter().filter_map(OpaqueWeak::upgrade);
        holds.filter(|hold| hold.is_valid())
    }

    /// Adds a hold, and removes ended ones.
    pub(crate) fn add(&mut self, new: &Arc<Hold>) {
        self.0.retain(|hold| {
            let hold = hold.upgrade();
            hold.is_some_and(|hold| !Arc::ptr_eq(&hold, new) && hold.is_valid())
        });
        self.0.push(OpaqueWeak::of(new));
    }

    /// Whether every hold has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.iter().all(OpaqueWeak::is_gone)
    }
}

/// Removes ended holds whenever the vector is full. That is O(1) for each, since the capacity then
/// doubles.
fn push<T>(several: &mut Vec<Weak<T>>, new: &Arc<T>) {
    if several.len() == several.capacity() {
        several.retain(|known| known.strong_count() > 0);
        several.reserve(several.len().max(8));
    }
    several.push(Arc::downgrade(new));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_that_have_ended_are_forgotten_whenever_the_number_has_doubled() {
        let mut several = Vec::new();
        let held: Vec<_> = (0..20).map(Arc::new).collect();
        held.iter().for_each(|hold| push(&mut several, hold));
        assert_eq!(several.len(), 20);
        drop(held);
        for number in 0..100 {
            push(&mut several, &Arc::new(number));
            assert!(several.len() <= 40);
        }
    }
}
