//! The task of a client of a cluster: one subscribing connection for each master with channels.
//!
//! ```text
//! layout has changed ─┐
//! subscription ended ─┼─▶ rearrange ─▶ serve (one for each node, all in this task)
//! SUBSCRIBE: MOVED ───┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::registry::Effect;
use super::task::{Site, serve};
use super::{Hub, Signal, SubscribedServer};
use crate::connection::{Cluster, Fault, Timeouts};
use crate::shim::lock;
use crate::wire::Slot;

/// The connections of the task.
#[derive(Default)]
struct Links {
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    signals: BTreeMap<SubscribedServer, Arc<Signal>>,
}

/// Runs until the hub is closed.
pub(super) async fn run_in_cluster(hub: &Arc<Hub>, cluster: &Arc<Cluster>, timeouts: Timeouts) {
    let mut links = Links::default();
    let mut changes = cluster.changes();
    let (mut has_changed, mut turns) = (true, 0_u8);
    while !hub.signal.is_closed() {
        // Signals can come without end, and do not use up the task budget.
        turns = turns.wrapping_add(1);
        if turns == 0 {
            tokio::task::yield_now().await;
        }
        let has_homeless = || lock(&hub.registry).has_homeless();
        if std::mem::take(&mut has_changed) || has_homeless() {
            hub.rearrange();
        }
        if has_homeless() {
            cluster.is_in_doubt();
        }
        links.start(hub, cluster, timeouts);
        links.signals.values().for_each(|signal| signal.notify());
        tokio::select! {
            // In a fixed order, so that a simulation is repeatable. The signal is last, since it comes with
            // each channel, and must not delay the connections.
            biased;
            () = changes.next() => {
                links.end(hub, cluster);
                has_changed = true;
            }
            Some(()) = links.running.next(), if !links.running.is_empty() => {}
            () = hub.signal.notified() => {}
        }
    }
    // Each connection ends on its own, without an error in the log.
    links.signals.values().for_each(|signal| signal.close());
    while links.running.next().now_or_never().flatten().is_some() {}
}

impl Links {
    /// Connects to nodes that have channels.
    fn start(&mut self, hub: &Arc<Hub>, cluster: &Arc<Cluster>, timeouts: Timeouts) {
        let is_served = |place: SubscribedServer| self.signals.contains_key(&place);
        let places = lock(&hub.registry).places(is_served);
        for (place, channel) in places {
            let node = cluster.known(Slot::of(&channel));
            let Some(node) = node.filter(|node| SubscribedServer::new(node.number) == place) else {
                continue;
            };
            let signal = Arc::<Signal>::default();
            self.signals.insert(place, Arc::clone(&signal));
            let hub = Arc::clone(hub);
            self.running.push(Box::pin(async move {
                let site = Site {
                    hub: &hub,
                    place,
                    signal: &signal,
                };
                serve(site, &node, timeouts).await;
            }));
        }
    }

    /// Ends the connections to nodes that have no slots any more.
    fn end(&mut self, hub: &Hub, cluster: &Cluster) {
        let masters: Vec<SubscribedServer> = cluster
            .masters()
            .into_iter()
            .map(SubscribedServer::new)
            .collect();
        self.signals.retain(|place, signal| {
            let stays = masters.contains(place);
            if !stays {
                signal.close();
                hub.change(|registry| registry.gone(*place));
            }
            stays
        });
    }
}

impl Hub {
    /// Subscribes each channel at the present master of its slot.
    fn rearrange(&self) {
        let told = self.change(|registry| registry.rearrange(|channel| self.place_of(channel)));
        told.iter().for_each(|listener| listener.confirmed());
    }

    /// A server of a cluster has ended a subscription, because the slot of the channel has moved away.
    pub(super) fn left(&self, place: SubscribedServer, channel: &str) {
        self.change(|registry| registry.left(place, channel));
        self.look_for(channel);
    }

    /// A server of a cluster refused a SUBSCRIBE. Returns whether the slot is elsewhere.
    pub(super) fn is_elsewhere(
        &self,
        place: SubscribedServer,
        effect: &Effect,
        fault: &Fault,
    ) -> bool {
        let Some(cluster) = &self.cluster else {
            return false;
        };
        if !cluster.is_told(Slot::of(&effect.channel), fault) {
            return false;
        }
        self.change(|registry| registry.turned_away(place, effect));
        self.signal.notify();
        true
    }

    /// A connection could not be made, or was lost: other servers may have its channels now.
    pub(super) fn is_in_doubt(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.is_in_doubt();
        }
    }

    pub(super) fn look_for(&self, channel: &str) {
        tracing::debug!(channel, "the slot of a channel has moved");
        self.is_in_doubt();
        self.signal.notify();
    }
}
