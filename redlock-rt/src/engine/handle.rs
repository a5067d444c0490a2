//! Counts the callers that use a client.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ClientEngine;

/// A caller's reference to an engine: part of each handle. Each guard counts as one too, and nothing else does.
/// Dropping the last one flushes the client, if `flush_on_drop` is set.
pub(crate) struct Handle {
    engine: Arc<ClientEngine>,
    counted: bool,
}

impl ClientEngine {
    /// One more caller uses the client.
    pub(super) fn count_handle(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// A counted caller no longer uses the client.
    pub(super) fn discount_handle(self: &Arc<Self>) {
        if self.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.flush();
            self.end_unused();
        }
    }

    /// Ends a client that has no users left, and whose tasks have ended with their runtime. Its outstanding
    /// cleanups would keep it in memory for ever: a cleanup refers to its hold, and the hold to the engine.
    pub(super) fn end_unused(&self) {
        // A handle of one kind is made from one of the other kind before that one is dropped.
        let counts = [&self.uncounted, &self.handles, &self.uncounted];
        let unused = counts.iter().all(|count| count.load(Ordering::SeqCst) == 0);
        if unused && !self.releases.timers.signal.is_running() {
            self.releases.close();
        }
    }
}

impl Handle {
    pub(crate) fn new(engine: &Arc<ClientEngine>) -> Self {
        engine.count_handle();
        Self {
            engine: Arc::clone(engine),
            counted: true,
        }
    }

    /// A handle that does not count as a use of the client. Its clones do.
    pub(crate) fn uncounted(&self) -> Self {
        self.engine.uncounted.fetch_add(1, Ordering::SeqCst);
        Self {
            engine: Arc::clone(&self.engine),
            counted: false,
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(&self.engine)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.counted {
            self.engine.discount_handle();
        } else {
            self.engine.uncounted.fetch_sub(1, Ordering::SeqCst);
            self.engine.end_unused();
        }
    }
}

impl Deref for Handle {
    type Target = Arc<ClientEngine>;

    fn deref(&self) -> &Arc<ClientEngine> {
        &self.engine
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.engine, f)
    }
}
