//! Re-entry by the call tree.
//!
//! Neither threads nor tasks are owners: a task polls several futures at once (`join!`), and moves
//! between threads. A scope is opened around a body that runs under a guard. Inside the scope a
//! lock of the same name re-enters the hold of the guard. Siblings under `join!` have the scope of
//! their caller, not each other's, so they exclude each other. If their caller holds the same lock,
//! their bodies (`lock.with`, the attribute) re-enter it one after the other. A task started by
//! `tokio::spawn` inherits no scope.

use std::future::ready;
use std::sync::{Arc, Mutex};

use crate::engine::hold::Hold;
use crate::name::ClientId;
use crate::shim::lock_std;
use crate::wire::{Recipe, Relation};

tokio::task_local! {
    static FRAME: Frame;
}

/// A body that runs under a hold.
#[derive(Clone)]
struct Frame(Arc<FrameData>);

struct FrameData {
    parent: Option<Frame>,
    held: Arc<CurrentHold>,
    /// Concurrent bodies that re-enter from this frame (`join!`) take turns.
    turn: BodyTurn,
}

impl Drop for FrameData {
    /// One after the other: a frame that drops the next one overflows the stack at some ten thousand locks.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(Frame(data)) = parent {
            parent = Arc::into_inner(data).and_then(|mut data| data.parent.take());
        }
    }
}

/// The hold that a body runs under, if there is one. Another hold may replace it.
#[derive(Default)]
pub(crate) struct CurrentHold(Mutex<Option<Arc<Hold>>>);

impl CurrentHold {
    pub(crate) fn set(&self, hold: &Arc<Hold>) {
        let before = lock_std(&self.0).replace(Arc::clone(hold));
        drop(before);
    }
}

/// The turn among sibling bodies.
pub(super) type BodyTurn = Arc<tokio::sync::Mutex<()>>;

/// The frames in which a body runs: those of the caller, and the body's own.
#[derive(Clone, Default)]
pub(crate) struct ReentryScope(Option<Frame>);

impl ReentryScope {
    /// A new frame, in which `hold` may be re-entered.
    pub(crate) fn of(hold: &Arc<Hold>) -> Self {
        let held = Arc::<CurrentHold>::default();
        held.set(hold);
        Self::of_all(&[held])
    }

    /// The scope of a body that runs under several holds at once.
    pub(crate) fn of_all(holds: &[Arc<CurrentHold>]) -> Self {
        let around = |parent, held: &Arc<CurrentHold>| {
            Some(Frame(Arc::new(FrameData {
                parent,
                held: Arc::clone(held),
                turn: BodyTurn::default(),
            })))
        };
        Self(holds.iter().fold(innermost(), around))
    }

    /// Runs `body` in this scope.
    pub(crate) async fn run<F: Future>(self, body: F) -> F::Output {
        match self.0 {
            Some(frame) => FRAME.scope(frame, body).await,
            None => body.await,
        }
    }

    /// Polls a body in this scope.
    pub(crate) fn enter(&self, poll: impl FnOnce()) {
        match &self.0 {
            Some(frame) => FRAME.sync_scope(frame.clone(), poll),
            None => poll(),
        }
    }

    /// Drops a body in this scope; outside at the end of a thread, where `enter` panics.
    pub(crate) fn drop_body<B>(&self, body: B) {
        if let Some(frame) = &self.0 {
            drop(FRAME.scope(frame.clone(), ready(body)));
        }
    }
}

fn innermost() -> Option<Frame> {
    FRAME.try_with(Clone::clone).ok()
}

/// A hold of the caller, and its relation to the requested lock.
pub(super) struct EnclosingHold {
    pub(super) hold: Arc<Hold>,
    pub(super) relation: Relation,
    /// The turn of the bodies that re-enter from that frame.
    pub(super) turn: Option<BodyTurn>,
}

impl EnclosingHold {
    pub(super) fn of(hold: &Arc<Hold>, client: &ClientId, recipe: &dyn Recipe) -> Option<Self> {
        if hold.engine.id != *client {
            return None;
        }
        match recipe.relation(&*hold.recipe) {
            Relation::None => None,
            relation => Some(Self {
                hold: Arc::clone(hold),
                relation,
                turn: None,
            }),
        }
    }

    /// Returns the more relevant of two: the same lock first, then a lock that may be joined, then
    /// the nearer one.
    pub(super) fn or(self, further: Self) -> Self {
        let rank = |around: &Self| match around.relation {
            Relation::Same => 0,
            Relation::Joins => 1,
            Relation::Deadlocks | Relation::None => 2,
        };
        if rank(&further) < rank(&self) {
            further
        } else {
            self
        }
    }
}

/// The most relevant hold of the caller's frames for this lock.
pub(super) fn enclosing(client: &ClientId, recipe: &dyn Recipe) -> Option<EnclosingHold> {
    let innermost = innermost();
    let frames = std::iter::successors(innermost.as_ref(), |Frame(data)| data.parent.as_ref());
    let around = frames.filter_map(|Frame(data)| {
        let hold = lock_std(&data.held.0).clone()?;
        let mut around = EnclosingHold::of(&hold, client, recipe)?;
        around.turn = Some(Arc::clone(&data.turn));
        Some(around)
    });
    around.reduce(EnclosingHold::or)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_of_a_hundred_thousand_locks_overflowed_the_stack() {
        let held = Arc::<CurrentHold>::default();
        drop(ReentryScope::of_all(&vec![held; 100_000]));
    }
}
