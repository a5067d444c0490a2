//! How much Redis may still have to be told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much there is of something.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: AtomicUsize,
    lasting: AtomicUsize,
}

impl Tally {
    pub(super) fn add(&self, lasting: bool) {
        self.all.fetch_add(1, Ordering::AcqRel);
        self.lasting
            .fetch_add(usize::from(lasting), Ordering::AcqRel);
    }

    fn subtract(&self, lasting: bool) {
        self.all.fetch_sub(1, Ordering::AcqRel);
        self.lasting
            .fetch_sub(usize::from(lasting), Ordering::AcqRel);
    }

    pub(super) fn read(&self) -> Undelivered {
        Undelivered {
            all: self.all.load(Ordering::Acquire),
            lasting: self.lasting.load(Ordering::Acquire),
        }
    }
}

/// How much Redis was not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Undelivered {
    pub(in crate::engine) all: usize,
    /// Of that, what has no lease that would end it.
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

/// An acquisition, or a cleanup that somebody runs: the client does not end before it, or in
/// the middle of it.
pub(in crate::engine) struct Open {
    tally: Arc<Tally>,
    lasting: bool,
}

impl Open {
    /// `lasting`: no lease ends it.
    pub(super) fn new(tally: &Arc<Tally>, lasting: bool) -> Self {
        tally.add(lasting);
        Self {
            tally: Arc::clone(tally),
            lasting,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What was left unfinished is in the queue already.
        self.tally.subtract(self.lasting);
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}
