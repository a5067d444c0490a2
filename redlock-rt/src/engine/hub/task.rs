//! The task that keeps the subscribing connection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::timeout;

use super::Hub;
use super::registry::{Effect, Topic};
use crate::clock;
use crate::connection::{
    Announcements, Caller, CurrentServer, Dialer, Fault, Message, Subscriber, Timeouts,
};
use crate::shim::lock;

/// An idle connection is asked for a sign of life this often.
const PING_EVERY: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl AsRef<super::Signal> for Hub {
    fn as_ref(&self) -> &super::Signal {
        &self.signal
    }
}

/// Runs until the hub is closed.
pub(crate) async fn run(
    hub: Arc<Hub>,
    dialer: Dialer,
    timeouts: Timeouts,
    server: Arc<CurrentServer>,
) {
    let mut pause = SHORTEST_PAUSE;
    while !hub.signal.is_closed() {
        if lock(&hub.registry).is_empty() {
            hub.signal.notified().await;
            continue;
        }
        match Subscriber::open(&dialer, timeouts.connect, &server).await {
            Ok((subscriber, announcements)) => {
                let since = clock::now();
                let why = listen(&hub, subscriber, announcements, timeouts.response).await;
                hub.disconnected();
                // A server that accepts and hangs up is no better than one that does not accept.
                if clock::now().saturating_duration_since(since) >= LONGEST_PAUSE {
                    pause = SHORTEST_PAUSE;
                }
                tracing::debug!(?why, "the subscribing connection ended");
            }
            Err(fault) => {
                tracing::debug!(?fault, "could not connect to subscribe");
            }
        }
        if !hub.signal.is_closed() {
            tokio::time::sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
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

    fn refused(&self, effect: &Effect) {
        let mut registry = lock(&self.registry);
        registry.refused(effect);
        let len = registry.len();
        self.channels
            .store(len, std::sync::atomic::Ordering::Release);
    }

    pub(super) fn heard(&self, message: &Message) {
        let topic = match &message.pattern {
            Some(pattern) => Topic::Pattern(pattern),
            None => Topic::Channel(&message.channel),
        };
        let listeners = lock(&self.registry).listeners(topic);
        let channel = &message.channel;
        listeners
            .iter()
            .for_each(|listener| listener.heard(channel));
    }
}

type Confirmation = (Effect, Result<(), Fault>);

/// Serves one connection until it breaks, falls silent, or the hub is closed.
async fn listen(
    hub: &Arc<Hub>,
    subscriber: Subscriber,
    announcements: Announcements,
    response: Duration,
) -> Option<Fault> {
    let mut messages = announcements.messages();
    let mut pending: FuturesUnordered<BoxFuture<'static, Confirmation>> = FuturesUnordered::new();
    let mut ping: Option<BoxFuture<'static, Result<(), Fault>>> = None;
    let mut ping_at = clock::now() + PING_EVERY;
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
            let mut subscriber = subscriber.clone();
            ping = Some(Box::pin(async move {
                let asked = timeout(response, subscriber.ping()).await;
                asked.unwrap_or_else(|_| Err(Fault::timed_out("no answer to PING")))
            }));
        }
        let next_ping = if ping.is_none() { Some(ping_at) } else { None };
        let wake_at = linger_until.into_iter().chain(next_ping).min();
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => hub.heard(&message),
                None => return None,
            },
            Some((effect, outcome)) = pending.next(), if !pending.is_empty() => match outcome {
                Ok(()) => hub.confirmed(&effect),
                Err(fault) if fault.is_passing_for(Caller::Subscription) => return Some(fault),
                Err(fault) => {
                    tracing::warn!(
                        ?fault, channel = effect.topic().text(),
                        "redis refuses to subscribe; waiters poll instead"
                    );
                    hub.refused(&effect);
                }
            },
            pong = async { ping.as_mut()?.await.into() }, if ping.is_some() => {
                ping = None;
                ping_at = clock::now() + PING_EVERY;
                if let Some(Err(fault)) = pong {
                    return Some(fault);
                }
            }
            () = hub.signal.notified() => {}
            () = clock::sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {}
        }
    }
}

fn exchange(
    mut subscriber: Subscriber,
    effect: Effect,
    response: Duration,
) -> BoxFuture<'static, Confirmation> {
    Box::pin(async move {
        let sent = async {
            match (effect.topic(), effect.subscribe) {
                (Topic::Channel(channel), true) => subscriber.subscribe(channel).await,
                (Topic::Channel(channel), false) => subscriber.unsubscribe(channel).await,
                (Topic::Pattern(pattern), true) => subscriber.psubscribe(pattern).await,
                (Topic::Pattern(pattern), false) => subscriber.punsubscribe(pattern).await,
            }
        };
        let outcome = timeout(response, sent).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Fault::timed_out("a subscription was not confirmed")));
        (effect, outcome)
    })
}
