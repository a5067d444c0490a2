//! Announcements of releases: one subscribing connection per client, whatever the number of locks.
//!
//! ```text
//! Waiters ──attach──▶ Hub ──effects──▶ task ──SUBSCRIBE──▶ Redis
//!   ▲                   │                ▲                    │
//!   └────notify─────────┴──confirmed, message, connection lost┘
//! ```
//!
//! A subscription without waiters lingers for a moment, because another waiter usually follows. A
//! subscription to the channel of a single waiter ends at once.
//!
//! A connection on which this client does not receive its own announcements may be half open. It is
//! closed if it does not answer a PING either; see `registry::missing`.

mod cluster;
#[cfg(test)]
mod loom;
mod registry;
mod rivals;
mod shards;
mod subscription;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use self::registry::SubscriptionEnd;
pub(crate) use self::rivals::Rivals;
use self::shards::Shards;
pub(crate) use self::shards::SubscribedServer;
pub(crate) use self::subscription::Subscription;
pub(crate) use self::task::run;
use super::signal::Signal;
use crate::clock;
use crate::connection::{Cluster, Message};
use crate::shim::{Mutex, lock};
use crate::wire::Slot;
use crate::wire::keys::Channel;
use std::time::{Duration, Instant};

/// The events of a channel, for a listener.
pub(crate) trait ChannelListener: Send + Sync {
    /// The subscription is confirmed: from now on the listener receives messages. It missed earlier
    /// messages, so it asks Redis again.
    fn confirmed(&self);

    /// The listener attached to a channel that was confirmed before. It missed earlier messages too.
    fn joined(&self) {
        self.confirmed();
    }

    /// Redis refuses the SUBSCRIBE (an ACL), or a connection for it: the listener receives no messages.
    fn refused(&self) {}

    /// A message was published. `pause`: for how long other clients should try first.
    fn heard(&self, message: &Message, pause: Option<Duration>);
}

/// The registry of channels, and the signal of the task that applies it.
pub(crate) struct Hub {
    registry: Mutex<Shards<Arc<dyn ChannelListener>>>,
    /// The number of channels, which an uncontended lock reads without the mutex.
    channels: AtomicUsize,
    pub(super) signal: Arc<Signal>,
    /// `None`: there is one server.
    cluster: Option<Arc<Cluster>>,
}

impl Hub {
    pub(crate) fn new(linger: Duration, cluster: Option<Arc<Cluster>>) -> Self {
        Self {
            cluster,
            registry: Mutex::new(Shards::new(linger)),
            channels: AtomicUsize::new(0),
            signal: Arc::default(),
        }
    }

    /// Attaches a listener to a channel, for an [`Attachment`] with the returned number. The listener is
    /// notified when the channel is confirmed. Returns whether it is confirmed already; in that case the
    /// caller notifies the listener.
    fn attach(&self, channel: &str, listener: Arc<dyn ChannelListener>) -> (u64, bool) {
        let mut registry = lock(&self.registry);
        let home = registry.home(channel, || self.place_of(channel));
        let attached = home.attach(channel, listener);
        self.changed(registry);
        attached
    }

    /// Attaches a listener to a channel only if the channel is confirmed already. Also returns until when
    /// it should let other clients try first.
    fn attach_confirmed(
        &self,
        channel: &str,
        listener: impl FnOnce() -> Arc<dyn ChannelListener>,
    ) -> Option<(u64, Option<Instant>)> {
        let mut registry = lock(&self.registry);
        if !registry.is_confirmed(channel) {
            return None;
        }
        let home = registry.home(channel, || self.place_of(channel));
        let (id, _) = home.attach(channel, listener());
        let rivals = home.rivals(channel);
        let yields = rivals.and_then(|rivals| rivals.asks(clock::now()));
        self.changed(registry);
        Some((id, yields))
    }

    /// The event of this message has happened. `sent`: when the call of this client was sent that
    /// published the message and has been answered; `None`: as far as is known, nothing was published.
    /// Listeners are notified by the message, or when the message is missed, or now. Returns whether
    /// there are listeners.
    pub(super) fn announced(
        &self,
        message: impl FnOnce() -> Message,
        sent: Option<Instant>,
    ) -> bool {
        if self.channels.load(Ordering::Acquire) == 0 {
            return false;
        }
        let message = message();
        let channel = &*message.channel;
        let mut registry = lock(&self.registry);
        let before = registry.overdue_at();
        if sent.is_some_and(|sent| registry.expect(channel, sent, clock::now())) {
            let sooner = registry.overdue_at() != before;
            drop(registry);
            if sooner {
                self.signal.notify();
            }
            return true;
        }
        let listeners = registry.listeners(channel);
        drop(registry);
        for listener in &listeners {
            listener.heard(&message, None);
        }
        !listeners.is_empty()
    }

    /// Reads or updates the state of the other clients of a channel; `None` if there is none.
    pub(crate) fn rivals<R>(
        &self,
        channel: Channel<'_>,
        ask: impl FnOnce(&mut Rivals) -> R,
    ) -> Option<R> {
        if self.channels() == 0 {
            return None;
        }
        lock(&self.registry).rivals(&String::from(channel)).map(ask)
    }

    /// This many connections received a message that this client has published on a channel.
    pub(super) fn released(&self, channel: Channel<'_>, receivers: u64) {
        if receivers == 0 && self.channels() == 0 {
            return;
        }
        let text = String::from(channel);
        let receivers = u32::try_from(receivers).unwrap_or(u32::MAX);
        let mut registry = lock(&self.registry);
        let home = registry.home(&text, || self.place_of(&text));
        if home.released(&text, receivers, clock::now()) {
            self.changed(registry);
        }
    }

    /// Whether this client receives the messages of a channel.
    pub(super) fn hears(&self, channel: &str) -> bool {
        lock(&self.registry).is_confirmed(channel)
    }

    /// The number of subscribed channels, including lingering ones.
    pub(crate) fn channels(&self) -> usize {
        self.channels.load(Ordering::Acquire)
    }

    /// The server at which a channel is subscribed.
    fn place_of(&self, channel: &str) -> Option<SubscribedServer> {
        match &self.cluster {
            None => Some(SubscribedServer::ONLY),
            Some(cluster) => {
                let node = cluster.known(Slot::of(channel))?;
                Some(SubscribedServer::new(node.number))
            }
        }
    }

    fn changed(&self, registry: crate::shim::MutexGuard<'_, Shards<Arc<dyn ChannelListener>>>) {
        self.channels.store(registry.len(), Ordering::Release);
        let work = registry.has_effects();
        drop(registry);
        if work {
            self.signal.notify();
        }
    }
}

/// Keeps a listener attached to a channel.
struct Attachment {
    hub: Arc<Hub>,
    channel: String,
    end: SubscriptionEnd,
    id: u64,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let now = clock::now_in_drop();
        let mut registry = lock(&self.hub.registry);
        let listener = registry.detach(&self.channel, self.id, self.end, now);
        self.hub.changed(registry);
        // Dropped only now: this may be the last reference to a value that takes other mutexes when
        // dropped.
        drop(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(AtomicUsize);

    impl ChannelListener for Heard {
        fn confirmed(&self) {}

        fn heard(&self, _: &Message, _: Option<Duration>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A release of this client that was not published, as far as is known.
    #[test]
    fn the_own_listeners_are_told_and_the_caller_whether_there_are_any() {
        let hub = Arc::new(Hub::new(Duration::ZERO, None));
        let heard = Arc::<Heard>::default();
        let message = |channel: &str| Message {
            channel: channel.to_owned(),
            payload: String::new(),
        };
        assert!(!hub.announced(|| message("a"), None), "nobody listens");
        let (_, confirmed) = hub.attach("a", Arc::clone(&heard) as _);
        assert!(!confirmed && hub.announced(|| message("a"), None));
        assert!(!hub.announced(|| message("b"), None));
        assert_eq!(heard.0.load(Ordering::Relaxed), 1);
    }
}
