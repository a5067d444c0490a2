//! Counts acquisitions and cleanups that may still have to be sent to Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of those that a lease ends, and of the others.
#[derive(Debug, Default)]
pub(super) struct OutstandingCount([AtomicUsize; 2]);

impl OutstandingCount {
    fn of(&self, lasting: bool) -> &AtomicUsize {
        &self.0[usize::from(lasting)]
    }

    pub(super) fn add(&self, lasting: bool) {
        self.of(lasting).fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn read(&self) -> Undelivered {
        let counts = self.0.each_ref();
        let [leased, lasting] = counts.map(|count| count.load(Ordering::Acquire));
        let all = leased + lasting;
        Undelivered { all, lasting }
    }
}

/// The number of releases that were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Undelivered {
    pub(in crate::engine) all: usize,
    /// How many of them no lease ends.
    pub(in crate::engine) lasting: usize,
}

impl Undelivered {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            lasting: self.lasting + other.lasting,
        }
    }
}

/// An acquisition or a running cleanup: the client does not end before it has ended.
pub(in crate::engine) struct Outstanding {
    tally: Arc<OutstandingCount>,
    lasting: bool,
}

impl Outstanding {
    /// `lasting`: no lease ends it.
    pub(super) fn new(tally: &Arc<OutstandingCount>, lasting: bool) -> Self {
        tally.add(lasting);
        Self {
            tally: Arc::clone(tally),
            lasting,
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        // Unfinished work is already in the queue.
        self.tally.of(self.lasting).fetch_sub(1, Ordering::AcqRel);
    }
}
