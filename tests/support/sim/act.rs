//! A task of a host: its steps, done with the real library.

use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Error, Shutdown};

use super::clients::Clients;
use super::java::Java;
use super::log::{Clock, Log};
use super::net::Shared;
use super::plan::{Plan, Step, Terms, Thing, Turn};
use super::tickets::Tickets;
use crate::history::{LatchAct, Ms, TimedCall};
use crate::lock;

/// What all tasks of a host share.
pub(super) struct Host {
    pub(super) place: usize,
    pub(super) plan: Arc<Plan>,
    /// In the order of the servers.
    pub(super) nets: Vec<Shared>,
    pub(super) log: Log,
    pub(super) clock: Clock,
    /// The host's clients, made when they are first used.
    pub(super) slot: Mutex<Option<Clients>>,
    /// The same on a host with a Redisson client.
    pub(super) java: Mutex<Java>,
    /// Held by the task that connects it.
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// The last number of a thread there.
    pub(super) threads: AtomicU64,
    /// By how much its wall clock was set.
    pub(super) wall: Arc<AtomicI64>,
    /// Numbers of processes.
    pub(super) processes: Arc<Mutex<u32>>,
    /// All that were made, on any host.
    pub(super) tickets: Tickets,
    /// How far each task has come.
    pub(super) progress: Mutex<Vec<usize>>,
    /// How many tasks are in the middle of something.
    pub(super) active: AtomicUsize,
}

/// A task is in the middle of something.
struct Active<'a>(&'a AtomicUsize);

impl<'a> Active<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Host {
    pub(super) fn terms(&self) -> &Terms {
        &self.plan.terms
    }

    /// Uses the clients, so that they go on in this runtime with what they had begun in another.
    pub(super) async fn use_clients(self: Arc<Self>) {
        let _active = Active::new(&self.active);
        let clients = self.clients();
        // Whatever they say.
        let used = clients.all.iter().map(|client| async {
            let _ = client.rlock("anything").is_locked().await;
        });
        join_all(used).await;
    }

    /// Gives each latch its count.
    pub(super) async fn prepare(self: Arc<Self>) {
        let _active = Active::new(&self.active);
        let things = self.plan.things.clone();
        for (place, thing) in things.into_iter().enumerate() {
            let Thing::Latch(count) = thing else { continue };
            let key = thing.key(place);
            let (_, process) = self.client();
            let set = LatchAct::Set(count);
            let call = self.latch_call(process, &key, set);
            // Once: a call that failed may have run, and what it set may have been counted down since.
            let (client, _) = self.client();
            let latch = client.count_down_latch(&key);
            let set = latch.try_set_count(count).await;
            call.returned(set.is_ok().then_some(count));
        }
    }

    /// Runs one task from where it had come.
    pub(super) async fn run(self: Arc<Self>, task: usize) {
        let steps = self.plan.hosts[self.place][task].clone();
        loop {
            let next = self.progress()[task];
            let Some(step) = steps.get(next) else { return };
            // Done once: what a crash interrupts is not done again.
            self.progress()[task] += 1;
            self.step(task, *step).await;
        }
    }

    /// How far each task has come.
    pub(super) fn progress(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        lock(&self.progress)
    }

    async fn step(&self, task: usize, step: Step) {
        let (Step::Turn(Turn { after, .. })
        | Step::Adopt(Turn { after, .. })
        | Step::CountDown { after, .. }
        | Step::Await { after, .. }
        | Step::Arrive { after, .. }
        | Step::Look { after, .. }
        | Step::ShutDown { after, .. }) = step;
        sleep(after).await;
        let _active = Active::new(&self.active);
        if self.plan.is_java(self.place) {
            return self.java_step(task, step).await;
        }
        match step {
            Step::Turn(turn) => self.turn(task, turn).await,
            Step::Adopt(turn) => self.adopt(task, turn).await,
            Step::CountDown {
                thing, by_guard, ..
            } => self.count_down(thing, by_guard).await,
            Step::Await { thing, wait, .. } => self.wait(thing, wait).await,
            Step::Arrive { thing, wait, .. } => self.arrive(thing, wait).await,
            Step::Look { thing, .. } => self.look(thing).await,
            Step::ShutDown { drain, .. } => self.shut_down(task, drain).await,
        }
    }

    async fn shut_down(&self, task: usize, drain: Option<Ms>) {
        let old = lock(&self.slot).take();
        let Some(clients) = old else { return };
        let process = clients.process;
        let how = match drain {
            Some(drain) => Shutdown::Drain(Duration::from_millis(drain)),
            None => Shutdown::ReleaseAll,
        };
        let place = self.place;
        let now = self.clock.now();
        self.log.lock().history.shut_down.push((process, now));
        self.line(format!(
            "h{place}.{task} shuts process {process} down ({how:?})"
        ));
        let mut telling = Telling {
            log: &self.log,
            delivered: false,
        };
        let outcome = clients.shut_down(how).await;
        telling.delivered = outcome.is_ok();
        drop(telling);
        self.line(format!("process {process} is shut down: {outcome:?}"));
    }

    async fn look(&self, thing: usize) {
        let of = self.plan.things[thing];
        let key = of.key(thing);
        if let Thing::Latch(_) = of {
            return self.look_at_latch(&key).await;
        }
        let (client, process) = self.client();
        if of == Thing::RedLock {
            return self.look_at_redlock(process, &key).await;
        }
        let response = self.terms().response;
        let lock = client.rlock(format!("{key}:look"));
        // What it says is true for no longer than it takes to say it.
        let _ = self
            .timed(process, "is_locked", response, lock.is_locked())
            .await;
    }

    /// Waits for a call, and writes down how long it took.
    pub(super) async fn timed<T>(
        &self,
        process: u32,
        what: &str,
        bound: Ms,
        call: impl Future<Output = T>,
    ) -> T {
        self.waiting(process, what, (bound, 0), call).await
    }

    /// A call that waits, and then has still to do something.
    pub(super) async fn waiting<T>(
        &self,
        process: u32,
        what: &str,
        (wait, rest): (Ms, Ms),
        call: impl Future<Output = T>,
    ) -> T {
        let place = self.log.timed(TimedCall {
            process,
            what: what.to_owned(),
            called: self.clock.now(),
            bound: wait + rest,
            rest,
            returned: None,
        });
        let output = call.await;
        self.log.has_returned(place, process, self.clock.now());
        output
    }

    pub(super) fn line(&self, text: String) {
        self.log.line(self.clock.now(), text);
    }
}

/// An error in a few words, without what differs from run to run.
pub(super) fn told(error: &Error) -> String {
    format!("{:?}", error.kind())
}

pub(super) async fn sleep(ms: Ms) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A shut-down that ends with its runtime cannot say what it could not give back.
struct Telling<'a> {
    log: &'a Log,
    delivered: bool,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.log.lock().undelivered |= !self.delivered;
    }
}
