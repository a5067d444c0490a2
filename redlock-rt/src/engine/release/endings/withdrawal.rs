//! The withdrawal of an acquisition whose caller has gone, or gave up with the outcome unknown.

use std::time::Instant;

use super::{Ending, Lapse, Sending, Stepped};
use crate::connection::{Delivery, Fault};
use crate::engine::announcement::News;
use crate::engine::hold::Request;
use crate::wire::AcquireReply;

/// An owner that may have the lock, but must not have it.
pub(crate) struct OrphanedAttempt {
    /// Keeps the waiters, so that none of them tries before this has ended.
    pub(in crate::engine) request: Request,
    /// Whether something must be removed even if the owner does not have the lock.
    pub(in crate::engine) traces: bool,
    /// The delivery of the acquisition.
    pub(in crate::engine) delivery: Delivery,
}

impl OrphanedAttempt {
    /// Waits for the outcome of the acquisition. Returns whether there is nothing to release.
    pub(in crate::engine::release) async fn ended_before_it_began(
        &mut self,
        until: Option<Instant>,
    ) -> Option<Result<bool, Fault>> {
        let (request, delivery) = (&self.request, &mut self.delivery);
        if !delivery.is_under_way() {
            return Some(Ok(!self.traces && delivery.open_since.is_none()));
        }
        // Nothing is sent here: the call is in progress.
        let answer = delivery.attempt(request.to(), || request.call(false, None), until);
        let answer = answer.await?;
        let read = |reply| request.recipe.acquired(reply);
        Some(match delivery.read(answer, read) {
            // From here on the number is used up: only its release is sent again.
            Ok(AcquireReply::Acquired(..)) => {
                delivery.reopen();
                Ok(false)
            }
            Ok(_) => {
                let profile = request.recipe.profile();
                let late = delivery.open_since.is_some() && profile.notes_withdrawals;
                // Kept for the next runtime, in case this one ends before the withdrawal arrives.
                self.traces |= late || profile.leaves_traces;
                Ok(!self.traces)
            }
            Err(_) => Ok(!self.traces && delivery.open_since.is_none()),
        })
    }

    pub(super) async fn step(&mut self, by: &mut Sending, until: Option<Instant>) -> Stepped {
        let Self { request, .. } = self;
        let call = || request.recipe.withdraw(&request.id());
        let answer = by.delivery.attempt(request.to(), call, until).await?;
        Some(by.read(answer))
    }
}

impl Ending for OrphanedAttempt {
    fn give_up(&self, _: &Sending, lapse: Lapse) -> Option<Instant> {
        // State other than the lock has no lease, and stays until it is removed.
        let leaves_traces = self.request.recipe.profile().leaves_traces;
        (!leaves_traces).then(|| lapse.of_all(self.request.to()))?
    }

    fn ends_with_lease(&self) -> bool {
        true
    }

    fn over(&self, news: &News, _: &Delivery, _: bool) {
        let Request { engine, recipe, .. } = &self.request;
        if let News::Announced(..) = news {
            engine.ended(&**recipe, news);
        }
        self.request.waiters.notify();
    }
}
