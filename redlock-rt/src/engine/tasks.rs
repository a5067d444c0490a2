//! Starting the client's tasks, and restarting them after their runtime has ended.

use std::sync::Arc;
use std::time::Instant;

use super::engine::ClientEngine;
use super::handle::Handle;
use super::hold::{GuardId, Hold};
use super::signal::Signal;
use super::watchdog::Introduction;
use super::{failover, fair, hub, release, signal, watchdog};

impl ClientEngine {
    /// Starts the client's tasks if they do not run: the first time, and after their runtime has
    /// ended.
    pub(crate) fn ensure_tasks(self: &Arc<Self>) {
        let timeouts = &self.config.timeouts;
        self.ensure(&self.releases.timers.signal, || {
            let clustered = self.nodes.cluster().is_some();
            let (releases, news) = (Arc::clone(&self.releases), Arc::clone(&self.news));
            release::run(releases, news, clustered, timeouts.reply())
        });
        self.ensure(&self.watchdog.signal, || {
            let (watchdog, nodes) = (Arc::clone(&self.watchdog), Arc::clone(&self.nodes));
            let (introduction, tracking) = (Introduction::of(self), self.tracking.clone());
            watchdog::run(watchdog, nodes, introduction, tracking)
        });
        self.ensure(&self.hub.signal, || {
            let (hub, nodes) = (Arc::clone(&self.hub), Arc::clone(&self.nodes));
            hub::run(hub, nodes, *timeouts)
        });
        if self.dialer.has_sentinels() {
            self.ensure(&self.failovers, || {
                let current = Arc::clone(self.nodes.current());
                let signal = Arc::clone(&self.failovers);
                failover::run(signal, self.dialer.clone(), *timeouts, current)
            });
        }
        // After the first queued waiter.
        if self.fair.is_used() {
            self.ensure(&self.fair.signal, || {
                fair::run(Arc::clone(&self.fair), Arc::clone(&self.nodes))
            });
        }
    }

    /// Starts one of the client's tasks unless it runs.
    fn ensure<F>(self: &Arc<Self>, signal: &Arc<Signal>, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Checked at each acquisition.
        if signal.is_running() || signal.is_closed() {
            return;
        }
        let engine = Arc::downgrade(self);
        // Counts as a use until the task has ended: work that the last guard leaves meanwhile may still be sent.
        let ending = move || {
            let engine = engine.upgrade().map(|engine| Handle::new(&engine));
            move || engine.iter().for_each(|engine| engine.task_ended())
        };
        signal::ensure(&self.spawner, signal, ending, task);
    }

    /// Adds a hold to the watchdog, and starts the client's tasks. Their runtime may have ended since the request.
    /// Either this finds a task ended, or the end of that task finds the hold among the
    /// [`homes`](watchdog::Watchdog::homes).
    pub(super) fn watch(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        guard: GuardId,
        sent: Instant,
        now: Instant,
    ) -> bool {
        let is_valid = self.watchdog.watch(hold, guard, sent, now);
        self.ensure_tasks();
        is_valid
    }

    /// Tells the watchdog that the terms of a hold changed, and starts the client's tasks: the guard may
    /// have been moved from a runtime that has ended.
    pub(super) fn rewatch(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.watchdog.rewatch(hold);
        self.ensure_tasks();
    }

    /// The runtime of a task has ended. Other users of the client start the task in their runtime: waiters when they
    /// are woken. The owner of a guard may never be polled, so for guards the runtime of the acquisition starts the
    /// task.
    fn task_ended(self: &Arc<Self>) {
        for home in self.watchdog.homes() {
            let engine = Handle::new(self);
            // The list includes the runtime that has just ended; it drops this work.
            home.run(move || engine.ensure_tasks());
        }
        if self.locks.waiting() > 0 || self.releases.has_offers() {
            // The timers of the offers have ended with the task.
            self.locks.withdraw_offers();
            self.locks.notify_all();
        }
        if self.fair.waiting() > 0 {
            self.fair.notify_all();
        }
        if self.latches.waiting() > 0 {
            self.latches.notify_all();
        }
    }
}
