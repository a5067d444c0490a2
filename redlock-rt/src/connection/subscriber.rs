//! A connection that listens.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use redis::Value;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use super::checked::Unheard;
use super::dialer::Dialer;
use super::fault::Fault;
use super::greeting::Reached;
use super::link::silent;
use super::reach::reach;
use super::server::{CurrentServer, Tie};

/// The commands of a listening connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    sink: PubSubSink,
}

/// The messages of a subscribing connection; ends with the connection, or when it is abandoned for
/// another server.
pub(crate) struct Announcements {
    stream: PubSubStream,
    unheard: Arc<Unheard>,
    left: Arc<Notify>,
    tie: Arc<Tie>,
}

impl Subscriber {
    /// Connects. Must be called inside the runtime that is to drive the connection.
    pub(crate) async fn open(
        dialer: &Dialer,
        timeout: Duration,
        server: &CurrentServer,
    ) -> Result<(Self, Announcements), Fault> {
        let left = Arc::new(Notify::new());
        let unheard = Arc::<Unheard>::default();
        let open = async {
            let dial = |target| async move { dialer.dial(&target, timeout).await };
            let reached = reach(dialer, server, timeout, dial).await?;
            let Reached {
                stream,
                info,
                number,
                at,
                ..
            } = reached;
            let tie = Tie::new(at, {
                let left = Arc::clone(&left);
                move || left.notify_one()
            });
            server.arrive(number, &info, &tie)?;
            let stream = stream.listening(&unheard);
            let pubsub = PubSub::new(&silent(), stream).await;
            Ok::<_, Fault>((pubsub.map_err(Fault::of_dialing)?, tie))
        };
        match tokio::time::timeout(timeout, open).await {
            Ok(opened) => {
                let (pubsub, tie) = opened?;
                let (sink, stream) = pubsub.split();
                let announcements = Announcements {
                    stream,
                    unheard,
                    left,
                    tie,
                };
                Ok((Self { sink }, announcements))
            }
            Err(_) => Err(Fault::connecting_took_too_long()),
        }
    }

    /// Subscribes to one channel and waits for the confirmation. One channel per command: the
    /// confirmations of several channels in one command can get out of order.
    pub(crate) async fn subscribe(&mut self, channel: &str) -> Result<(), Fault> {
        self.sink
            .subscribe(channel)
            .await
            .map_err(Fault::from_client)
    }

    pub(crate) async fn unsubscribe(&mut self, channel: &str) -> Result<(), Fault> {
        self.sink
            .unsubscribe(channel)
            .await
            .map_err(Fault::from_client)
    }

    /// Checks that the other side still answers.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        self.sink
            .ping::<Value>()
            .await
            .map(drop)
            .map_err(Fault::from_client)
    }
}

impl Announcements {
    /// What is published.
    pub(crate) fn messages(self) -> impl Stream<Item = Message> + Send + Unpin {
        let Self {
            mut stream,
            unheard,
            left,
            tie,
        } = self;
        let left = Box::pin(async move {
            left.notified().await;
            drop(tie);
        });
        // With the budget of its task used up, a stream looks empty that is not.
        let messages = futures::stream::poll_fn(move |cx| {
            let next = pin!(unconstrained(stream.next())).poll(cx);
            if next.is_pending() {
                unheard.caught_up();
            }
            next
        });
        let messages = messages.map(|message| Message {
            channel: message.get_channel_name().to_owned(),
            payload: message.get_payload().unwrap_or_default(),
        });
        messages.take_until(left)
    }
}

/// Something was published.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) channel: String,
    /// Empty if it is not text.
    pub(crate) payload: String,
}
