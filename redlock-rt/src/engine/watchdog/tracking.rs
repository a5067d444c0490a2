//! Locks whose loss Redis reports at once.
//!
//! After each renewal the server is asked to watch the renewed keys. It reports the next write to one of them,
//! once, by a message on a separate channel to the subscribing connection: a DEL, a flush, an expiry or an
//! eviction, but also a write of this client over its other connections. So a message is only a reason to verify
//! the lock, which also watches its key again.
//!
//! # Invariants
//!
//! 1. No message makes a guard lost or suspect: the reply to the verification does.
//! 2. Earlier writes than the confirmation of the channel are not reported: watched locks are then verified.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Watchdog;
use crate::clock;
use crate::connection::Message;
use crate::engine::hub::{ChannelListener, Hub, Subscription};
use crate::wire::keys::INVALIDATED;

/// A hold is watched from this age on: shorter ones cost nothing.
pub(super) const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// The shortest time between two verifications because of messages: for a holder that re-enters its lock again
/// and again.
pub(super) const APART: Duration = Duration::from_millis(2);

/// The least time between two verifications of all locks because of messages about all keys, which anybody may
/// publish again and again.
const FLUSHES_APART: Duration = Duration::from_millis(100);

/// The messages about all keys. Pure state.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    pub(super) told: bool,
    next: Option<Instant>,
}

impl Flushes {
    /// Whether to verify all locks now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.told && self.next.is_none_or(|next| next <= now);
        if due {
            (self.told, self.next) = (false, Some(clock::after(now, FLUSHES_APART)));
        }
        due
    }

    /// When to ask again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.next.filter(|_| self.told)
    }
}

/// The subscription to the reports of the server.
pub(crate) struct Tracking {
    hub: Arc<Hub>,
    watchdog: Weak<Watchdog>,
    subscription: Subscription,
}

impl Tracking {
    pub(in crate::engine) fn new(hub: &Arc<Hub>, watchdog: &Arc<Watchdog>) -> Arc<Self> {
        Arc::new(Self {
            hub: Arc::clone(hub),
            watchdog: Arc::downgrade(watchdog),
            subscription: Subscription::default(),
        })
    }

    /// Listens as long as there are watched keys.
    pub(in crate::engine) fn listen(self: &Arc<Self>, wanted: bool) {
        match wanted {
            true => self.subscription.start(&self.hub, INVALIDATED, self),
            false => self.subscription.end_if(|| true),
        }
    }

    /// Whether it receives the reports, or wants none.
    pub(in crate::engine) fn hears(&self) -> bool {
        !self.subscription.is_begun() || self.hub.hears(INVALIDATED)
    }

    /// Whether it receives the reports. The server discards those that come before, and goes on watching the keys.
    pub(in crate::engine) fn listens(&self) -> bool {
        self.subscription.is_begun() && self.hub.hears(INVALIDATED)
    }
}

impl ChannelListener for Tracking {
    fn confirmed(&self) {
        if let Some(watchdog) = self.watchdog.upgrade() {
            watchdog.written_to(None);
        }
    }

    fn heard(&self, message: &Message, _: Option<Duration>) {
        match (self.watchdog.upgrade(), &*message.payload) {
            // All keys: the server was flushed.
            (Some(watchdog), "") => watchdog.flushed(),
            (Some(watchdog), key) => watchdog.written_to(Some(key)),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_acted_upon_at_once_and_the_next_after_a_pause() {
        let (mut flushes, now) = (Flushes::default(), clock::now());
        assert!(!flushes.is_due(now) && flushes.wake_at().is_none());
        flushes.told = true;
        assert!(flushes.is_due(now) && !flushes.is_due(now));
        flushes.told = true;
        let next = now + FLUSHES_APART;
        assert_eq!(flushes.wake_at(), Some(next));
        assert!(!flushes.is_due(next - Duration::from_millis(1)) && flushes.is_due(next));
        assert!(flushes.wake_at().is_none());
    }
}
