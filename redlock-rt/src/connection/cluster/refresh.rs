//! The task that asks for the layout: one at a time, and not too often.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::ask::ask_for_layout;
use super::layout::Layout;
use super::{Cluster, State};
use crate::clock;
use crate::connection::endpoint::Address;
use crate::connection::fault::Fault;
use crate::connection::nodes::Node;
use crate::pause::Pause;

/// After this time without asking, the pauses begin anew.
const CALM: Duration = Duration::from_secs(5);
/// The number of tasks that may end without a try, with their runtimes, before a caller gets an
/// error.
const MOST_ORPHANS: usize = 3;

#[derive(Default)]
pub(super) struct Refreshing {
    /// The task that asks.
    task: Option<Task>,
    /// The number of tasks so far; identifies them.
    tasks: u64,
    /// The number of ended tries. A caller that waited for a whole try takes its outcome.
    tries: u64,
    last_fault: Option<Fault>,
    /// When the last try ended.
    ended: Option<Instant>,
    /// When the last try succeeded.
    succeeded: Option<Instant>,
    pause: Option<Pause>,
}

struct Task {
    number: u64,
    /// `None` until it is spawned.
    handle: Option<AbortHandle>,
}

impl Refreshing {
    pub(super) fn is_older(&self, than: Duration) -> bool {
        let now = clock::now();
        let old = |since: Instant| now.saturating_duration_since(since) >= than;
        self.succeeded.is_some_and(old)
    }

    pub(super) fn end(&mut self) {
        if let Some(handle) = self.task.take().and_then(|task| task.handle) {
            handle.abort();
        }
    }

    fn is_run_by(&self, number: u64) -> bool {
        let task = self.task.as_ref();
        task.is_some_and(|task| task.number == number)
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
    /// Asks for the layout in the background, unless that is under way.
    pub(super) fn refresh(self: &Arc<Self>) -> u64 {
        let mut state = self.state();
        if let Some(task) = &state.refreshing.task {
            return task.number;
        }
        state.refreshing.tasks += 1;
        let number = state.refreshing.tasks;
        if state.closed {
            return number;
        }
        state.refreshing.task = Some(Task {
            number,
            handle: None,
        });
        let not_before = state.refreshing.not_before(clock::now());
        drop(state);
        let turn = Turn {
            cluster: Arc::clone(self),
            number,
        };
        // Without a runtime the future is dropped, which ends the turn.
        let spawned = self
            .spawner
            .spawn(async move { turn.run(not_before).await });
        let mut state = self.state();
        match (&mut state.refreshing.task, spawned) {
            (Some(task), Some(spawned)) if task.number == number => {
                task.handle = Some(spawned.abort_handle());
            }
            // Closed meanwhile.
            (_, Some(spawned)) => spawned.abort(),
            (_, None) => {}
        }
        number
    }

    /// Looks for a node; asks for the layout if there is none.
    pub(super) async fn find(
        self: &Arc<Self>,
        look: impl Fn(&State) -> Option<Arc<Node>>,
        none: impl FnOnce() -> Fault,
    ) -> Result<Arc<Node>, Fault> {
        if let Some(node) = look(&self.state()) {
            return Ok(node);
        }
        let before = self.state().refreshing.tries;
        for _ in 0..MOST_ORPHANS {
            let mut asked = pin!(self.asked.notified());
            // Registered before the state is read, so that no end is missed.
            asked.as_mut().enable();
            {
                let state = self.state();
                if state.closed {
                    return Err(Fault::closed());
                }
                if let Some(node) = look(&state) {
                    return Ok(node);
                }
                if state.refreshing.tries > before {
                    let fault = state.refreshing.last_fault.clone();
                    let fault = fault.unwrap_or_else(none);
                    return Err(fault.at(self.current.place()));
                }
            }
            let number = self.refresh();
            // The runtime of the task may be stuck while this one runs.
            let longest = self.timeouts.connect + Pause::SUBSCRIBING.longest() * 2;
            if clock::timeout(longest, asked).await.is_err() {
                let mut state = self.state();
                if state.refreshing.is_run_by(number) {
                    state.refreshing.end();
                }
            }
        }
        let why = "the runtime ended while connecting";
        let fault = Fault::not_connected(std::io::ErrorKind::Other, why);
        Err(fault.at(self.current.place()))
    }

    /// Whom to ask: nodes that are known, in any order, then the seeds.
    fn to_ask(&self) -> Vec<Address> {
        let state = self.state();
        let members = state.nodes.iter().flatten();
        let mut known: Vec<Address> = members.map(|member| member.at.clone()).collect();
        known.extend(state.replicas.iter().cloned());
        drop(state);
        fastrand::shuffle(&mut known);
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        for seed in seeds {
            if !known.contains(&seed) {
                known.push(seed);
            }
        }
        known
    }
}

/// One try. It ends when it is dropped, also by an ending runtime.
struct Turn {
    cluster: Arc<Cluster>,
    number: u64,
}

impl Turn {
    async fn run(self, not_before: Instant) {
        let cluster = &self.cluster;
        clock::sleep_until(not_before).await;
        let within = cluster.timeouts.connect;
        let (nodes, reached) = (cluster.to_ask(), cluster.current.was_reached());
        let told = ask_for_layout(&cluster.dialer, &nodes, reached, within);
        let told = clock::timeout(within, told).await;
        let told = told.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()));
        if !self.take_in(told) {
            return;
        }
        let returned = cluster.take_returned();
        drop(self);
        let returned = returned.iter().map(|node| node.kill_stale_clients());
        futures::future::join_all(returned).await;
    }

    /// Returns whether this try counts.
    fn take_in(&self, told: Result<Layout, Fault>) -> bool {
        let cluster = &self.cluster;
        let mut state = cluster.state();
        if !state.refreshing.is_run_by(self.number) {
            return false;
        }
        let now = clock::now();
        state.refreshing.ended = Some(now);
        match told {
            Ok(layout) => {
                state.refreshing.succeeded = Some(now);
                state.refreshing.last_fault = None;
                drop(state);
                cluster.current.is_reached();
                cluster.apply(layout);
                cluster.current.back();
            }
            Err(fault) => {
                state.refreshing.last_fault = Some(fault.clone());
                drop(state);
                cluster.current.failed(&fault.at(cluster.current.place()));
            }
        }
        // Counted once the layout is in place.
        cluster.state().refreshing.tries += 1;
        true
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.cluster.state();
        if state.refreshing.is_run_by(self.number) {
            state.refreshing.task = None;
        }
        drop(state);
        self.cluster.asked.notify_waiters();
    }
}
