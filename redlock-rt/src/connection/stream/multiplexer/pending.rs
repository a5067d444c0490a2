//! Commands that were passed to the connection, and their results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::{Answer, Answers, Ended, Multiplexer, Progress, Unanswered, replace};

/// The commands of one call. As a future, the replies to them.
#[derive(Debug)]
pub(in crate::connection) struct Pending {
    multiplexer: Arc<Multiplexer>,
    /// `None` once the replies were returned. Small, since a waiting caller keeps it.
    place: Option<u32>,
    /// The call had to wait for room.
    pub(in crate::connection) queued: bool,
    admitted: Option<Instant>,
}

/// The result so far of a sent call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    Nothing,
    /// A reply. At least its first part is not a refusal.
    Reply,
    /// The caller must do something.
    Other,
}

impl Pending {
    pub(super) fn new(multiplexer: &Arc<Multiplexer>, place: usize, queued: bool) -> Self {
        Self {
            multiplexer: Arc::clone(multiplexer),
            place: Some(u32::try_from(place).unwrap_or(u32::MAX)),
            queued,
            admitted: None,
        }
    }

    fn place(&self) -> Option<usize> {
        Some(self.place? as usize)
    }

    /// When the call was sent, if it had to wait for room.
    pub(in crate::connection) fn admitted(&self) -> Option<Instant> {
        match self.place().filter(|_| self.queued) {
            None => self.admitted,
            Some(at) => self.multiplexer.state().places.get(at)?.admitted(),
        }
    }

    /// Takes the call back, if it waits for room. Otherwise it was sent.
    pub(in crate::connection) fn recall(&mut self) -> bool {
        let Some(at) = self.place().filter(|_| self.queued) else {
            return false;
        };
        let state = self.multiplexer.state();
        let waits = state.places.get(at).is_some_and(|place| {
            let is_sent = matches!(place.progress, Progress::Sent(_));
            !is_sent && place.missing > 0
        });
        if waits {
            self.multiplexer.leave(state, at);
            self.place = None;
        }
        waits
    }

    /// The reply to the first command, if it has come and `decides`, without waiting for the others.
    pub(in crate::connection) fn take_first(
        &mut self,
        decides: impl FnOnce(&Answer) -> bool,
    ) -> Option<Answer> {
        let at = self.place()?;
        let mut state = self.multiplexer.state();
        let place = state.places.get_mut(at)?;
        if !place.answers.first().is_some_and(decides) {
            return None;
        }
        let (first, admitted) = (place.answers.swap_remove(0), place.admitted());
        self.multiplexer.leave(state, at);
        (self.place, self.admitted) = (None, admitted);
        Some(first)
    }

    pub(in crate::connection) fn came(&self) -> Came {
        let Some(at) = self.place() else {
            return Came::Reply;
        };
        let is_reply = |answer: &Answer| matches!(answer, Ok(value) if !value.is_error());
        match self.multiplexer.state().places.get(at) {
            Some(place) if !place.answers.iter().all(is_reply) => Came::Other,
            Some(place) if place.missing == 0 => Came::Reply,
            Some(place) if !matches!(place.progress, Progress::PassedOver) => Came::Nothing,
            _ => Came::Other,
        }
    }
}

impl Future for Pending {
    type Output = Answers;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answers> {
        let Some(at) = self.place() else {
            return Poll::Pending;
        };
        let mut state = self.multiplexer.state();
        if let Some(place) = state.places.get_mut(at).filter(|place| place.missing > 0) {
            let before = replace(&mut place.waker, cx.waker());
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        let place = state.free(at);
        self.multiplexer.count(&state);
        drop(state);
        (self.place, self.admitted) = (None, place.admitted());
        Poll::Ready(place.answers)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(at) = self.place() {
            self.multiplexer.leave(self.multiplexer.state(), at);
        }
    }
}

/// The result of the last command of a call.
pub(in crate::connection) fn last(mut answers: Answers) -> Answer {
    let none = Err(Unanswered::Ended(Ended::Closed));
    answers.pop().unwrap_or(none)
}
