//! The place of a queue in its map entry.

use crate::shim::{Mutex, lock};

use super::queue::WaitQueue;

/// The queue of a name, while it has tickets. Boxed, since each held lock stores one.
///
/// Its mutex is held briefly, with no other mutex taken inside.
#[derive(Debug)]
pub(super) struct QueueCell<T, O>(Mutex<Option<Box<WaitQueue<T, O>>>>);

impl<T, O> Default for QueueCell<T, O> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone, O> QueueCell<T, O> {
    /// Acts on the queue; a new one, if there is none.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut WaitQueue<T, O>) -> R) -> R {
        let mut place = lock(&self.0);
        let queue = place.get_or_insert_default();
        let result = act(queue);
        if queue.is_idle() {
            *place = None;
        }
        result
    }

    /// Acts on the queue if there is one. This would not change a new one.
    pub(super) fn if_any<R>(&self, act: impl FnOnce(&mut WaitQueue<T, O>) -> R) -> Option<R> {
        let mut place = lock(&self.0);
        let queue = place.as_mut()?;
        let result = act(queue);
        if queue.is_idle() {
            *place = None;
        }
        Some(result)
    }
}
