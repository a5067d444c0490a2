//! The steps of the hub's task, for the models of the listeners.

use std::sync::Arc;

use super::{Hub, SubscribedServer};
use crate::connection::Message;
use crate::shim::lock;

impl Hub {
    /// The subscribing connection is there.
    pub(in crate::engine) fn up(&self) {
        lock(&self.registry).at(SubscribedServer::ONLY).connected();
    }

    /// Sends the commands. Call the result when the server confirms them.
    pub(in crate::engine) fn sent(self: &Arc<Self>) -> impl FnOnce() + Send + 'static {
        let mut registry = lock(&self.registry);
        let sent: Vec<_> =
            std::iter::from_fn(|| registry.at(SubscribedServer::ONLY).next_effect()).collect();
        drop(registry);
        let hub = Arc::clone(self);
        move || {
            sent.iter()
                .for_each(|effect| hub.confirmed(SubscribedServer::ONLY, effect))
        }
    }

    /// The server delivers a message.
    pub(in crate::engine) fn delivered(&self, channel: &str) {
        self.heard(
            SubscribedServer::ONLY,
            &Message {
                channel: channel.to_owned(),
                payload: String::new(),
            },
        );
    }
}
