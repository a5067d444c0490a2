//! A connection that listens.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use redis::aio::{PubSub, PubSubSink, PubSubStream};

use super::dialer::Dialer;
use super::fault::Fault;

/// The commands of a listening connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    sink: PubSubSink,
}

/// What a listening connection hears; ends when the connection does.
pub(crate) struct Announcements {
    stream: PubSubStream,
}

impl Subscriber {
    /// Connects. Must be called inside the runtime that is to drive the connection.
    pub(crate) async fn open(
        dialer: &Dialer,
        timeout: Duration,
    ) -> Result<(Self, Announcements), Fault> {
        let open = async {
            let stream = dialer
                .dial()
                .await
                .map_err(|error| Fault::Unreachable(Arc::new(error)))?;
            PubSub::new(&dialer.settings(), stream)
                .await
                .map_err(Fault::from_client)
        };
        match tokio::time::timeout(timeout, open).await {
            Ok(pubsub) => {
                let (sink, stream) = pubsub?.split();
                Ok((Self { sink }, Announcements { stream }))
            }
            Err(_) => Err(Fault::timed_out("connecting took too long")),
        }
    }

    /// Subscribes to one channel and waits for the confirmation. One channel a command: replies
    /// to several confirmations of one command can get out of step.
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

    /// Makes sure that the other side still listens.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        self.sink
            .ping::<redis::Value>()
            .await
            .map(drop)
            .map_err(Fault::from_client)
    }
}

impl Announcements {
    /// The next message: its channel and its payload.
    pub(crate) fn messages(self) -> impl Stream<Item = (String, Vec<u8>)> + Send + Unpin {
        self.stream.map(|message| {
            (
                message.get_channel_name().to_owned(),
                message.get_payload_bytes().to_vec(),
            )
        })
    }
}
