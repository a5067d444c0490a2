//! A gate holds frames until the test opens it: order is forced, never slept for.

use std::sync::Arc;

use tokio::sync::watch;

use crate::DEADLINE;
use crate::eventually::within;

/// Holds every matching frame, and the frames behind it on the same connection.
///
/// Opens for good with [`open`](Self::open) or when dropped.
#[derive(Debug)]
#[must_use = "a gate opens when it is dropped"]
pub struct Gate {
    state: Arc<GateState>,
}

#[derive(Debug)]
pub(super) struct GateState {
    open: watch::Sender<bool>,
    held: watch::Sender<usize>,
}

impl Gate {
    pub(super) fn new() -> (Self, Arc<GateState>) {
        let (open, held) = (watch::Sender::new(false), watch::Sender::new(0));
        let state = Arc::new(GateState { open, held });
        (
            Self {
                state: state.clone(),
            },
            state,
        )
    }

    /// Waits until the gate holds a frame; panics if none comes.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Waits until the gate holds the frames of `count` connections; panics if they do not come.
    pub async fn reached_by(&self, count: usize) {
        let mut held = self.state.held.subscribe();
        let reached = within(DEADLINE, held.wait_for(|&held| held >= count)).await;
        reached.expect("the gate owns the sender");
    }

    /// How many frames are being held.
    pub fn held(&self) -> usize {
        *self.state.held.borrow()
    }

    /// Lets the held frames and all later frames pass.
    pub fn open(self) {
        drop(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.open.send_replace(true);
    }
}

impl GateState {
    pub(super) fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Opens the gate, independently of the test's handle.
    pub(super) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        // Counted down on drop, since the connection may be cut meanwhile.
        struct Held<'a>(&'a GateState);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.held.send_modify(|held| *held -= 1);
            }
        }
        let mut open = self.open.subscribe();
        self.held.send_modify(|held| *held += 1);
        let _held = Held(self);
        open.wait_for(|&open| open)
            .await
            .expect("self owns the sender");
    }
}
