//! A call without a lock, to be executed once.

use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Ending, Lapse, Sending, Stepped};
use crate::clock;
use crate::connection::Delivery;
use crate::engine::ClientEngine;
use crate::engine::announcement::News;
use crate::name::LockName;
use crate::wire::{Call, HoldReply, Malformed, Reply};

/// A call with an id. Redis keeps the id for a while, so that it executes the call once.
pub(in crate::engine::release) struct OnceRequest {
    pub(in crate::engine::release) engine: Arc<ClientEngine>,
    pub(in crate::engine::release) name: LockName,
    pub(in crate::engine::release) call: Call,
    /// How long the call may be repeated after a try whose reply was lost.
    pub(in crate::engine::release) noted: Duration,
    pub(in crate::engine::release) read: fn(Reply) -> Result<u64, Malformed>,
    /// The place for the reply.
    pub(in crate::engine::release) reply: Arc<OnceLock<u64>>,
}

impl OnceRequest {
    pub(super) fn begin(&self, delivery: &mut Delivery, waker: &Waker) -> bool {
        let call = || self.call.clone();
        delivery.begin(self.engine.to(&self.name), call, waker)
    }

    pub(super) async fn step(&mut self, by: &mut Sending, until: Option<Instant>) -> Stepped {
        let (call, to) = (|| self.call.clone(), self.engine.to(&self.name));
        let answer = by.delivery.attempt(to, call, until).await?;
        let answer = answer.map(|reply| by.hear(reply));
        let read = by.delivery.read(answer, self.read);
        Some(read.map(|reply| {
            // Set once: nothing is sent after a reply.
            let _ = self.reply.set(reply);
            HoldReply::Done
        }))
    }
}

impl Ending for OnceRequest {
    /// Later the id may be gone, and the call would be executed twice.
    fn give_up(&self, by: &Sending, _: Lapse) -> Option<Instant> {
        let response = self.engine.config.timeouts.response;
        let noted = self.noted.saturating_sub(response * 2);
        Some(clock::after(by.delivery.open_since?, noted))
    }

    fn over(&self, news: &News, _: &Delivery, _: bool) {
        if let Some(channel) = self.call.channel() {
            self.engine.ended_on(channel, news);
        }
    }
}
