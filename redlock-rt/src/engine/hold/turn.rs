//! State-changing commands of one hold are sent one at a time, also those whose caller has gone.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Hold;

/// The turns of one hold, given in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Turns {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(1))
    }
}

/// The permission to send a state-changing command of a hold. It travels with the command, and ends
/// when it is dropped.
pub(crate) struct Turn(Arc<Hold>);

impl Turn {
    /// The turn, if nobody has it.
    pub(crate) fn try_take(hold: &Arc<Hold>) -> Option<Self> {
        let permit = hold.turns.0.try_acquire().ok()?;
        permit.forget();
        Some(Self(Arc::clone(hold)))
    }

    /// Waits for the turn.
    pub(crate) async fn take(hold: &Arc<Hold>) -> Self {
        let permit = hold.turns.0.acquire().await;
        permit.expect("turns are never closed").forget();
        Self(Arc::clone(hold))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turns.0.add_permits(1);
    }
}
