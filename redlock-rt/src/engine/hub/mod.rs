//! Announcements of releases: one subscribing connection a client, whatever the number of locks.
//!
//! ```text
//! Line ──attach──▶ Hub ──effects──▶ task ──SUBSCRIBE──▶ Redis
//!   ▲                │                ▲                    │
//!   └────notify──────┴──confirmed, message, connection lost┘
//! ```
//!
//! A subscription that nobody needs any more lingers for a moment: the next waiter usually comes.

mod registry;
mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::registry::Registry;
pub(crate) use self::task::run;
use super::signal::Signal;
use crate::clock;
use crate::shim::{Mutex, lock};
use std::time::Duration;

/// What is told of a channel: it is confirmed, or something was published.
pub(crate) trait Listener: Send + Sync {
    fn notify(&self);
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

    /// Listens to a channel. Unless it is confirmed already, the listener is told when it is.
    ///
    /// Answers whether it is confirmed: whatever is published from now on will be heard.
    pub(crate) fn attach(
        self: &Arc<Self>,
        channel: &str,
        listener: Arc<dyn Listener>,
    ) -> (Attachment, bool) {
        let mut registry = lock(&self.registry);
        let (id, confirmed) = registry.attach(channel, listener);
        let channel = channel.to_owned();
        self.changed(registry);
        (
            Attachment {
                hub: Arc::clone(self),
                channel,
                id,
            },
            confirmed,
        )
    }

    /// Listens to a channel only if it is confirmed already.
    pub(crate) fn attach_confirmed(
        self: &Arc<Self>,
        channel: &str,
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
        Some(Attachment {
            hub: Arc::clone(self),
            channel: channel.to_owned(),
            id,
        })
    }

    /// Whether what is published on the channel is heard at present.
    pub(crate) fn is_confirmed(&self, channel: &str) -> bool {
        self.channels.load(Ordering::Acquire) > 0 && lock(&self.registry).is_confirmed(channel)
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
pub(crate) struct Attachment {
    hub: Arc<Hub>,
    channel: String,
    id: u64,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let now = clock::now_in_drop();
        let mut registry = lock(&self.hub.registry);
        let listener = registry.detach(&self.channel, self.id, now);
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
