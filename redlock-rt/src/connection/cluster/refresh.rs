//! The task that asks for the layout: one at a time, and not too often.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::ask::{TOGETHER, ask_for_layout};
use super::layout::Layout;
use super::{Cluster, ClusterState, KEPT};
use crate::clock;
use crate::connection::address::Address;
use crate::connection::call::Node;
use crate::connection::fault::Fault;
use crate::connection::one_task::{self, OneTask, Tried, Turn};
use crate::connection::spawner::Spawner;
use crate::pause::Pause;
use crate::shim::lock_std;

/// After this time without asking, the pauses start again.
const CALM: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Refreshing {
    pub(super) task: OneTask,
    /// When the last try ended.
    ended: Option<Instant>,
    /// When the last try succeeded.
    succeeded: Option<Instant>,
    pause: Option<Pause>,
}

impl Refreshing {
    pub(super) fn is_older(&self, than: Duration) -> bool {
        let now = clock::now();
        let old = |since: Instant| now.saturating_duration_since(since) >= than;
        self.succeeded.is_some_and(old)
    }

    /// When the next try may begin.
    fn not_before(&mut self, now: Instant) -> Instant {
        let Some(ended) = self.ended else { return now };
        if now.saturating_duration_since(ended) >= CALM {
            self.pause = None;
        }
        let pause = self.pause.get_or_insert(Pause::SUBSCRIBING).take();
        clock::after(ended, pause).max(now)
    }
}

impl Cluster {
    /// Looks for a node; asks for the layout if there is none.
    pub(super) async fn find(
        self: &Arc<Self>,
        look: impl Fn(&ClusterState) -> Option<Arc<Node>>,
        none: impl Fn() -> Fault,
    ) -> Result<Arc<Node>, Fault> {
        if let Some(node) = look(&self.state()) {
            return Ok(node);
        }
        one_task::wait(self, |state| look(state), || Some(none())).await
    }

    fn take_in(self: &Arc<Self>, told: Result<Layout, Fault>) {
        let now = clock::now();
        let current = &self.common.current;
        let fault = match told {
            Ok(layout) => {
                current.is_reached();
                current.journal.connected(None);
                current.journal.answered(!layout.serves);
                self.apply(layout);
                None
            }
            Err(fault) => {
                let fault = fault.at(&current.place);
                current.journal.failed(None, &fault);
                Some(fault)
            }
        };
        let refreshing = &mut self.state().refreshing;
        refreshing.ended = Some(now);
        if fault.is_none() {
            refreshing.succeeded = Some(now);
        }
        // Counted once the layout is in place.
        refreshing.task.tried(fault);
    }

    /// The nodes to ask, in groups: some known nodes, in any order, then the seeds, then the others. A node that has
    /// left the cluster may be another's by now: it gets no password, and a seed is enough otherwise.
    pub(super) fn to_ask(&self) -> Vec<Vec<Address>> {
        let now = clock::now();
        let state = self.state();
        let members = state.nodes.iter().map(|(_, member)| member);
        let members = members.filter(|member| !member.is_idle_for(KEPT, now));
        let mut known: Vec<Address> = members.map(|member| member.at.clone()).collect();
        known.extend(state.replicas.iter().cloned());
        drop(state);
        fastrand::shuffle(&mut known);
        let mut seeds = self.seeds.clone();
        seeds.retain(|seed| !known.contains(seed));
        let mut groups: Vec<_> = known.chunks(TOGETHER).map(<[_]>::to_vec).collect();
        if !seeds.is_empty() {
            // Not at the end: the known nodes may all be gone at once, without a reply.
            groups.insert(groups.len().min(1), seeds);
        }
        groups
    }
}

impl Tried for Cluster {
    type State = ClusterState;

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        lock_std(&self.state)
    }

    fn task(state: &mut ClusterState) -> &mut OneTask {
        &mut state.refreshing.task
    }

    fn ended(&self) -> &Notify {
        &self.asked
    }

    fn spawner(&self) -> &Spawner {
        &self.common.spawner
    }

    fn place(&self) -> &Arc<str> {
        &self.common.current.place
    }

    fn longest(&self) -> Duration {
        self.common.timeouts.connect + Pause::SUBSCRIBING.longest() * 2
    }

    async fn run(turn: Turn<Self>) {
        let cluster = &turn.of;
        let not_before = cluster.state().refreshing.not_before(clock::now());
        clock::sleep_until(not_before).await;
        let common = &cluster.common;
        let within = common.timeouts.connect;
        let (nodes, reached) = (cluster.to_ask(), common.current.was_reached());
        let told = ask_for_layout(&common.dialer, &nodes, reached, within);
        let told = clock::timeout(within, told).await;
        let told = told.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()));
        if !turn.counts(&mut cluster.state()) {
            return;
        }
        cluster.take_in(told);
        let returned = cluster.take_returned();
        drop(turn);
        let returned = returned.iter().map(|node| node.kill_stale_clients());
        futures::future::join_all(returned).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_layout_is_asked_for_again_and_a_new_one_is_not() {
        let mut refreshing = Refreshing::default();
        assert!(!refreshing.is_older(Duration::ZERO), "there is none");
        refreshing.succeeded = Some(clock::now());
        assert!(refreshing.is_older(Duration::ZERO));
        assert!(!refreshing.is_older(Duration::from_secs(60)));
    }
}
