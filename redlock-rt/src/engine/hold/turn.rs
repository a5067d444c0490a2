//! State-changing commands of one hold are sent one at a time, also commands whose caller has gone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Hold;

/// The permission to send a state-changing command of a hold. It travels with the command, and ends
/// when it is dropped.
pub(crate) struct CommandTurn(Arc<Hold>);

impl CommandTurn {
    /// Takes the turn, if it is free.
    pub(crate) fn try_take(hold: &Arc<Hold>) -> Option<Self> {
        let taken = hold.busy.swap(true, Ordering::AcqRel);
        (!taken).then(|| Self(Arc::clone(hold)))
    }

    /// Waits for the turn.
    pub(crate) async fn take(hold: &Arc<Hold>) -> Self {
        loop {
            let mut changed = pin!(hold.changed());
            // Registered before the next look, so that the end of a turn is not missed.
            changed.as_mut().enable();
            if let Some(turn) = Self::try_take(hold) {
                return turn;
            }
            changed.await;
        }
    }
}

impl Drop for CommandTurn {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
        self.0.notify_changed();
    }
}
