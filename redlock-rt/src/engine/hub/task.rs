//! The task that keeps the subscribing connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::timeout;

use super::cluster::run_in_cluster;
use super::registry::{Effect, Registry};
use super::shards::Shards;
use super::{ChannelListener, Hub, Signal, SubscribedServer};
use crate::clock;
use crate::connection::{
    Beside, Caller, Cause, CurrentServer, Fault, Heard, Lane, Message, Node, Nodes, Right,
    Subscriber, Timeouts,
};
use crate::pause::Pause;
use crate::shim::lock;
use crate::wire::keys::INVALIDATED;

/// The interval of PINGs on an idle connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection that missed a message of our own is closed if nothing arrives for this long after a
/// PING.
const DEAF: Duration = Duration::from_millis(500);

/// Runs until the hub is closed.
pub(crate) async fn run(hub: Arc<Hub>, nodes: Arc<Nodes>, timeouts: Timeouts) {
    let _all = Subscriptions(&hub);
    match &*nodes {
        Nodes::One(node) => {
            let site = Site {
                hub: &hub,
                place: SubscribedServer::ONLY,
                signal: &hub.signal,
            };
            serve(site, node, timeouts).await;
        }
        Nodes::Cluster(cluster) => run_in_cluster(&hub, cluster, timeouts).await,
    }
}

/// Ends all subscriptions of a client with the task.
struct Subscriptions<'a>(&'a Hub);

impl Drop for Subscriptions<'_> {
    fn drop(&mut self) {
        self.0.change(Shards::disconnected);
    }
}

/// The channels at one server.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) hub: &'a Hub,
    pub(super) place: SubscribedServer,
    pub(super) signal: &'a Signal,
}

impl Site<'_> {
    /// Reads or changes the state of the channels.
    fn registry<T>(self, ask: impl FnOnce(&mut Registry<Arc<dyn ChannelListener>>) -> T) -> T {
        ask(lock(&self.hub.registry).at(self.place))
    }
}

/// Keeps the connection for the channels at one server, until the signal is closed.
pub(super) async fn serve(site: Site<'_>, node: &Node, timeouts: Timeouts) {
    let Site { hub, place, signal } = site;
    let (dialer, server) = (&node.common.dialer, &node.common.current);
    // Whether listeners know that they receive nothing.
    let mut told = false;
    let mut pause = Pause::SUBSCRIBING;
    while !signal.is_closed() {
        // A lingering subscription may have had no connection all the time.
        let ends_lingering = |registry: &mut Registry<_>| {
            registry.tick(clock::now());
            registry.is_empty()
        };
        if hub.change(|registry| ends_lingering(registry.at(place))) {
            signal.notified().await;
            continue;
        }
        let opened = Subscriber::open(dialer, timeouts.connect, server).await;
        // Another connection may serve this place by now.
        if signal.is_closed() {
            break;
        }
        match opened {
            Ok((subscriber, messages)) => {
                server.journal.connected(Some(Beside::ANNOUNCEMENTS));
                told = false;
                let since = clock::now();
                let listening = SubscribedConnection {
                    site,
                    server,
                    subscriber,
                    response: timeouts.response,
                    confirmations: FuturesUnordered::new(),
                    pong: None,
                    ping_at: since + PING_EVERY,
                    deaf_at: None,
                };
                let why = listening.run(messages).await;
                // Nothing is left at this place, or another connection serves it.
                if signal.is_closed() {
                    break;
                }
                hub.change(|registry| registry.at(place).disconnected());
                // A server that accepts and then closes is treated like one that does not accept.
                if clock::now().saturating_duration_since(since) >= pause.longest() {
                    pause.reset();
                }
                server.journal.lost(why);
            }
            Err(fault) => {
                let works = node.connection(Lane::Main).is_there();
                server
                    .journal
                    .failed(works.then_some(Beside::ANNOUNCEMENTS), &fault);
                if !std::mem::replace(&mut told, true) {
                    let deaf = site.registry(|registry| registry.all());
                    deaf.iter().for_each(|listener| listener.refused());
                }
            }
        }
        if !signal.is_closed() {
            hub.is_in_doubt();
            tokio::time::sleep(pause.take()).await;
        }
    }
}

impl Hub {
    pub(super) fn confirmed(&self, place: SubscribedServer, effect: &Effect) {
        let (told, left) = self.change(|registry| registry.confirmed(place, effect));
        told.iter().for_each(|listener| listener.confirmed());
        if left {
            self.look_for(&effect.channel);
        }
    }

    /// Changes the registry, and counts the channels.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Shards<Arc<dyn ChannelListener>>) -> T,
    ) -> T {
        let mut registry = lock(&self.registry);
        let output = change(&mut registry);
        let len = registry.len();
        self.channels.store(len, Ordering::Release);
        output
    }

    /// Reads the messages that have already arrived; returns whether there were any.
    fn hear_all(
        &self,
        place: SubscribedServer,
        messages: &mut (impl Stream<Item = Heard> + Unpin),
    ) -> bool {
        let mut any = false;
        while let Some(Some(heard)) = messages.next().now_or_never() {
            self.take_in(place, heard);
            any = true;
        }
        any
    }

    fn take_in(&self, place: SubscribedServer, heard: Heard) {
        match heard {
            Heard::Message(message) => self.heard(place, &message),
            Heard::Left(channel) => self.left(place, &channel),
        }
    }

    pub(super) fn heard(&self, place: SubscribedServer, message: &Message) {
        let mut registry = lock(&self.registry);
        // The payload of a release of a lock is no number of free permits, but lets one client proceed.
        let free = message.payload.parse().unwrap_or(1).max(1);
        let registry_at = registry.at(place);
        let (listeners, pause) = registry_at.heard(&message.channel, free, clock::now());
        drop(registry);
        listeners
            .iter()
            .for_each(|listener| listener.heard(message, pause));
    }
}

type Confirmation = (Effect, Result<(), Fault>);

const CLOSED: &str = "the subscribing connection was closed";
const SILENT: &str = "the subscribing connection does not answer";

/// One connection, and its commands in progress.
struct SubscribedConnection<'a> {
    site: Site<'a>,
    server: &'a CurrentServer,
    subscriber: Subscriber,
    response: Duration,
    confirmations: FuturesUnordered<BoxFuture<'static, Confirmation>>,
    pong: Option<BoxFuture<'static, Result<(), Fault>>>,
    ping_at: Instant,
    /// When a connection in doubt is closed.
    deaf_at: Option<Instant>,
}

impl SubscribedConnection<'_> {
    /// Serves the connection until it breaks, falls silent, or the signal is closed. Returns why it ended.
    async fn run(mut self, mut messages: impl Stream<Item = Heard> + Unpin) -> &'static str {
        let Site { hub, place, signal } = self.site;
        self.site.registry(|registry| registry.connected());
        let mut turns: u8 = 0;
        while !signal.is_closed() {
            // Messages can arrive without end, and reading them does not use up the task budget.
            turns = turns.wrapping_add(1);
            if turns == 0 {
                tokio::task::yield_now().await;
            }
            let now = clock::now();
            let wake_at = self.ask(now);
            tokio::select! {
                // In a fixed order, so that a simulation is repeatable. Messages can arrive without end,
                // so all branches that they must not delay come first. Every turn checks what a signal
                // announces.
                biased;
                () = clock::sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {
                    // All arrived messages are read before a message counts as missing.
                    if hub.hear_all(place, &mut messages) {
                        self.deaf_at = None;
                    }
                    if !self.look_for_missing() {
                        return SILENT;
                    }
                }
                Some((effect, outcome)) = self.confirmations.next(), if !self.confirmations.is_empty() => {
                    if !self.take_in(&effect, outcome) {
                        return SILENT;
                    }
                }
                pong = async { self.pong.as_mut()?.await.ok() }, if self.pong.is_some() => {
                    if pong.is_none() {
                        return SILENT;
                    }
                    self.pong = None;
                    self.deaf_at = None;
                    self.ping_at = clock::now() + PING_EVERY;
                    hub.hear_all(place, &mut messages);
                    self.site.registry(|registry| registry.repeat_refused());
                    if self.site.registry(|registry| registry.answered()) {
                        tracing::debug!("redis does not publish for us; our own waiters are told directly");
                    }
                }
                heard = messages.next() => match heard {
                    Some(heard) => {
                        // The connection is slow or busy, but works.
                        self.deaf_at = None;
                        hub.take_in(place, heard);
                    }
                    None => break,
                },
                () = signal.notified() => {}
            }
        }
        CLOSED
    }

    /// Sends the commands. Returns when something else is due.
    fn ask(&mut self, now: Instant) -> Option<Instant> {
        let linger_until = self.site.registry(|registry| registry.tick(now));
        while let Some(effect) = self.site.registry(|registry| registry.next_effect()) {
            let mut sent = exchange(self.subscriber.clone(), effect, self.response);
            // Polled once here, so that commands are sent in the order of their effects.
            self.confirmations.push(match (&mut sent).now_or_never() {
                Some(done) => async { done }.boxed(),
                None => sent,
            });
        }
        if now >= self.ping_at && self.pong.is_none() {
            self.pong = Some(sign_of_life(self.subscriber.clone(), self.response));
        }
        let next_ping = self.pong.is_none().then_some(self.ping_at);
        let overdue_at = self.site.registry(|registry| registry.overdue_at());
        let wakes = [linger_until, next_ping, overdue_at, self.deaf_at];
        wakes.into_iter().flatten().min()
    }

    /// Notifies listeners whose messages do not arrive. Returns whether the connection may still work.
    fn look_for_missing(&mut self) -> bool {
        let now = clock::now();
        if self.deaf_at.is_some_and(|at| at <= now) {
            return false;
        }
        let overdue = self.site.registry(|registry| registry.overdue(now));
        overdue
            .told
            .iter()
            .for_each(|listener| listener.confirmed());
        if overdue.doubt {
            // Also if a PING is in progress: only the reply to a new PING comes after the
            // published messages.
            self.pong = Some(sign_of_life(self.subscriber.clone(), self.response));
            self.deaf_at = Some(clock::now() + DEAF);
        }
        true
    }

    /// Reads the result of a command. Returns whether the connection still works.
    fn take_in(&self, effect: &Effect, outcome: Result<(), Fault>) -> bool {
        let Site { hub, place, .. } = self.site;
        match outcome {
            Ok(()) => hub.confirmed(place, effect),
            Err(fault) if hub.is_elsewhere(place, effect, &fault) => {}
            Err(fault) if fault.is_passing_for(Caller::Subscription) => return false,
            Err(fault) => {
                match fault.cause {
                    Cause::Denied if effect.channel == INVALIDATED => self.server.tells_nobody(),
                    Cause::Denied => self.server.journal.is_missing(Right::SUBSCRIBE),
                    _ => self.server.journal.will_repeat(&effect.channel, &fault),
                }
                let told = hub.change(|registry| registry.at(place).refused(effect));
                told.iter().for_each(|listener| listener.refused());
            }
        }
        true
    }
}

fn sign_of_life(
    mut subscriber: Subscriber,
    response: Duration,
) -> BoxFuture<'static, Result<(), Fault>> {
    Box::pin(async move {
        let asked = timeout(response, subscriber.ping()).await;
        asked.unwrap_or_else(|_| Err(Fault::timed_out("no answer to PING")))
    })
}

fn exchange(
    mut subscriber: Subscriber,
    effect: Effect,
    response: Duration,
) -> BoxFuture<'static, Confirmation> {
    Box::pin(async move {
        let sent = async {
            match effect.subscribe {
                true => subscriber.subscribe(&effect.channel).await,
                false => subscriber.unsubscribe(&effect.channel).await,
            }
        };
        let outcome = timeout(response, sent).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Fault::timed_out("a subscription was not confirmed")));
        (effect, outcome)
    })
}
