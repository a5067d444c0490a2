//! The holds of this client in one lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::shim::{AtomicBool, Mutex, MutexGuard, lock};

/// A thing that may have ended by the local clock.
pub(crate) trait MayExpire {
    fn is_valid(&self) -> bool;
}

/// The holds of one name and kind; `H` is a hold.
#[derive(Debug)]
pub(crate) struct Holders<H> {
    /// Held for a moment, and no other is taken inside.
    known: Mutex<Holds<H>>,
    /// Whether there may be a holder of a kind with one, for those that do not want to wait for the
    /// mutex. Written under it.
    has_one: AtomicBool,
}

#[derive(Debug)]
struct Holds<H> {
    /// For a kind with one holder at a time.
    one: Weak<H>,
    /// For a kind with several holders, which another kind supersedes. Most of them have not ended.
    several: Vec<Weak<H>>,
}

impl<H> Default for Holders<H> {
    fn default() -> Self {
        Self {
            known: Mutex::new(Holds {
                one: Weak::new(),
                several: Vec::new(),
            }),
            has_one: AtomicBool::new(false),
        }
    }
}

impl<H> Holders<H> {
    fn known(&self) -> MutexGuard<'_, Holds<H>> {
        lock(&self.known)
    }
}

impl<H: MayExpire> Holders<H> {
    /// Sets the one holder; returns the hold that was there before.
    pub(super) fn replace(&self, hold: &Arc<H>) -> Option<Arc<H>> {
        let new = Arc::downgrade(hold);
        let mut known = self.known();
        let before = std::mem::replace(&mut known.one, new);
        self.has_one.store(true, Ordering::Release);
        drop(known);
        before.upgrade()
    }

    /// Sets the one holder, if it is still `before`. Returns whether it was.
    pub(super) fn follow(&self, before: &Arc<H>, hold: &Arc<H>) -> bool {
        let mut holds = self.known();
        let is_last = std::ptr::eq(holds.one.as_ptr(), Arc::as_ptr(before));
        if is_last {
            holds.one = Arc::downgrade(hold);
        }
        is_last
    }

    /// Adds one of several holds. Ended ones are removed whenever there is no room: O(1) per hold, since
    /// there is room for as many again afterwards.
    pub(super) fn add(&self, hold: &Arc<H>) {
        let mut known = self.known();
        let several = &mut known.several;
        if several.len() == several.capacity() {
            several.retain(|hold| hold.strong_count() > 0);
            several.reserve(several.len().max(8));
        }
        several.push(Arc::downgrade(hold));
    }

    /// The hold has ended.
    pub(super) fn remove(&self, hold: &H) {
        let mut known = self.known();
        if std::ptr::eq(known.one.as_ptr(), hold) {
            known.one = Weak::new();
            self.has_one.store(false, Ordering::Release);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<H>> {
        let known = self.known();
        let all = std::iter::once(&known.one).chain(&known.several);
        all.filter_map(Weak::upgrade).collect()
    }

    /// The one holder.
    pub(crate) fn one(&self) -> Option<Arc<H>> {
        self.known().one.upgrade()
    }

    /// Whether this client has a valid hold, for a kind with one holder at a time.
    pub(crate) fn is_held(&self) -> bool {
        let one = match self.has_one.load(Ordering::Acquire) {
            true => self.one(),
            false => None,
        };
        one.is_some_and(|hold| hold.is_valid())
    }
}

/// The holds of one explicit owner in one name, one of a kind.
#[derive(Debug)]
pub(crate) struct OwnedHolds<H>(Vec<Weak<H>>);

impl<H> Default for OwnedHolds<H> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<H: MayExpire> OwnedHolds<H> {
    pub(crate) fn valid(&self) -> impl Iterator<Item = Arc<H>> {
        let holds = self.0.iter().filter_map(Weak::upgrade);
        holds.filter(|hold| hold.is_valid())
    }

    /// Adds a hold, and removes ended ones.
    pub(crate) fn add(&mut self, new: &Arc<H>) {
        self.0.retain(|hold| {
            let hold = hold.upgrade();
            hold.is_some_and(|hold| !Arc::ptr_eq(&hold, new) && hold.is_valid())
        });
        self.0.push(Arc::downgrade(new));
    }

    /// Whether every hold has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.iter().all(|hold| hold.strong_count() == 0)
    }
}

#[cfg(all(test, not(redlock_loom)))]
mod tests {
    use super::*;

    struct Held;

    impl MayExpire for Held {
        fn is_valid(&self) -> bool {
            true
        }
    }

    #[test]
    fn holds_that_have_ended_are_forgotten_whenever_the_number_has_doubled() {
        let holders = Holders::default();
        let kept = || {
            let known = holders.known();
            known.several.len()
        };
        let held: Vec<_> = (0..20).map(|_| Arc::new(Held)).collect();
        held.iter().for_each(|hold| holders.add(hold));
        assert_eq!(kept(), 20);
        drop(held);
        for _ in 0..100 {
            holders.add(&Arc::new(Held));
            assert!(kept() <= 40);
        }
    }
}
