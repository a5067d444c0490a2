//! A connection that listens.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use super::listening::{Asking, Heard, listen};
use crate::connection::address::Address;
use crate::connection::dial::Dialer;
use crate::connection::fault::Fault;
use crate::connection::server::{CurrentServer, Listener, Tie, reach};
use crate::wire::keys;

/// The commands of a listening connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    asking: Asking,
    /// Whether it has sharded channels.
    sharded: bool,
    at: Option<Address>,
}

impl Subscriber {
    /// Connects. Must be called inside the runtime that will drive the connection. The received messages end
    /// with the connection, or when the connection is abandoned for another server.
    pub(crate) async fn open(
        dialer: &Dialer,
        timeout: Duration,
        server: &CurrentServer,
    ) -> Result<(Self, impl Stream<Item = Heard> + Send + Unpin), Fault> {
        let open = async {
            let dial = |target| async move { dialer.dial(&target, timeout).await };
            let reached = reach(dialer, server, timeout, dial).await?;
            let left = Arc::new(Notify::new());
            let tie = Tie::new(reached.at.clone(), {
                let left = Arc::clone(&left);
                move || left.notify_one()
            });
            server.arrive(reached.number, &reached.info, &tie)?;
            *server.listener() = reached.identity().map_or(Listener::Refused, Listener::At);
            let (asking, mut listening) = listen(reached.stream);
            let subscriber = Self {
                asking,
                sharded: reached.info.has_shard_channels,
                at: reached.at,
            };
            let left = Box::pin(async move {
                left.notified().await;
                drop(tie);
            });
            // If the budget of its task is used up, a stream seems empty although it is not.
            let messages =
                futures::stream::poll_fn(move |cx| pin!(unconstrained(listening.next())).poll(cx));
            Ok((subscriber, messages.take_until(left)))
        };
        let opened = tokio::time::timeout(timeout, open).await;
        opened.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()))
    }

    /// Subscribes to one channel and waits for the confirmation. One channel per command: the
    /// confirmations of several channels in one command can get out of order.
    pub(crate) async fn subscribe(&mut self, channel: &str) -> Result<(), Fault> {
        let subscribed = self.asking.subscribe(channel, self.is_sharded(channel));
        let here = |fault: Fault| fault.said_at(self.at.as_ref());
        subscribed.await.map_err(here)
    }

    pub(crate) async fn unsubscribe(&mut self, channel: &str) -> Result<(), Fault> {
        let sharded = self.is_sharded(channel);
        self.asking.unsubscribe(channel, sharded).await
    }

    /// Checks that the other side still answers.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        self.asking.ping().await
    }

    /// A client's own channel is in no slot: scripts in all slots publish there.
    fn is_sharded(&self, channel: &str) -> bool {
        self.sharded && keys::is_in_a_slot(channel)
    }
}
