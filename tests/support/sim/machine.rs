//! One host: a runtime of its own, with a clock of its own, that runs as far as it is let.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::act::Host;
use super::clients::Clients;
use crate::history::Ms;
use crate::lock;

/// A host's machine.
pub(super) struct Machine {
    pub(super) host: Arc<Host>,
    runtime: Option<Runtime>,
    /// Tasks that have not come to their end.
    running: Arc<AtomicUsize>,
    /// For how long it has stood still.
    pub(super) still: Ms,
    /// Whether latches were given their counts, if that is this host's work.
    prepared: bool,
    /// By how many in a hundred thousand its clock is fast.
    skew: i64,
    /// What the clock owes, in hundred-thousandths of a millisecond.
    owed: i64,
    /// What its clock showed when its last runtime ended, if its clients go on in the next one.
    showed: Option<Instant>,
}

/// How far the clock of a host is ahead of the real one, from which a runtime's clock starts, so that
/// the clock of its next runtime can go on where this one's ended.
const AHEAD: Duration = Duration::from_secs(3600);

impl Machine {
    pub(super) fn new(host: Arc<Host>, skew: i64) -> Self {
        let mut machine = Self {
            host,
            runtime: None,
            running: Arc::default(),
            still: 0,
            prepared: false,
            skew,
            owed: 0,
            showed: None,
        };
        machine.start();
        machine
    }

    /// Starts the host, or its next runtime: tasks go on where they were.
    pub(super) fn start(&mut self) {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("a runtime without I/O");
        runtime.block_on(async {
            let behind = |showed: Instant| showed.saturating_duration_since(Instant::now());
            let ahead = self.showed.map_or(AHEAD, behind);
            // Whole milliseconds, by which timers count.
            let ahead = Duration::from_millis(ahead.as_nanos().div_ceil(1_000_000) as u64);
            tokio::time::advance(ahead).await;
        });
        self.still = 0;
        self.running = Arc::default();
        let host = &self.host;
        if host.place == 0 && !std::mem::replace(&mut self.prepared, true) {
            runtime.spawn(Arc::clone(host).prepare());
        }
        if host.has_client() {
            runtime.spawn(Arc::clone(host).use_clients());
        }
        for task in 0..host.plan.hosts[host.place].len() {
            self.running.fetch_add(1, Ordering::Relaxed);
            let (host, running) = (Arc::clone(host), Arc::clone(&self.running));
            runtime.spawn(async move {
                host.run(task).await;
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        self.runtime = Some(runtime);
    }

    /// Ends the runtime, and with it all tasks.
    pub(super) fn stop(&mut self) {
        // With a clock that goes on, which of two timers of one millisecond is first depends on how long the run
        // has taken. Where nobody knows the old clock, each run begins with the same one.
        let goes_on = lock(&self.host.slot).is_some();
        self.showed = self.inside(Instant::now).filter(|_| goes_on);
        // Redisson's client does not go on in another runtime.
        self.inside(|| drop(self.host.java_slot().take()));
        self.runtime = None;
    }

    pub(super) fn is_on(&self) -> bool {
        self.runtime.is_some()
    }

    /// Whether all tasks have come to their end.
    pub(super) fn is_done(&self) -> bool {
        self.is_on() && self.running.load(Ordering::Relaxed) == 0
    }

    /// Lets the host run for so long of the simulation's time.
    pub(super) fn run(&mut self, now: Ms, window: Ms) {
        let Some(runtime) = &self.runtime else { return };
        self.owed += self.skew * i64::try_from(window).unwrap_or(0);
        let extra = self.owed / 100_000;
        self.owed -= extra * 100_000;
        let span = i64::try_from(window).unwrap_or(0) + extra;
        let span = Duration::from_millis(u64::try_from(span).unwrap_or(0));
        let still = std::mem::take(&mut self.still);
        let clock = &self.host.clock;
        runtime.block_on(async {
            if still > 0 {
                // All that was due meanwhile is due at once.
                clock.begin(now, 0);
                tokio::time::advance(Duration::from_millis(still)).await;
            }
            clock.begin(now, window);
            tokio::time::sleep_until(Instant::now() + span).await;
        });
    }

    /// Runs something inside the runtime.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let _entered = self.runtime.as_ref()?.enter();
        Some(work())
    }

    /// Lets the clients go, inside the runtime.
    pub(super) fn forget_clients(&self) {
        self.inside(|| drop(lock(&self.host.slot).take()));
    }

    /// The process of its clients, if it has any.
    pub(super) fn process(&self) -> Option<u32> {
        let java = self.host.java_slot().as_ref().map(|(_, process)| *process);
        let ours = lock(&self.host.slot)
            .as_ref()
            .map(|clients| clients.process);
        ours.or(java)
    }

    /// Its clients, if it has any.
    pub(super) fn clients(&self) -> Option<Clients> {
        lock(&self.host.slot).clone()
    }
}
