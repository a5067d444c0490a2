//! Counts acquisitions and cleanups that may still have to be sent to Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count.
#[derive(Debug, Default)]
pub(super) struct OutstandingCount {
    all: AtomicUsize,
    lasting: AtomicUsize,
}

impl OutstandingCount {
    pub(super) fn add(&self, lasting: bool) {
        self.all.fetch_add(1, Ordering::AcqRel);
        if lasting {
            self.lasting.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn subtract(&self, lasting: bool) {
        self.all.fetch_sub(1, Ordering::AcqRel);
        if lasting {
            self.lasting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn read(&self) -> Undelivered {
        Undelivered {
            all: self.all.load(Ordering::Acquire),
            lasting: self.lasting.load(Ordering::Acquire),
        }
    }
}

/// The number of releases that were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Undelivered {
    pub(in crate::engine) all: usize,
    /// The part of them that no lease ends.
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
        self.tally.subtract(self.lasting);
    }
}
