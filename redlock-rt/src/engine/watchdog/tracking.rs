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
use std::time::Duration;

use super::Watchdog;
use crate::connection::Message;
use crate::engine::hub::{ChannelListener, Hub, Subscription};
use crate::wire::keys::INVALIDATED;

/// A hold is watched from this age on: shorter ones cost nothing.
pub(super) const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// The shortest time between two verifications because of messages: for a holder that re-enters its lock again
/// and again.
pub(super) const APART: Duration = Duration::from_millis(2);

/// The same for a message about all keys, which anybody may publish again and again.
pub(super) const ALL_APART: Duration = Duration::from_millis(100);

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

    /// Whether it receives the reports.
    pub(in crate::engine) fn hears(&self) -> bool {
        !self.subscription.is_begun() || self.hub.hears(INVALIDATED)
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
            (Some(watchdog), "") => watchdog.written_to(None),
            (Some(watchdog), key) => watchdog.written_to(Some(key)),
            (None, _) => {}
        }
    }
}
