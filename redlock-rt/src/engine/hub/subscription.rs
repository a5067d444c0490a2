//! The attachment of a listener to its channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Attachment, ChannelListener, Hub, SubscriptionEnd};
use crate::shim::{AtomicBool, Mutex, lock};
use crate::wire::keys::Channel;

/// The one attachment of a listener, while there are waiters.
///
/// This is the only way to attach, so that a listener is always notified, because it missed earlier
/// messages: at once if the channel is confirmed already ([`ChannelListener::joined`]), and otherwise upon
/// the confirmation ([`ChannelListener::confirmed`]).
///
/// # Lock order
///
/// The attachment's lock is taken before those of the listener's state and of the hub's registry.
/// The listener is notified with none of them held.
#[derive(Default)]
pub(crate) struct Subscription {
    /// Boxed, since every held lock stores it.
    attachment: Mutex<Option<Box<Attachment>>>,
    /// Whether there is one, for those that do not want to wait for the mutex. Written under it.
    begun: AtomicBool,
    end: SubscriptionEnd,
}

impl Subscription {
    /// For a channel that no other waiter will use: the subscription ends at once.
    pub(crate) fn brief() -> Self {
        Self {
            end: SubscriptionEnd::AtOnce,
            ..Self::default()
        }
    }

    /// Subscribes to the channel, unless that was done before.
    pub(crate) fn start<L: ChannelListener + 'static>(
        &self,
        hub: &Arc<Hub>,
        channel: impl Into<String>,
        listener: &Arc<L>,
    ) {
        let confirmed = self.attach(hub, || {
            let channel = channel.into();
            let (id, confirmed) = hub.attach(&channel, Arc::clone(listener) as _);
            Some((channel, id, confirmed))
        });
        if confirmed == Some(true) {
            listener.joined();
        }
    }

    /// Subscribes to the channel if that needs no command. The caller notifies the listener. Returns until
    /// when that one should let other clients try first.
    pub(crate) fn start_if_confirmed<L: ChannelListener + 'static>(
        &self,
        hub: &Arc<Hub>,
        channel: Channel<'_>,
        listener: &Arc<L>,
    ) -> Option<Option<Instant>> {
        if hub.channels() == 0 {
            return None;
        }
        self.attach(hub, || {
            let channel = String::from(channel);
            let attached = hub.attach_confirmed(&channel, || Arc::clone(listener) as _);
            attached.map(|(id, yields)| (channel, id, yields))
        })
    }

    fn attach<T>(
        &self,
        hub: &Arc<Hub>,
        attach: impl FnOnce() -> Option<(String, u64, T)>,
    ) -> Option<T> {
        let mut known = lock(&self.attachment);
        if known.is_some() {
            return None;
        }
        let (channel, id, found) = attach()?;
        *known = Some(Box::new(Attachment {
            hub: Arc::clone(hub),
            channel,
            end: self.end,
            id,
        }));
        self.begun.store(true, Ordering::Release);
        Some(found)
    }

    /// Ends the subscription if `unneeded` returns true, which is called only if there is one. It may read
    /// the listener's state.
    pub(crate) fn end_if(&self, unneeded: impl FnOnce() -> bool) {
        // A waiter that subscribes meanwhile ends it.
        if !self.is_begun() {
            return;
        }
        let mut known = lock(&self.attachment);
        let ended = if unneeded() { known.take() } else { None };
        self.begun.store(known.is_some(), Ordering::Release);
        drop(known);
        // Dropped with no mutex held, since the drop takes the hub's.
        drop(ended);
    }

    /// Whether the listener receives the events of the channel.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}
