//! Starting the client's tasks, again where their runtime is gone.

use std::sync::Arc;

use super::engine::{Config, Engine};
use super::signal::Signal;
use super::{fair, hub, release, signal, watchdog};

impl Engine {
    /// Starts the client's tasks where they do not run: at first, and after the runtime that they
    /// ran on is gone.
    pub(crate) fn ensure_tasks(self: &Arc<Self>) {
        let Config {
            dialer,
            spawner,
            timeouts,
            ..
        } = &self.config;
        let after = || {
            let engine = Arc::downgrade(self);
            move || {
                if let Some(engine) = engine.upgrade() {
                    engine.task_ended();
                }
            }
        };
        signal::ensure(
            spawner,
            &self.releases,
            || {},
            after(),
            || release::run(Arc::clone(&self.releases)),
        );
        signal::ensure(
            spawner,
            &self.watchdog,
            || {},
            after(),
            || watchdog::run(Arc::clone(&self.watchdog), Arc::clone(&self.renewals)),
        );
        let hub = Arc::clone(&self.hub);
        signal::ensure(
            spawner,
            &self.hub,
            move || hub.disconnected(),
            after(),
            || {
                let (hub, current) = (Arc::clone(&self.hub), Arc::clone(&self.current));
                hub::run(hub, dialer.clone(), *timeouts, current)
            },
        );
        self.ensure_beats();
    }

    /// Starts the task that beats for queued waiters, once there were some.
    fn ensure_beats(self: &Arc<Self>) {
        if !self.rooms.is_used() {
            return;
        }
        let engine = Arc::downgrade(self);
        signal::ensure(
            &self.config.spawner,
            &self.rooms,
            || {},
            move || {
                if let Some(engine) = engine.upgrade() {
                    engine.task_ended();
                }
            },
            || fair::run(Arc::clone(&self.rooms), Arc::clone(&self.renewals)),
        );
    }

    /// The runtime of a task is gone. Who still uses the client in another one starts it there:
    /// waiters when they are woken, and for a guard, whose owner need not be polled, the runtime
    /// that acquired it.
    fn task_ended(self: &Arc<Self>) {
        for home in self.watchdog.homes() {
            let engine = Arc::clone(self);
            // Among them is the one that has just ended; it drops this.
            home.run(move || engine.ensure_tasks());
        }
        // A task that is spawned where the runtime is ending ends at once, and so comes here: with
        // each guard that the runtime drops. So nobody is looked for where nobody waits.
        if self.locks.waiting() > 0 {
            self.locks.notify_all();
        }
        if self.latches.waiting() > 0 {
            self.latches.notify_all();
        }
    }

    /// Starts a task beside the client's own, where those run, unless it runs.
    /// `after`: what is to be done once its runtime is gone.
    pub(crate) fn ensure_beside<T, F>(
        &self,
        owner: &Arc<T>,
        after: impl Fn() + Send + 'static,
        task: impl FnOnce() -> F,
    ) where
        T: AsRef<Signal> + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        signal::ensure(&self.config.spawner, owner, || {}, after, task);
    }
}
