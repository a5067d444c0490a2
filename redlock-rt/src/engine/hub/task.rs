//! The task that keeps the subscribing connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::timeout;

use super::Hub;
use super::registry::Effect;
use crate::clock;
use crate::connection::{
    Announcements, Caller, Cause, CurrentServer, Fault, Message, Nodes, Right, Subscriber, Timeouts,
};
use crate::pause::Pause;
use crate::shim::lock;

/// The interval of PINGs on an idle connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection that missed a message of our own is closed if nothing arrives for this long after a
/// PING.
const DEAF: Duration = Duration::from_millis(500);

impl AsRef<super::Signal> for Hub {
    fn as_ref(&self) -> &super::Signal {
        &self.signal
    }
}

/// Runs until the hub is closed.
pub(crate) async fn run(hub: Arc<Hub>, nodes: Arc<Nodes>, timeouts: Timeouts) {
    let mut pause = Pause::SUBSCRIBING;
    while !hub.signal.is_closed() {
        if lock(&hub.registry).is_empty() {
            hub.signal.notified().await;
            continue;
        }
        // In a cluster every node has the messages of all.
        let Ok(node) = nodes.any().await else {
            tokio::time::sleep(pause.take()).await;
            continue;
        };
        let server = node.current();
        match Subscriber::open(node.dialer(), timeouts.connect, server).await {
            Ok((subscriber, announcements)) => {
                server.back();
                let since = clock::now();
                let why = listen(&hub, server, subscriber, announcements, timeouts.response);
                let why = why.await;
                hub.disconnected();
                // A server that accepts and hangs up is treated like one that does not accept.
                if clock::now().saturating_duration_since(since) >= pause.longest() {
                    pause.reset();
                }
                if !hub.signal.is_closed() {
                    let why = why.map_or(
                        "the subscribing connection was closed",
                        |_| "the subscribing connection does not answer",
                    );
                    server.lost(why);
                }
            }
            Err(fault) => {
                server.failed(&fault);
            }
        }
        if !hub.signal.is_closed() {
            tokio::time::sleep(pause.take()).await;
        }
    }
}

impl Hub {
    /// All subscriptions are gone with the connection, or with the task.
    pub(crate) fn disconnected(&self) {
        let mut registry = lock(&self.registry);
        registry.disconnected();
        let len = registry.len();
        self.channels
            .store(len, std::sync::atomic::Ordering::Release);
    }

    pub(super) fn confirmed(&self, effect: &Effect) {
        let mut registry = lock(&self.registry);
        let told = registry.confirmed(effect);
        let len = registry.len();
        self.channels
            .store(len, std::sync::atomic::Ordering::Release);
        drop(registry);
        told.iter().for_each(|listener| listener.confirmed());
    }

    /// Reads the messages that have already arrived; returns whether there were any.
    fn hear_all(&self, messages: &mut (impl Stream<Item = Message> + Unpin)) -> bool {
        let mut any = false;
        while let Some(Some(message)) = messages.next().now_or_never() {
            self.heard(&message);
            any = true;
        }
        any
    }

    /// Notifies listeners whose messages do not arrive; returns whether to send a PING.
    fn overdue(&self) -> bool {
        let overdue = lock(&self.registry).overdue(clock::now());
        overdue
            .told
            .iter()
            .for_each(|listener| listener.confirmed());
        overdue.doubt
    }

    fn refused(&self, effect: &Effect) {
        let mut registry = lock(&self.registry);
        let told = registry.refused(effect);
        let len = registry.len();
        self.channels
            .store(len, std::sync::atomic::Ordering::Release);
        drop(registry);
        told.iter().for_each(|listener| listener.refused());
    }

    pub(super) fn heard(&self, message: &Message) {
        let listeners = lock(&self.registry).heard(&message.channel, clock::now());
        listeners
            .iter()
            .for_each(|listener| listener.heard(message));
    }
}

type Confirmation = (Effect, Result<(), Fault>);

/// Serves one connection until it breaks, falls silent, or the hub is closed.
async fn listen(
    hub: &Arc<Hub>,
    server: &CurrentServer,
    subscriber: Subscriber,
    announcements: Announcements,
    response: Duration,
) -> Option<Fault> {
    let mut messages = announcements.messages();
    let mut pending: FuturesUnordered<BoxFuture<'static, Confirmation>> = FuturesUnordered::new();
    let mut ping: Option<BoxFuture<'static, Result<(), Fault>>> = None;
    let mut ping_at = clock::now() + PING_EVERY;
    // When a connection in doubt is given up.
    let mut deaf_at: Option<Instant> = None;
    lock(&hub.registry).connected();
    loop {
        if hub.signal.is_closed() {
            return None;
        }
        let now = clock::now();
        let linger_until = lock(&hub.registry).tick(now);
        while let Some(effect) = { lock(&hub.registry).next_effect() } {
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
        let overdue_at = lock(&hub.registry).overdue_at();
        let wakes = [linger_until, next_ping, overdue_at, deaf_at];
        let wake_at = wakes.into_iter().flatten().min();
        tokio::select! {
            // In a fixed order, so that a simulation repeats itself. Messages can arrive without end,
            // so all branches that they must not delay come first. What a signal announces is
            // checked in every turn.
            biased;
            () = clock::sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {
                // All arrived messages are read before a message counts as missing.
                if hub.hear_all(&mut messages) {
                    deaf_at = None;
                }
                if deaf_at.is_some_and(|at| at <= clock::now()) {
                    return Some(Fault::timed_out("own announcements are not heard"));
                }
                if hub.overdue() {
                    // Also if a PING is in progress: only the reply to a new PING comes after the
                    // published messages.
                    ping = Some(sign_of_life(subscriber.clone(), response));
                    deaf_at = Some(clock::now() + DEAF);
                }
            }
            Some((effect, outcome)) = pending.next(), if !pending.is_empty() => match outcome {
                Ok(()) => hub.confirmed(&effect),
                Err(fault) if fault.is_passing_for(Caller::Subscription) => return Some(fault),
                Err(fault) => {
                    match fault.cause() {
                        Cause::Denied => server.is_missing(Right::Subscribe),
                        _ => server.will_repeat(&effect.channel, &fault),
                    }
                    hub.refused(&effect);
                }
            },
            pong = async { ping.as_mut()?.await.into() }, if ping.is_some() => {
                ping = None;
                deaf_at = None;
                ping_at = clock::now() + PING_EVERY;
                if let Some(Err(fault)) = pong {
                    return Some(fault);
                }
                hub.hear_all(&mut messages);
                if lock(&hub.registry).answered() {
                    tracing::debug!("redis does not publish for us; our own waiters are told directly");
                }
            }
            message = messages.next() => match message {
                Some(message) => {
                    // The connection is slow or busy, but works.
                    deaf_at = None;
                    hub.heard(&message);
                }
                None => return None,
            },
            () = hub.signal.notified() => {}
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
