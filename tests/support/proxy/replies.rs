//! Finds the request that a frame from the server answers.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Mutex,
};

use bytes::Bytes;
use tokio::sync::{Notify, futures::Notified};

use super::{frame::Frame, resp::words};
use crate::lock;

/// The kind of a frame from the server.
pub(super) enum Incoming {
    /// No answer: a message of a channel, another push, a line of MONITOR.
    Message(Frame),
    /// An answer to the request that is due; `last`: its last one.
    Reply {
        number: u64,
        request: Frame,
        last: bool,
    },
}

/// The replies for which the client of a connection waits.
#[derive(Default)]
pub(super) struct Replies {
    inner: Mutex<Inner>,
    canned: Notify,
}

#[derive(Default)]
struct Inner {
    due: VecDeque<Due>,
    /// Whether a subscribing command was ever sent: in RESP2 messages are plain arrays.
    subscriber: bool,
    /// The subscriptions of the connection, each with its command.
    channels: BTreeSet<(String, Bytes)>,
}

struct Due {
    number: u64,
    request: Frame,
    /// The answer, if the request was not passed to the server.
    canned: Option<Bytes>,
    /// Confirmations still to come, once the first has.
    confirmations: Option<usize>,
}

impl Replies {
    /// This request is being passed to the server.
    pub(super) fn expect(&self, number: u64, request: Frame) {
        let mut inner = lock(&self.inner);
        inner.subscriber |= request.command().ends_with("SUBSCRIBE");
        inner.due.push_back(Due {
            number,
            request,
            canned: None,
            confirmations: None,
        });
    }

    /// The proxy answers this request, in its turn.
    pub(super) fn expect_canned(&self, number: u64, request: Frame, answer: Bytes) {
        let canned = Some(answer);
        lock(&self.inner).due.push_back(Due {
            number,
            request,
            canned,
            confirmations: None,
        });
        self.canned.notify_one();
    }

    /// The proxy's answer that is due now.
    pub(super) fn take_canned(&self) -> Option<(u64, Bytes)> {
        let mut inner = lock(&self.inner);
        let canned = inner.due.front_mut()?.canned.take()?;
        let due = inner.due.pop_front()?;
        Some((due.number, canned))
    }

    /// Completes when [`take_canned`](Self::take_canned) may have something new.
    pub(super) fn canned_due(&self) -> Notified<'_> {
        self.canned.notified()
    }

    /// The request that is due was answered completely.
    pub(super) fn answered(&self) {
        lock(&self.inner).due.pop_front();
    }

    pub(super) fn classify(&self, connection: u64, bytes: &Bytes) -> Incoming {
        let mut inner = lock(&self.inner);
        let pushed = bytes.first() == Some(&b'>');
        if pushed || (inner.subscriber && bytes.first() == Some(&b'*')) {
            let args = words(bytes);
            let kind = args
                .first()
                .map(|kind| String::from_utf8_lossy(kind).into_owned());
            let kind = kind.unwrap_or_default();
            let confirmation = kind.ends_with("subscribe");
            let message = kind.ends_with("message") || (pushed && !confirmation);
            if confirmation && let Some(reply) = inner.confirm(&kind, args.get(1)) {
                return reply;
            }
            if message || confirmation {
                return Incoming::Message(Frame { connection, args });
            }
        }
        match inner.due.front() {
            Some(due) => Incoming::Reply {
                number: due.number,
                request: due.request.clone(),
                last: true,
            },
            None => Incoming::Message(Frame {
                connection,
                args: words(bytes),
            }),
        }
    }
}

impl Inner {
    /// Takes a confirmation; `None` if it belongs to another request than the due one.
    fn confirm(&mut self, kind: &str, channel: Option<&Bytes>) -> Option<Incoming> {
        let due = self.due.front_mut()?;
        if !due.request.command().eq_ignore_ascii_case(kind) {
            return None;
        }
        let family = kind.replacen("unsubscribe", "subscribe", 1);
        let left = due
            .confirmations
            .unwrap_or_else(|| match due.request.args.len() - 1 {
                // UNSUBSCRIBE from all: one for each channel, or one if there is none.
                0 => self
                    .channels
                    .iter()
                    .filter(|(of, _)| *of == family)
                    .count()
                    .max(1),
                named => named,
            });
        due.confirmations = Some(left - 1);
        if let Some(channel) = channel {
            if family == kind {
                self.channels.insert((family, channel.clone()));
            } else {
                self.channels.remove(&(family, channel.clone()));
            }
        }
        let request = due.request.clone();
        Some(Incoming::Reply {
            number: due.number,
            request,
            last: left == 1,
        })
    }
}
