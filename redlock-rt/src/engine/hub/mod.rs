//! Announcements of releases: one subscribing connection a client, whatever the number of locks.
//!
//! ```text
//! Line ──attach──▶ Hub ──effects──▶ task ──SUBSCRIBE──▶ Redis
//!   ▲                │                ▲                    │
//!   └────notify──────┴──confirmed, message, connection lost┘
//! ```
//!
//! A subscription that nobody needs any more lingers for a moment: the next waiter usually comes. That
//! to a channel of a single waiter does not.
//!
//! A connection on which this client does not hear its own announcements is half open, and given up
//! as soon as it does not answer a PING either; see `registry`.

#[cfg(all(test, redlock_loom))]
mod loom;
mod registry;
mod subscription;
mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use self::registry::End;
use self::registry::Registry;
pub(crate) use self::subscription::Subscription;
pub(crate) use self::task::run;
use super::signal::Signal;
use crate::clock;
use crate::connection::Message;
use crate::shim::{Mutex, lock};
use std::time::{Duration, Instant};

/// What is told of a channel.
pub(crate) trait Listener: Send + Sync {
    /// From now on it hears what is published. What was published before it did not hear, so it
    /// looks again.
    fn confirmed(&self);

    /// As [`confirmed`](Self::confirmed), where the channel was confirmed before it began to listen.
    fn joined(&self) {
        self.confirmed();
    }

    /// Redis refuses to subscribe it (an ACL): it hears nothing.
    fn refused(&self) {}

    /// Something was published.
    fn heard(&self, message: &Message);
}

/// The registry of channels and the signal of the task that keeps it true.
pub(crate) struct Hub {
    registry: Mutex<Registry<Arc<dyn Listener>>>,
    /// The number of channels, to be read without the lock on the way of an uncontended lock.
    channels: AtomicUsize,
    pub(super) signal: Signal,
}

impl Hub {
    pub(crate) fn new(linger: Duration) -> Self {
        Self {
            registry: Mutex::new(Registry::new(linger)),
            channels: AtomicUsize::new(0),
            signal: Signal::default(),
        }
    }

    /// Listens to a channel. The listener is told when that is confirmed; answers whether it is
    /// already, in which case the caller tells it.
    fn attach(
        self: &Arc<Self>,
        channel: &str,
        end: End,
        listener: Arc<dyn Listener>,
    ) -> (Attachment, bool) {
        let mut registry = lock(&self.registry);
        let (id, confirmed) = registry.attach(channel, listener);
        self.changed(registry);
        (self.attachment(channel, end, id), confirmed)
    }

    fn attachment(self: &Arc<Self>, channel: &str, end: End, id: u64) -> Attachment {
        Attachment {
            hub: Arc::clone(self),
            channel: channel.to_owned(),
            end,
            id,
        }
    }

    /// Listens to a channel only if it is confirmed already.
    fn attach_confirmed(
        self: &Arc<Self>,
        channel: &str,
        end: End,
        listener: impl FnOnce() -> Arc<dyn Listener>,
    ) -> Option<Attachment> {
        if self.channels.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut registry = lock(&self.registry);
        if !registry.is_confirmed(channel) {
            return None;
        }
        let (id, _) = registry.attach(channel, listener());
        self.changed(registry);
        Some(self.attachment(channel, end, id))
    }

    /// Something ended that this message tells: by a call of this client, sent at `sent`
    /// and answered by now, which published that; `None`: Redis did not, as far as is known. Who listens
    /// is told: by the message, or because it is missed, or now. Answers whether anybody does.
    pub(super) fn announced(&self, message: &Message, sent: Option<Instant>) -> bool {
        let channel = &*message.channel;
        if self.channels.load(Ordering::Acquire) == 0 {
            return false;
        }
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
            listener.heard(message);
        }
        !listeners.is_empty()
    }

    /// The number of channels subscribed to, those that linger included.
    pub(crate) fn channels(&self) -> usize {
        self.channels.load(Ordering::Acquire)
    }

    fn changed(&self, registry: crate::shim::MutexGuard<'_, Registry<Arc<dyn Listener>>>) {
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
    end: End,
    id: u64,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let now = clock::now_in_drop();
        let mut registry = lock(&self.hub.registry);
        let listener = registry.detach(&self.channel, self.id, self.end, now);
        self.hub.changed(registry);
        // Dropped only now: it may be the last reference to what takes other locks when it goes.
        drop(listener);
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
