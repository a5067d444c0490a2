//! A connection that listens.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::Either;
use futures::{Stream, StreamExt};
use redis::Value;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use super::checked::{Checked, Unheard};
use super::dialer::Dialer;
use super::endpoint::Address;
use super::fault::Fault;
use super::greeting::Reached;
use super::link::silent;
use super::listening::{Asking, Listening, Reach, listen};
use super::reach::reach;
use super::server::{CurrentServer, Tie};
use crate::wire::keys;

/// The commands of a listening connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    commands: Commands,
}

#[derive(Debug, Clone)]
enum Commands {
    Single(PubSubSink),
    /// At a node of a cluster.
    Node {
        asking: Asking,
        /// Whether it has sharded channels.
        sharded: bool,
        at: Option<Address>,
    },
}

/// The messages of a subscribing connection; ends with the connection, or when it is abandoned for
/// another server.
pub(crate) struct Announcements {
    stream: Messages,
    left: Arc<Notify>,
    tie: Arc<Tie>,
}

enum Messages {
    Single(PubSubStream, Arc<Unheard>),
    Node(Box<Listening<Checked>>),
}

impl Subscriber {
    /// Connects. Must be called inside the runtime that is to drive the connection.
    pub(crate) async fn open(
        dialer: &Dialer,
        timeout: Duration,
        server: &CurrentServer,
    ) -> Result<(Self, Announcements), Fault> {
        let left = Arc::new(Notify::new());
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
            let tie = Tie::new(at.clone(), {
                let left = Arc::clone(&left);
                move || left.notify_one()
            });
            server.arrive(number, &info, &tie)?;
            if dialer.is_clustered() {
                let (asking, listening) = listen(stream.unchecked());
                let commands = Commands::Node {
                    asking,
                    sharded: info.has_shard_channels,
                    at,
                };
                return Ok((commands, Messages::Node(Box::new(listening)), tie));
            }
            let unheard = Arc::<Unheard>::default();
            let pubsub = PubSub::new(&silent(), stream.listening(&unheard)).await;
            let (sink, stream) = pubsub.map_err(Fault::of_dialing)?.split();
            let messages = Messages::Single(stream, unheard);
            Ok::<_, Fault>((Commands::Single(sink), messages, tie))
        };
        let opened = tokio::time::timeout(timeout, open).await;
        let opened = opened.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()));
        opened
            .map(|(commands, stream, tie)| (Self { commands }, Announcements { stream, left, tie }))
    }

    /// Subscribes to one channel and waits for the confirmation. One channel per command: the
    /// confirmations of several channels in one command can get out of order.
    pub(crate) async fn subscribe(&mut self, channel: &str) -> Result<(), Fault> {
        match &mut self.commands {
            Commands::Single(sink) => sink.subscribe(channel).await.map_err(Fault::from_client),
            Commands::Node {
                asking,
                sharded,
                at,
            } => {
                let subscribed = asking.subscribe(channel, reach_of(channel, *sharded));
                subscribed.await.map_err(|fault| fault.said_at(at.as_ref()))
            }
        }
    }

    pub(crate) async fn unsubscribe(&mut self, channel: &str) -> Result<(), Fault> {
        match &mut self.commands {
            Commands::Single(sink) => sink.unsubscribe(channel).await.map_err(Fault::from_client),
            Commands::Node {
                asking, sharded, ..
            } => {
                let reach = reach_of(channel, *sharded);
                asking.unsubscribe(channel, reach).await
            }
        }
    }

    /// Checks that the other side still answers.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        match &mut self.commands {
            Commands::Single(sink) => {
                let pong = sink.ping::<Value>().await;
                pong.map(drop).map_err(Fault::from_client)
            }
            Commands::Node { asking, .. } => asking.ping().await,
        }
    }
}

/// A client's own channel is in no slot: scripts in all slots publish there.
fn reach_of(channel: &str, sharded: bool) -> Reach {
    match sharded && keys::is_in_a_slot(channel) {
        true => Reach::Shard,
        false => Reach::Everywhere,
    }
}

impl Announcements {
    /// What is heard.
    pub(crate) fn messages(self) -> impl Stream<Item = Heard> + Send + Unpin {
        let Self { stream, left, tie } = self;
        let left = Box::pin(async move {
            left.notified().await;
            drop(tie);
        });
        let messages = match stream {
            Messages::Single(stream, unheard) => Either::Left(single(stream, unheard)),
            // With the budget of its task used up, a stream looks empty that is not.
            Messages::Node(mut stream) => Either::Right(futures::stream::poll_fn(move |cx| {
                pin!(unconstrained(stream.next())).poll(cx)
            })),
        };
        messages.take_until(left)
    }
}

fn single(
    mut stream: PubSubStream,
    unheard: Arc<Unheard>,
) -> impl Stream<Item = Heard> + Send + Unpin {
    // With the budget of its task used up, a stream looks empty that is not.
    let messages = futures::stream::poll_fn(move |cx| {
        let next = pin!(unconstrained(stream.next())).poll(cx);
        if next.is_pending() {
            unheard.caught_up();
        }
        next
    });
    messages.map(|message| {
        Heard::Message(Message {
            channel: message.get_channel_name().to_owned(),
            payload: message.get_payload().unwrap_or_default(),
        })
    })
}

/// What a listening connection hears.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Message),
    /// The server has ended the subscription to this channel, because its slot has moved away.
    Left(String),
}

/// Something was published.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) channel: String,
    /// Empty if it is not text.
    pub(crate) payload: String,
}
