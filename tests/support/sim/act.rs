//! A task of a host: its steps, done with the real library.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redlock_rt::{Client, Error, FencedLock, Kind, Lock, LockOptions, PermitOptions, Shutdown};

use super::guard::{Hold, Locked, Maybe};
use super::log::{Clock, Entry, Log};
use super::net::Shared;
use super::plan::{Cut, Ending, Meanwhile, Plan, Step, Terms, Thing, Turn};
use super::stream::SimStream;
use crate::history::{Acquisition, LatchAct, LatchCall, Mode, Ms, Outcome};

/// What all tasks of a host share.
pub(super) struct Host {
    pub(super) place: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) net: Shared,
    pub(super) log: Log,
    pub(super) clock: Clock,
    /// The host's client, made when it is first used, and the number of its process.
    pub(super) client: Mutex<Option<(Client, u32)>>,
    /// Numbers of processes.
    pub(super) processes: Arc<Mutex<u32>>,
    /// How far each task has come.
    pub(super) progress: Mutex<Vec<usize>>,
}

impl Host {
    fn terms(&self) -> &Terms {
        &self.plan.terms
    }

    /// The host's client.
    pub(super) fn client(&self) -> (Client, u32) {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((client, process)) = &*slot {
            return (client.clone(), *process);
        }
        let process = {
            let mut last = self
                .processes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *last += 1;
            *last
        };
        let ms = Duration::from_millis;
        let terms = self.terms();
        let (net, place) = (self.net.clone(), self.place);
        let made = Client::builder()
            .connector(move || SimStream::connect(net.clone(), place, process))
            .server_name("sim")
            .fixed_id(u128::from(self.plan.seed) << 64 | u128::from(process) << 16 | 0x5151)
            .lease(ms(terms.lease))
            .response_timeout(ms(terms.response))
            .connect_timeout(ms(terms.connect))
            .poll_interval(ms(terms.poll))
            .linger(ms(terms.linger))
            .waiter_timeout(ms(terms.waiter))
            .build();
        let client = made.expect("the plan's terms are valid");
        let mut written = self.log.lock();
        written
            .history
            .clients
            .push((client.uuid().to_owned(), process));
        written.hosts.push((process, place));
        let line = format!("h{place} is process {process}, {}", client.uuid());
        written.lines.push((self.clock.now(), line));
        *slot = Some((client.clone(), process));
        (client, process)
    }

    /// Whether there is a client, of an earlier runtime.
    pub(super) fn has_client(&self) -> bool {
        let slot = self.client.lock();
        slot.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Uses the client, so that it goes on in this runtime with what it had begun in another.
    pub(super) async fn use_client(self: Arc<Self>) {
        let (client, _) = self.client();
        // Whatever it says.
        let _ = client.rlock("anything").is_locked().await;
    }

    /// Gives each latch its count, however long it takes.
    pub(super) async fn prepare(self: Arc<Self>) {
        let things = self.plan.things.clone();
        for (place, thing) in things.into_iter().enumerate() {
            let Thing::Latch(count) = thing else { continue };
            let key = thing.key(place);
            let (_, process) = self.client();
            let set = LatchAct::Set(count);
            let call = self.log.latch(self.latch_call(process, &key, set));
            loop {
                // Another one where that was shut down meanwhile.
                let (client, _) = self.client();
                if client
                    .count_down_latch(&key)
                    .try_set_count(count)
                    .await
                    .is_ok()
                {
                    break;
                }
                sleep(20).await;
            }
            self.latch_returned(call, count);
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
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn step(&self, task: usize, step: Step) {
        match step {
            Step::Turn(turn) => {
                sleep(turn.after).await;
                self.turn(task, turn).await;
            }
            Step::CountDown {
                thing,
                after,
                by_guard,
            } => {
                sleep(after).await;
                self.count_down(thing, by_guard).await;
            }
            Step::Await { thing, after, wait } => {
                sleep(after).await;
                self.wait(thing, wait).await;
            }
            Step::Look { thing, after } => {
                sleep(after).await;
                self.look(thing).await;
            }
            Step::ShutDown { after, drain } => {
                sleep(after).await;
                let old = self
                    .client
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                if let Some((client, process)) = old {
                    let how = match drain {
                        Some(drain) => Shutdown::Drain(Duration::from_millis(drain)),
                        None => Shutdown::ReleaseAll,
                    };
                    self.line(format!(
                        "h{}.{task} shuts process {process} down ({how:?})",
                        self.place
                    ));
                    let outcome = client.shutdown(how).await;
                    self.line(format!("process {process} is shut down: {outcome:?}"));
                }
            }
        }
    }

    fn line(&self, text: String) {
        self.log.line(self.clock.now(), text);
    }

    async fn turn(&self, task: usize, turn: Turn) {
        let thing = self.plan.things[turn.thing];
        let key = thing.key(turn.thing);
        let (client, process) = self.client();
        let mode = match thing {
            Thing::ReadWrite if !turn.strong => Mode::Shared,
            Thing::Semaphore(limit) | Thing::Permits(limit) => Mode::Permits {
                taken: taken(turn, limit),
                limit,
            },
            _ => Mode::Exclusive,
        };
        let entry = self.log.call(
            &self.clock,
            format!("h{}.{task}", self.place),
            Acquisition {
                process,
                key: key.clone(),
                mode,
                announced: thing != Thing::Spin,
                called: self.clock.now(),
                bound: turn.wait.map(|wait| {
                    if wait == 0 {
                        self.terms().response
                    } else {
                        wait
                    }
                }),
                returned: None,
                grant: None,
            },
        );
        match thing {
            Thing::Reentrant => self.lock(entry, turn, client.rlock(&key)).await,
            Thing::Fair => self.lock(entry, turn, client.fair_lock(&key)).await,
            Thing::Spin => self.lock(entry, turn, client.spin_lock(&key)).await,
            Thing::ReadWrite => {
                let lock = client.read_write_lock(&key);
                match turn.strong {
                    true => self.lock(entry, turn, lock.write_lock()).await,
                    false => self.lock(entry, turn, lock.read_lock()).await,
                }
            }
            Thing::Fenced => self.fenced(entry, turn, client.fenced_lock(&key)).await,
            Thing::Multi => {
                let lock = client.multi_lock([format!("{key}:a"), format!("{key}:b")]);
                self.hold(entry, turn, lock.lock_with(options(turn)), |_| None)
                    .await;
            }
            Thing::Semaphore(limit) => {
                let semaphore = client.semaphore(&key).limit(limit);
                let options = permit_options(turn, limit);
                self.hold(entry, turn, semaphore.acquire_with(options), |_| None)
                    .await;
            }
            Thing::Permits(limit) => {
                let semaphore = client.permit_expirable_semaphore(&key).limit(limit);
                let mut options = permit_options(turn, limit).renew(turn.renew);
                if let Some(lease) = turn.lease {
                    options = options.lease(Duration::from_millis(lease));
                }
                self.hold(entry, turn, semaphore.acquire_with(options), |_| None)
                    .await;
            }
            Thing::Latch(_) => entry.refused(Outcome::Failed("a latch is no lock".to_owned())),
        }
    }

    async fn lock<K: Kind + Send + Sync>(&self, entry: Entry, turn: Turn, lock: Lock<K>) {
        let acquire = async {
            let guard = lock.lock_with(options(turn)).await?;
            Ok(Locked(guard, lock.clone()))
        };
        self.hold(entry, turn, acquire, |_| None).await;
    }

    async fn fenced(&self, entry: Entry, turn: Turn, lock: FencedLock) {
        let acquire = async {
            let guard = lock.lock_with(options(turn)).await?;
            Ok(Locked(guard, lock.clone()))
        };
        self.hold(entry, turn, acquire, |held| Some(held.0.token()))
            .await;
    }

    async fn hold<H: Hold>(
        &self,
        entry: Entry,
        turn: Turn,
        acquire: impl Future<Output = Result<H, Error>> + Send,
        token: impl Fn(&H) -> Option<u64> + Send,
    ) {
        let held = match cut(turn.cut, acquire).await {
            Some(Ok(held)) => held,
            Some(Err(error)) if error.is_contended() => return entry.refused(Outcome::Refused),
            Some(Err(error)) if error.is_timed_out() => return entry.refused(Outcome::TimedOut),
            Some(Err(error)) => return entry.refused(Outcome::Failed(told(&error))),
            None => return entry.refused(Outcome::Cancelled),
        };
        let thing = self.plan.things[turn.thing];
        let lease = match thing {
            Thing::Semaphore(_) => None,
            _ => Some(turn.lease.unwrap_or_else(|| self.terms().lease)),
        };
        entry.granted(&held.owner(), token(&held), lease, held.is_valid());
        let asked = match turn.meanwhile {
            Meanwhile::Nothing => None,
            Meanwhile::Extend(lease) => {
                entry.lengthened(lease);
                self.stay(&entry, &held, held.extend(Duration::from_millis(lease)))
                    .await
            }
            Meanwhile::Reenter => self.stay(&entry, &held, held.again()).await,
            Meanwhile::Nest => self.stay(&entry, &held, held.nest()).await,
        };
        if let Some(outcome) = asked {
            let outcome = outcome.map_err(|error| told(&error));
            entry.note(&format!("did {:?}: {outcome:?}", turn.meanwhile));
        }
        self.sit(&entry, &held, turn.hold).await;
        // The last look, right before the end.
        look(&entry, &held);
        match turn.end {
            Ending::Drop => {
                entry.ends("drops");
                drop(held);
                entry.over("has dropped");
            }
            Ending::Unlock => {
                entry.ends("releases");
                let outcome = held.end().await.map_err(|error| told(&error));
                entry.over(&format!("has released ({outcome:?})"));
            }
            Ending::Cut(polls) => {
                entry.ends("releases, for a moment,");
                let outcome = cut(Some(Cut::Polls(polls)), held.end()).await;
                let outcome = outcome.map(|outcome| outcome.map_err(|error| told(&error)));
                entry.over(&format!("has released ({outcome:?})"));
            }
        }
    }

    /// Does something under a lock, looking before and after it whether it is held.
    async fn stay<H: Hold>(
        &self,
        entry: &Entry,
        held: &H,
        asked: impl Future<Output = Maybe>,
    ) -> Maybe {
        let outcome = asked.await;
        look(entry, held);
        outcome
    }

    /// Holds a lock for a while, looking now and then.
    async fn sit<H: Hold>(&self, entry: &Entry, held: &H, hold: Ms) {
        let mut left = hold;
        while left > 0 {
            let nap = left.min(40);
            sleep(nap).await;
            left -= nap;
            if !look(entry, held) {
                entry.note("has lost");
                return;
            }
        }
    }

    fn latch_call(&self, process: u32, key: &str, act: LatchAct) -> LatchCall {
        LatchCall {
            process,
            key: key.to_owned(),
            called: self.clock.now(),
            act,
            returned: None,
        }
    }

    fn latch_returned(&self, call: usize, number: u64) {
        let now = self.clock.now();
        let mut written = self.log.lock();
        let call = &mut written.history.latches[call];
        call.returned = Some((now, number));
        let line = format!("{:?} of {} returned {number}", call.act, call.key);
        written.lines.push((now, line));
    }

    async fn count_down(&self, thing: usize, by_guard: bool) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.client();
        let latch = client.count_down_latch(&key);
        self.line(format!("h{} counts {key} down", self.place));
        let call = self
            .log
            .latch(self.latch_call(process, &key, LatchAct::CountDown));
        if by_guard {
            drop(latch.count_down_guard());
        } else if let Ok(left) = latch.count_down().await {
            self.latch_returned(call, left);
        }
    }

    async fn wait(&self, thing: usize, wait: Option<Ms>) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.client();
        let latch = client.count_down_latch(&key);
        let call = self
            .log
            .latch(self.latch_call(process, &key, LatchAct::Wait));
        let opened = latch.wait_with(wait.map(Duration::from_millis)).await;
        if opened.is_ok() {
            self.latch_returned(call, 0);
        }
    }

    async fn look(&self, thing: usize) {
        let of = self.plan.things[thing];
        let key = of.key(thing);
        let (client, process) = self.client();
        if let Thing::Latch(_) = of {
            let call = self
                .log
                .latch(self.latch_call(process, &key, LatchAct::Look));
            if let Ok(left) = client.count_down_latch(&key).count().await {
                self.latch_returned(call, left);
            }
        } else {
            // What it says is true for no longer than it takes to say it.
            let _ = client.rlock(format!("{key}:look")).is_locked().await;
        }
    }
}

/// Looks whether a lock is held.
fn look<H: Hold>(entry: &Entry, held: &H) -> bool {
    let valid = held.is_valid();
    if valid {
        entry.believes();
    }
    valid
}

/// An error in a few words, without what differs from run to run.
fn told(error: &Error) -> String {
    format!("{:?}", error.kind())
}

async fn sleep(ms: Ms) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// How many permits a turn takes.
fn taken(turn: Turn, limit: u32) -> u32 {
    if turn.strong { limit.min(2) } else { 1 }
}

fn options(turn: Turn) -> LockOptions {
    let mut options = LockOptions::new()
        .renew(turn.renew)
        .wait(turn.wait.map(Duration::from_millis));
    if let Some(lease) = turn.lease {
        options = options.lease(Duration::from_millis(lease));
    }
    options
}

fn permit_options(turn: Turn, limit: u32) -> PermitOptions {
    let options = PermitOptions::new().permits(taken(turn, limit));
    options.wait(turn.wait.map(Duration::from_millis))
}

/// Runs a call until it returns or is to be dropped.
async fn cut<T>(cut: Option<Cut>, call: impl Future<Output = T>) -> Option<T> {
    match cut {
        None => Some(call.await),
        Some(Cut::After(ms)) => tokio::time::timeout(Duration::from_millis(ms), call)
            .await
            .ok(),
        Some(Cut::Polls(polls)) => {
            let mut call = pin!(call);
            let mut left = polls;
            poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                call.as_mut().poll(cx).map(Some)
            })
            .await
        }
    }
}
