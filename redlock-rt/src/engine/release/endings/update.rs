//! A new count of a hold, or a longer lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Ending, Lapse, Sending, Stepped};
use crate::clock;
use crate::connection::Delivery;
use crate::engine::announcement::News;
use crate::engine::hold::Hold;
use crate::wire::{HoldReply, WantedLease};

/// Sets the count of the hold to that of its guards, and its lease to at least this one.
pub(in crate::engine::release) struct Update {
    pub(in crate::engine::release) hold: Arc<Hold>,
    pub(in crate::engine::release) lease: Duration,
}

impl Update {
    pub(super) async fn step(&mut self, by: &mut Sending, until: Option<Instant>) -> Stepped {
        let Self { hold, lease } = self;
        let count = hold.count();
        if count == 0 {
            // The last guard has ended meanwhile; the end of the hold follows.
            return Some(Ok(HoldReply::Done));
        }
        let most = hold.lease().asks(*lease);
        let wanted = WantedLease {
            lease: *lease,
            most,
        };
        let Some(call) = hold.recipe.update(&hold.id(), wanted, count) else {
            return Some(Ok(HoldReply::Done));
        };
        let answer = by.delivery.attempt(hold.to(), || call, until).await?;
        let sent = by.delivery.sent.unwrap_or_else(clock::now);
        let reply = by.read(answer);
        Some(reply.inspect(|reply| hold.answered(reply, sent, *lease)))
    }
}

impl Ending for Update {
    fn is_due(&self) -> bool {
        false
    }

    /// The call would only change a lease, and only of a lock that still exists.
    fn give_up(&self, _: &Sending, lapse: Lapse) -> Option<Instant> {
        Some(lapse.at)
    }

    fn over(&self, _: &News, _: &Delivery, _: bool) {}
}
