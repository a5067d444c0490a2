//! Counts the callers that use a client.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;

/// A caller's reference to an engine: part of each handle and each guard, and of nothing else.
/// Dropping the last one flushes the client, if `flush_on_drop` is set.
pub(crate) struct Handle {
    engine: Arc<Engine>,
    counted: bool,
}

impl Handle {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        engine.handles.fetch_add(1, Ordering::AcqRel);
        Self {
            engine: Arc::clone(engine),
            counted: true,
        }
    }

    /// A handle that does not count as a use of the client. Its clones do.
    pub(crate) fn uncounted(&self) -> Self {
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
        if self.counted && self.engine.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.engine.flush();
        }
    }
}

impl Deref for Handle {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.engine, f)
    }
}
