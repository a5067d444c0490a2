//! The task that keeps the subscribing connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::timeout;

use super::nodes::run_in_cluster;
use super::registry::Effect;
use super::shards::Shards;
use super::{Hub, Listener, Place, Signal};
use crate::clock;
use crate::connection::{
    Announcements, Beside, Caller, Cause, CurrentServer, Fault, Heard, Lane, Message, Node, Nodes,
    Right, Subscriber, Timeouts,
};
use crate::pause::Pause;
use crate::shim::lock;

/// The interval of PINGs on an idle connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection that missed a message of our own is closed if nothing arrives for this long after a
/// PING.
const DEAF: Duration = Duration::from_millis(500);

impl AsRef<Signal> for Hub {
    fn as_ref(&self) -> &Signal {
        &self.signal
    }
}

/// Runs until the hub is closed.
pub(crate) async fn run(hub: Arc<Hub>, nodes: Arc<Nodes>, timeouts: Timeouts) {
    match &*nodes {
        Nodes::One(node) => {
            let site = Site {
                hub: &hub,
                place: Place::ONLY,
                signal: &hub.signal,
            };
            serve(site, node, timeouts).await;
        }
        Nodes::Cluster(cluster) => run_in_cluster(&hub, cluster, timeouts).await,
    }
}

/// The channels at one server.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) hub: &'a Hub,
    pub(super) place: Place,
    pub(super) signal: &'a Signal,
}

/// Keeps the connection for the channels at one server, until the signal is closed.
pub(super) async fn serve(site: Site<'_>, node: &Node, timeouts: Timeouts) {
    let Site { hub, place, signal } = site;
    let (dialer, server) = (node.dialer(), node.current());
    // Whether listeners know that they hear nothing.
    let mut told = false;
    let mut pause = Pause::SUBSCRIBING;
    while !signal.is_closed() {
        if lock(&hub.registry).at(place).is_empty() {
            signal.notified().await;
            continue;
        }
        match Subscriber::open(dialer, timeouts.connect, server).await {
            Ok((subscriber, announcements)) => {
                server.connected(Some(Beside::ANNOUNCEMENTS));
                told = false;
                let since = clock::now();
                let why = listen(site, server, subscriber, announcements, timeouts.response);
                let why = why.await;
                hub.disconnected_at(place);
                // A server that accepts and hangs up is treated like one that does not accept.
                if clock::now().saturating_duration_since(since) >= pause.longest() {
                    pause.reset();
                }
                if !signal.is_closed() {
                    let why = why.map_or(
                        "the subscribing connection was closed",
                        |_| "the subscribing connection does not answer",
                    );
                    server.lost(why);
                }
            }
            Err(fault) => {
                let works = node.connection(Lane::Main).is_there();
                server.failed(works.then_some(Beside::ANNOUNCEMENTS), &fault);
                if !std::mem::replace(&mut told, true) {
                    let deaf = lock(&hub.registry).at(place).all();
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
    /// All subscriptions are gone with the task.
    pub(crate) fn disconnected(&self) {
        self.change(|registry| registry.disconnected());
    }

    /// All subscriptions at this place are gone with the connection.
    fn disconnected_at(&self, place: Place) {
        self.change(|registry| registry.at(place).disconnected());
    }

    pub(super) fn confirmed(&self, place: Place, effect: &Effect) {
        let (told, left) = self.change(|registry| registry.confirmed(place, effect));
        told.iter().for_each(|listener| listener.confirmed());
        if left {
            self.look_for(&effect.channel);
        }
    }

    /// Changes the registry, and counts the channels.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Shards<Arc<dyn Listener>>) -> T) -> T {
        let mut registry = lock(&self.registry);
        let output = change(&mut registry);
        let len = registry.len();
        self.channels.store(len, Ordering::Release);
        output
    }

    /// Reads the messages that have already arrived; returns whether there were any.
    fn hear_all(&self, place: Place, messages: &mut (impl Stream<Item = Heard> + Unpin)) -> bool {
        let mut any = false;
        while let Some(Some(heard)) = messages.next().now_or_never() {
            self.take_in(place, heard);
            any = true;
        }
        any
    }

    fn take_in(&self, place: Place, heard: Heard) {
        match heard {
            Heard::Message(message) => self.heard(place, &message),
            Heard::Left(channel) => self.left(place, &channel),
        }
    }

    /// Notifies listeners whose messages do not arrive; returns whether to send a PING.
    fn overdue(&self, place: Place) -> bool {
        let overdue = lock(&self.registry).at(place).overdue(clock::now());
        overdue
            .told
            .iter()
            .for_each(|listener| listener.confirmed());
        overdue.doubt
    }

    fn refused(&self, place: Place, effect: &Effect) {
        let told = self.change(|registry| registry.at(place).refused(effect));
        told.iter().for_each(|listener| listener.refused());
    }

    pub(super) fn heard(&self, place: Place, message: &Message) {
        let mut registry = lock(&self.registry);
        // What a release of a lock says is no number of free permits, but its release lets one have it.
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

/// Serves one connection until it breaks, falls silent, or the signal is closed.
async fn listen(
    site: Site<'_>,
    server: &CurrentServer,
    subscriber: Subscriber,
    announcements: Announcements,
    response: Duration,
) -> Option<Fault> {
    let Site { hub, place, signal } = site;
    let mut messages = announcements.messages();
    let mut pending: FuturesUnordered<BoxFuture<'static, Confirmation>> = FuturesUnordered::new();
    let mut ping: Option<BoxFuture<'static, Result<(), Fault>>> = None;
    let mut ping_at = clock::now() + PING_EVERY;
    // When a connection in doubt is given up.
    let mut deaf_at: Option<Instant> = None;
    lock(&hub.registry).at(place).connected();
    let mut turns: u8 = 0;
    loop {
        if signal.is_closed() {
            return None;
        }
        // Messages can arrive without end, and reading them uses up no task budget.
        turns = turns.wrapping_add(1);
        if turns == 0 {
            tokio::task::yield_now().await;
        }
        let now = clock::now();
        let linger_until = lock(&hub.registry).at(place).tick(now);
        while let Some(effect) = { lock(&hub.registry).at(place).next_effect() } {
            let mut send = exchange(subscriber.clone(), effect, response);
            // Polled once here, so that commands are sent in the order of their effects.
            match futures::poll!(&mut send) {
                std::task::Poll::Ready(done) => pending.push(async { done }.boxed()),
                std::task::Poll::Pending => pending.push(send),
            }
        }
        if now >= ping_at && ping.is_none() {
            ping = Some(sign_of_life(subscriber.clone(), response));
        }
        let next_ping = if ping.is_none() { Some(ping_at) } else { None };
        let overdue_at = lock(&hub.registry).at(place).overdue_at();
        let wakes = [linger_until, next_ping, overdue_at, deaf_at];
        let wake_at = wakes.into_iter().flatten().min();
        tokio::select! {
            // In a fixed order, so that a simulation repeats itself. Messages can arrive without end,
            // so all branches that they must not delay come first. What a signal announces is
            // checked in every turn.
            biased;
            () = clock::sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {
                // All arrived messages are read before a message counts as missing.
                if hub.hear_all(place, &mut messages) {
                    deaf_at = None;
                }
                if deaf_at.is_some_and(|at| at <= clock::now()) {
                    return Some(Fault::timed_out("own announcements are not heard"));
                }
                if hub.overdue(place) {
                    // Also if a PING is in progress: only the reply to a new PING comes after the
                    // published messages.
                    ping = Some(sign_of_life(subscriber.clone(), response));
                    deaf_at = Some(clock::now() + DEAF);
                }
            }
            Some((effect, outcome)) = pending.next(), if !pending.is_empty() => match outcome {
                Ok(()) => hub.confirmed(place, &effect),
                Err(fault) if hub.is_elsewhere(place, &effect, &fault) => {}
                Err(fault) if fault.is_passing_for(Caller::Subscription) => return Some(fault),
                Err(fault) => {
                    match fault.cause() {
                        Cause::Denied => server.is_missing(Right::Subscribe),
                        _ => server.will_repeat(&effect.channel, &fault),
                    }
                    hub.refused(place, &effect);
                }
            },
            pong = async { ping.as_mut()?.await.into() }, if ping.is_some() => {
                ping = None;
                deaf_at = None;
                ping_at = clock::now() + PING_EVERY;
                if let Some(Err(fault)) = pong {
                    return Some(fault);
                }
                hub.hear_all(place, &mut messages);
                if lock(&hub.registry).at(place).answered() {
                    tracing::debug!("redis does not publish for us; our own waiters are told directly");
                }
            }
            heard = messages.next() => match heard {
                Some(heard) => {
                    // The connection is slow or busy, but works.
                    deaf_at = None;
                    hub.take_in(place, heard);
                }
                None => return None,
            },
            () = signal.notified() => {}
        }
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
