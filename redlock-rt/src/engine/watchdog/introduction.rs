//! Writes the identity of the client, together with its renewals: a client without renewed locks writes none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::connection::{Delivery, Lane, Nodes, To};
use crate::engine::ClientEngine;
use crate::name::LockName;
use crate::wire::ClientIdentity;

/// How often the key is written before it would expire.
const TIMES: u32 = 3;

/// The identity of a client, and when to write it next.
pub(crate) struct Introduction {
    identity: ClientIdentity,
    key: LockName,
    /// How long Redis keeps the identity at least.
    lives: Duration,
    due: Option<Instant>,
}

impl Introduction {
    /// The identity that the watchdog writes for this client.
    pub(in crate::engine) fn of(engine: &ClientEngine) -> Option<Self> {
        Some(Self {
            identity: engine.config.identity.clone()?,
            key: engine.client_key(engine.id.as_str())?,
            lives: engine.config.lease,
            due: None,
        })
    }

    /// Renewals are sent, which extend locks by at most `longest`. Returns the call to send with them, if it
    /// is due.
    pub(super) fn beside(
        &mut self,
        now: Instant,
        longest: Duration,
        nodes: &Arc<Nodes>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        // The next renewal may be as far away as a third of the longest lease.
        let lives = self.lives.max(longest);
        let every = lives / TIMES;
        let until = clock::after(now, every);
        self.due = Some(until);
        let (nodes, slot) = (Arc::clone(nodes), nodes.slot_of(&self.key));
        let call = self.identity.introduce(&self.key, lives);
        Some(async move {
            let to = To::new(&nodes, slot, Lane::Renewals);
            let mut delivery = Delivery::of_upkeep();
            let reply = delivery.attempt(to, || call, Some(until)).await;
            // No other code depends on the outcome.
            if let Some(Err(fault)) = reply {
                tracing::debug!(
                    reason = fault.reason(),
                    "the client could not say who it is"
                );
            }
        })
    }
}
