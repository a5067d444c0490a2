//! The delivery of one command to Redis, with or without a caller that waits for the reply.
//!
//! A delivery needs no runtime and no timer of its own, so a caller that stops in the middle can
//! hand it over with the call in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::{Exchange, Prelude};
use super::link::Link;
use super::node::{Lane, Node};
use super::reconnect::Connection;
use crate::clock;
use crate::connection::fault::Fault;
use crate::connection::stream::{Came, Share};
use crate::wire::{Announcement, Call, Malformed, Reply};

/// The delivery of one command, over as many connections as it takes.
#[derive(Default)]
pub(crate) struct Delivery {
    pub(in crate::connection) exchange: Option<Exchange>,
    /// The share of its calls in flight on a connection.
    share: Share,
    /// In a cluster, the node that the call in progress was sent to.
    pub(in crate::connection) asked: Option<Arc<Node>>,
    /// The link of the last reply.
    answered_on: Option<Arc<Link>>,
    /// When the first try without a reply was sent.
    pub(crate) open_since: Option<Instant>,
    /// When the last try was handed to a connection.
    pub(crate) sent: Option<Instant>,
    /// The call in progress was sent by a caller that did not wait for the reply.
    pub(in crate::connection) unattended: bool,
    /// The result of the announcement of the last answered call, if the reply does not contain it.
    published: Option<u32>,
}

impl Delivery {
    /// The delivery of a release or a heartbeat, which does not wait behind acquisitions.
    pub(crate) fn of_upkeep() -> Self {
        Self {
            share: Share::Upkeep,
            ..Self::default()
        }
    }

    /// Takes back a call that waits for room on its connection, so that it is never sent.
    pub(crate) fn recall(&mut self) {
        self.exchange.take_if(Exchange::recall);
    }

    /// Whether [`begin`](Self::begin) has read the reply, so that an attempt needs no timer.
    pub(crate) fn is_answered(&self) -> bool {
        self.exchange.as_ref().is_some_and(Exchange::is_answered)
    }

    /// The result so far of the call in progress.
    pub(crate) fn came(&self) -> Came {
        self.exchange.as_ref().map_or(Came::Other, Exchange::came)
    }

    /// Starts a call on this connection, unless one is in progress, and waits for the reply. Connects first
    /// if there is no connection. `None`: `until` came first, and the call stays here.
    pub(in crate::connection) fn over<'a>(
        &'a mut self,
        connection: &'a Arc<Connection>,
        call: impl FnOnce() -> Call,
        until: Option<Instant>,
        now: Option<Instant>,
    ) -> impl Future<Output = Option<Result<Reply, Fault>>> + Send + 'a {
        let mut unsent = None;
        if self.exchange.is_none() {
            match connection.try_call(call(), now) {
                Ok(exchange) => self.exchange = Some(exchange),
                Err(call) => unsent = Some(call),
            }
        }
        async move {
            if let Some(call) = unsent {
                // Boxed: it is rare, and would add to the size of every waiting future.
                match Box::pin(connection.call_until(call, Prelude::None, until)).await? {
                    Ok(exchange) => self.exchange = Some(exchange),
                    Err(fault) => return Some(Err(fault)),
                }
            }
            let reply = connection.timeouts().reply();
            let answer = self.answer(reply, until, true).await?;
            connection.heard(&answer);
            Some(answer)
        }
    }

    /// Carries a call to this node, to be waited for next.
    pub(in crate::connection) fn carry(&mut self, exchange: Exchange, node: Arc<Node>) {
        self.exchange = Some(exchange);
        self.asked = Some(node);
    }

    /// Waits for the reply of the asked node, whichever node has the slot by now, as long as it is not silent
    /// for `reply`. `None`: `until` came first, and the call stays here.
    pub(in crate::connection) async fn finish(
        &mut self,
        lane: Lane,
        reply: Duration,
        until: Option<Instant>,
    ) -> Option<Result<Reply, Fault>> {
        let answer = self.answer(reply, until, false).await?;
        if let Some(node) = self.asked.take() {
            node.connection(lane).heard(&answer);
        }
        Some(answer)
    }

    /// Waits for the reply to the call in progress. `watch`: see [`look_at`](Self::look_at).
    fn answer(
        &mut self,
        reply: Duration,
        until: Option<Instant>,
        watch: bool,
    ) -> impl Future<Output = Option<Result<Reply, Fault>>> + Send {
        let look_at = self.look_at(reply, until, watch);
        async move {
            let exchange = self.exchange.as_mut()?;
            let answer = match look_at {
                Some(at) => clock::timeout_at(clock::to_tokio(at), exchange).await.ok(),
                None => exchange.watched().await,
            };
            let answer = match answer {
                // Boxed for the same reason.
                None => Box::pin(self.wait_on(reply, until)).await?,
                answer => answer,
            };
            Some(self.finished(answer))
        }
    }

    /// When to check whether the server is silent, if there is no reply yet. `None`: the connection wakes the
    /// caller then, or the reply is there. `watch`: the connection may wake the caller, if the caller has as
    /// much time as the server.
    fn look_at(&mut self, reply: Duration, until: Option<Instant>, watch: bool) -> Option<Instant> {
        if let Some(exchange) = &mut self.exchange {
            self.sent = Some(exchange.made());
            if !exchange.is_sent {
                exchange.waits_for_room(self.share, until);
            }
        }
        let sent = self.sent.unwrap_or_else(clock::now);
        // At most one timer for both limits, since a timer is a large part of the cost of a call. A call
        // without a waiting caller may have been in an idle runtime since, with its reply unread.
        let since = if self.unattended { clock::now() } else { sent };
        let patience = clock::after(since, reply);
        let watch = watch && until.is_none_or(|until| until >= patience);
        let needs_timer = self
            .exchange
            .as_mut()
            .is_none_or(|exchange| !(exchange.is_answered() || watch && exchange.watch()));
        needs_timer.then(|| until.map_or(patience, |until| until.min(patience)))
    }

    /// As [`finish`](Self::finish), if the reply is late. Returns `None` inside if the connection must be
    /// given up without it, since it is not usable any more.
    async fn wait_on(
        &mut self,
        reply: Duration,
        until: Option<Instant>,
    ) -> Option<Option<Result<Reply, Fault>>> {
        loop {
            let now = clock::now();
            let is_out_of_time = until.is_some_and(|until| until <= now);
            let exchange = self.exchange.as_mut()?;
            // A caller whose time ends a moment earlier closes the connection too: perhaps no caller with
            // more time follows.
            let early = if is_out_of_time {
                reply / 4
            } else {
                Duration::ZERO
            };
            let at = match exchange.gives_up_at(reply) {
                Some(at) if at <= clock::after(now, early) => return Some(None),
                // The caller's time is over, but not that of the server: the call stays.
                _ if is_out_of_time => return None,
                at => at.unwrap_or_else(|| clock::after(now, reply)),
            };
            let at = until.map_or(at, |until| until.min(at));
            let answer = clock::timeout_at(clock::to_tokio(at), exchange).await;
            if let Ok(answer) = answer {
                return Some(Some(answer));
            }
        }
    }

    /// `answer`: the answer to the call in progress; `None`: the connection is given up without one.
    fn finished(&mut self, answer: Option<Result<Reply, Fault>>) -> Result<Reply, Fault> {
        let exchange = self.exchange.take();
        if let Some(exchange) = &exchange {
            self.sent = Some(exchange.made());
        }
        let sent = self.sent;
        self.unattended = false;
        match answer {
            Some(Err(fault)) => {
                if fault.may_have_run() {
                    self.open_since = self.open_since.or(sent);
                }
                Err(fault)
            }
            Some(answer) => {
                self.published = exchange.as_ref().and_then(|exchange| exchange.published);
                self.answered_on = exchange.map(|exchange| exchange.link);
                answer
            }
            None => {
                // The call may still run. So the connection is closed, and the next connection kills its
                // client before anything else is sent.
                self.open_since = self.open_since.or(sent);
                let fault = Fault::timed_out("no answer within the response time-out");
                Err(match exchange {
                    Some(exchange) => {
                        let fault = fault.at(exchange.link.place());
                        exchange.abandon();
                        fault
                    }
                    None => fault,
                })
            }
        }
    }

    /// Whether a call was sent whose outcome is not known.
    pub(crate) fn is_open(&self) -> bool {
        let exchange = self.exchange.as_ref();
        self.open_since.is_some() || exchange.is_some_and(|exchange| exchange.is_sent)
    }

    /// Whether the server has replied that the lock is taken, although the call is not over.
    pub(crate) fn found_taken(&self) -> bool {
        let exchange = self.exchange.as_ref();
        exchange.is_some_and(|exchange| exchange.found_taken)
    }

    /// Marks a call that was made by another caller: it was sent, and may have run.
    pub(crate) fn shadow(&self) -> Self {
        Self {
            share: self.share,
            open_since: self.open_since.or(self.sent),
            sent: self.sent,
            ..Self::default()
        }
    }

    /// The announcement of the last answered call, if the reply does not contain it.
    pub(crate) fn announcement(&self) -> Option<Announcement> {
        self.published.map(|made| Announcement::of(made.into()))
    }

    /// Whether a call is in progress whose reply must be read.
    pub(crate) fn is_under_way(&self) -> bool {
        self.exchange.is_some()
    }

    /// Reads the last answer. What `read` refuses cannot be a reply to the call: it says nothing about the
    /// call, which may have run, and the connection is closed.
    pub(crate) fn read<T>(
        &mut self,
        answer: Result<Reply, Fault>,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Fault> {
        read(answer?).map_err(|malformed| {
            self.reopen();
            match self.answered_on.take() {
                Some(link) => link.misread(malformed),
                None => Fault::nonsense(malformed),
            }
        })
    }

    /// The call ran; its effect must still be undone.
    pub(crate) fn reopen(&mut self) {
        self.open_since = self.sent;
    }

    /// A call was answered, which settles all earlier tries.
    pub(crate) fn close(&mut self) {
        self.exchange = None;
        self.open_since = None;
    }
}
