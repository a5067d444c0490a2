//! Calls that follow their slots.
//!
//! A node that does not have the slot of a call refuses the call before it runs. It names the node that has
//! the slot (MOVED), or the keys of a slot that is being moved there (ASK). The call is then sent there.
//!
//! Scripts that compute names of keys (the leases of readers, the set of permits in a renewal) are not sent
//! after ASKING. Redis checks only declared keys, so at the next master a lease that has not arrived yet
//! looks like an ended one. Such a call is repeated until the slot has moved. So is a call that the old
//! master stops because a key is missing. A read guard or a permit whose renewal waits for longer than the
//! lease is lost.
//!
//! A caller waits for a connection to a master only while that is the master of its slot. A sent call is
//! waited for, since it may have run.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Cluster;
use crate::clock;
use crate::connection::Exchange;
use crate::connection::call::{Delivery, Lane, Node, Prelude};
use crate::connection::fault::Fault;
use crate::connection::slot_news::{Redirect, SlotNews};
use crate::wire::{Call, Reply, Slot};

/// A caller that waits for a connection asks for the layout this often.
const SLOW: Duration = Duration::from_millis(500);
/// After this many redirections the caller pauses.
const MOST_HOPS: usize = 5;

impl Cluster {
    /// As [`Delivery::attempt`]. `call`: what to send; `None`: a call is in progress.
    pub(in crate::connection) async fn attempt(
        self: &Arc<Self>,
        delivery: &mut Delivery,
        (slot, lane): (Slot, Lane),
        call: Option<Call>,
        until: Option<Instant>,
    ) -> Option<Result<Reply, Fault>> {
        let reply = self.common.timeouts.reply();
        let Some(call) = call else {
            let outcome = delivery.finish(lane, reply, until).await?;
            return Some(outcome.map_err(|fault| {
                self.redirected(&fault, slot);
                fault.while_redirected()
            }));
        };
        let mut asks: Option<Arc<Node>> = None;
        let mut hops = String::new();
        for _ in 0..MOST_HOPS {
            let started = match asks.take() {
                None => self.start(slot, lane, &call, until).await?,
                Some(node) => {
                    let connection = node.connection(lane);
                    let started = connection.call_until(call.clone(), Prelude::Asking, until);
                    started.await?.map(|exchange| (node, exchange))
                }
            };
            match started {
                Ok((node, exchange)) => delivery.carry(exchange, node),
                Err(fault) => {
                    self.is_in_doubt();
                    return Some(Err(fault));
                }
            }
            let fault = match delivery.finish(lane, reply, until).await? {
                Ok(reply) => return Some(Ok(reply)),
                Err(fault) => fault,
            };
            if let Some(SlotNews::Redirect(redirect)) = fault.news() {
                let _ = write!(hops, "; {redirect}");
            }
            match self.redirected(&fault, slot) {
                Some(Next::Again) => {}
                Some(Next::Asking(_)) if call.needs_the_whole_slot() => break,
                Some(Next::Asking(node)) => asks = Some(node),
                Some(Next::Nowhere(why)) => {
                    return Some(Err(Fault::refused_for_now(format!("{why}{hops}"))));
                }
                None => return Some(Err(fault)),
            }
        }
        Some(Err(Fault::refused_for_now(format!(
            "slot {slot} is on the move{hops}"
        ))))
    }

    /// Starts a call at the present master of its slot.
    async fn start(
        self: &Arc<Self>,
        slot: Slot,
        lane: Lane,
        call: &Call,
        until: Option<Instant>,
    ) -> Option<Result<(Arc<Node>, Exchange), Fault>> {
        loop {
            let node = match clock::before(until, self.node(slot)).await? {
                Ok(node) => node,
                Err(fault) => return Some(Err(fault)),
            };
            let connection = node.connection(lane);
            let started = connection.call_until(call.clone(), Prelude::None, until);
            let mut started = std::pin::pin!(started);
            let mut left = std::pin::pin!(self.has_left(slot, &node));
            loop {
                tokio::select! {
                    biased;
                    started = &mut started => {
                        return started.map(|started| Ok((Arc::clone(&node), started?)));
                    }
                    // Another node was promoted, while this one does not answer, or refuses.
                    () = &mut left => break,
                    () = clock::sleep(SLOW) => self.is_in_doubt(),
                }
            }
        }
    }

    /// What to do about a fault, if it is a redirection. Records where the slot is.
    pub(in crate::connection) fn redirected(
        self: &Arc<Self>,
        fault: &Fault,
        slot: Slot,
    ) -> Option<Next> {
        match fault.news()? {
            SlotNews::Redirect(Redirect { asks, to, .. }) => {
                const MANY: Next = Next::Nowhere("the cluster names more than 1 000 nodes");
                let Some(to) = to else {
                    return Some(Next::Nowhere("a node names what is no host"));
                };
                if *asks {
                    return Some(self.node_at(to).map_or(MANY, Next::Asking));
                }
                match self.is_moved(slot, to) {
                    true => Some(Next::Again),
                    false => Some(MANY),
                }
            }
            SlotNews::Down => {
                self.is_in_doubt();
                None
            }
            SlotNews::Split => None,
        }
    }
}

/// Where to send a redirected call.
pub(in crate::connection) enum Next {
    /// To the master of its slot, which is another one by now.
    Again,
    /// To this node, which receives the keys of the slot one by one. Only once.
    Asking(Arc<Node>),
    /// To no node, for this reason.
    Nowhere(&'static str),
}
