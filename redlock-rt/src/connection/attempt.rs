//! A try of a delivery: at the only server, or at the node of a cluster that has the slot of the call.

use std::task::Waker;
use std::time::Instant;

use futures::FutureExt;
use futures::future::Either;

use super::call::Delivery;
use super::fault::Fault;
use super::nodes::{Nodes, To};
use crate::wire::{Call, Reply};

impl Delivery {
    /// Sends `call`, or the unsent rest of it, if that needs no waiting. The next
    /// [`attempt`](Self::attempt) reads its reply, which wakes the waker.
    ///
    /// Returns whether it was sent on the connection to the only server. In a cluster the replies of
    /// several servers come in any order.
    pub(crate) fn begin(&mut self, to: To<'_>, call: impl FnOnce() -> Call, waker: &Waker) -> bool {
        if self.exchange.is_none() {
            self.exchange = match to.nodes {
                Nodes::One(node) => node.connection(to.lane).last_call(call()),
                Nodes::Cluster(cluster) => {
                    self.asked = cluster.known(to.slot);
                    let node = self.asked.as_ref();
                    node.and_then(|node| node.connection(to.lane).last_call(call()))
                }
            };
        }
        let Some(exchange) = &mut self.exchange else {
            return false;
        };
        exchange.send(waker);
        self.sent = Some(exchange.made());
        self.unattended = true;
        matches!(to.nodes, Nodes::One(_))
    }

    /// Sends `call` once, or continues to wait for the reply to the call in progress; `None`:
    /// `until` came first.
    ///
    /// # Cancel safety
    ///
    /// The call in progress stays here, for the next caller of this method. The same is true after
    /// `until`.
    ///
    /// No `async fn`, nor are those that it awaits: such a future keeps its arguments to its end, in addition
    /// to the place to which they were moved, and all waiting tasks store these futures.
    pub(crate) fn attempt<'a>(
        &'a mut self,
        to: To<'a>,
        call: impl FnOnce() -> Call,
        until: Option<Instant>,
    ) -> impl Future<Output = Option<Result<Reply, Fault>>> + Send + 'a {
        self.attempt_at(to, call, until, None)
    }

    /// As [`attempt`](Self::attempt). `now`: the time that the caller has read from the clock before,
    /// without an await in between.
    pub(crate) fn attempt_at<'a>(
        &'a mut self,
        to: To<'a>,
        call: impl FnOnce() -> Call,
        until: Option<Instant>,
        now: Option<Instant>,
    ) -> impl Future<Output = Option<Result<Reply, Fault>>> + Send + 'a {
        match to.nodes {
            Nodes::One(node) => Either::Left(self.over(node.connection(to.lane), call, until, now)),
            Nodes::Cluster(cluster) => {
                let call = (!self.is_under_way()).then(call);
                let to = (to.slot, to.lane);
                Either::Right(cluster.attempt(self, to, call, until).boxed())
            }
        }
    }
}
