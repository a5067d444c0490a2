//! A host with a Redisson client: the stand-in, with Redisson's own scripts, over the simulated
//! network. It does the same steps as the others, as far as Redisson has them.
//!
//! Each turn is a thread of its own, whose number is not used again. What Redisson's caller may
//! rely on is the lease, counted from before the request that took the lock; so that is what a holder
//! here believes.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::RedisResult;
use tokio::time::Instant;

use super::act::{Host, sleep};
use super::log::Entry;
use super::plan::{Ending, Meanwhile, Plan, Step, Terms, Thing, Turn};
use super::server::EPOCH;
use super::stream::SimStream;
use super::turn::{LOOK, STAY, taken};
use crate::history::{Acquisition, Foreign, LatchAct, Mode, Ms, Outcome};
use crate::{
    Random, RedissonClient, RedissonFairLock, RedissonFencedLock, RedissonModeLock,
    RedissonPermits, RedissonRLock, RedissonSemaphore, RedissonSpinLock, RedissonStream,
    Surroundings, lock,
};

/// The shortest `lockWatchdogTimeout`.
const WATCHDOG: Ms = 3000;
/// `fairLockWaitTimeout`.
pub(super) const FAIR_WAIT: Ms = 5000;
/// How long after a failure a client connects again.
const AGAIN: Ms = 300;
/// How much longer than it was to take a call on a latch may take.
const PATIENCE: Ms = 25_000;

/// A host's Redisson client, and the number of its process.
pub(super) type Java = Option<(RedissonClient, u32)>;

/// Something that Redisson's clients take.
enum Object {
    Lock(RedissonRLock),
    Fair(RedissonFairLock),
    Fenced(RedissonFencedLock),
    Spin(RedissonSpinLock),
    Mode(RedissonModeLock),
    Semaphore(RedissonSemaphore, u32),
    Permits(RedissonPermits, Mutex<String>),
}

/// Who takes it, for how long it waits, and for how long it is to have it; `None`: the watchdog's
/// time, and longer.
#[derive(Clone, Copy)]
struct Ask {
    thread: u64,
    wait: Option<Ms>,
    lease: Option<Ms>,
}

impl Plan {
    /// Whether this host has a Redisson client.
    pub(super) fn is_java(&self, host: usize) -> bool {
        self.java.contains(&host)
    }
}

impl Terms {
    /// `lockWatchdogTimeout`: not below the leases of others, since a renewal of a reader sets the
    /// lease of all to it.
    pub(super) fn watchdog(&self) -> Ms {
        self.lease.max(WATCHDOG)
    }
}

impl Host {
    pub(super) fn java_slot(&self) -> MutexGuard<'_, Java> {
        lock(&self.java)
    }

    /// The host's client, connected.
    async fn redisson(&self) -> (RedissonClient, u32) {
        let _one = self.connecting.lock().await;
        if let Some((client, process)) = &*self.java_slot() {
            return (client.clone(), *process);
        }
        let process = self.next_process();
        let surroundings = self.surroundings(process);
        let watchdog = ms(self.terms().watchdog());
        let client = loop {
            match RedissonClient::connect_from(surroundings.clone(), watchdog).await {
                Ok(client) => break client,
                Err(_) => sleep(AGAIN).await,
            }
        };
        let mut written = self.log.lock();
        written.history.foreign.push(Foreign {
            client: client.uuid().to_owned(),
            process,
            wait: FAIR_WAIT,
        });
        written.hosts.push((process, self.place));
        let line = format!(
            "h{} is process {process}, Redisson's {}",
            self.place,
            client.uuid()
        );
        written.lines.push((self.clock.now(), line));
        *self.java_slot() = Some((client.clone(), process));
        (client, process)
    }

    fn surroundings(&self, process: u32) -> Surroundings {
        let (net, place) = (self.nets[0].clone(), self.place);
        let dial = move || -> BoxFuture<'static, _> {
            let net = net.clone();
            async move {
                let stream = SimStream::connect(net, place, process).await?;
                Ok(Box::new(stream) as Box<dyn RedissonStream>)
            }
            .boxed()
        };
        let (clock, set) = (self.clock.clone(), std::sync::Arc::clone(&self.wall));
        let now = move || {
            let time = EPOCH + clock.now();
            ms(time.saturating_add_signed(set.load(Ordering::Relaxed)))
        };
        let random = Mutex::new(Random::new(self.plan.seed ^ u64::from(process) << 40));
        let random = move || lock(&random).bits();
        Surroundings::new(dial, now, random)
    }

    pub(super) async fn java_step(&self, task: usize, step: Step) {
        match step {
            Step::Turn(turn) => self.java_turn(task, turn).await,
            Step::CountDown { thing, .. } => self.java_count_down(thing).await,
            Step::Await { thing, wait, .. } => self.java_wait(thing, wait).await,
            Step::Arrive { .. } => {}
            Step::Look { thing, .. } => self.java_look(thing).await,
            // Redisson has no tickets.
            Step::Adopt(_) => {}
            Step::ShutDown { .. } => {
                self.line(format!("h{}.{task} ends its client", self.place));
                drop(self.java_slot().take());
            }
        }
    }

    async fn java_turn(&self, task: usize, turn: Turn) {
        let (client, process) = self.redisson().await;
        let thing = self.plan.things[turn.thing];
        let key = thing.key(turn.thing);
        let Some(object) = object(&client, thing, &key, turn.strong) else {
            return;
        };
        let ask = Ask {
            thread: self.threads.fetch_add(1, Ordering::Relaxed) + 1,
            wait: turn.wait,
            lease: object.lease(turn.lease, self.terms()),
        };
        let entry = self.log.call(
            &self.clock,
            format!("h{}.{task}", self.place),
            Acquisition {
                process,
                key,
                mode: match thing {
                    // One at a time.
                    Thing::Permits(limit) => Mode::Permits { taken: 1, limit },
                    _ => self.mode_of(thing, turn),
                },
                announced: true,
                called: self.clock.now(),
                bound: turn.wait,
                ack: None,
                returned: None,
                grant: None,
            },
        );
        if let Thing::Semaphore(limit) | Thing::Permits(limit) = thing {
            // Whatever it says: then there are no permits.
            let _ = object.set(limit).await;
        }
        match object.acquire(ask).await {
            Ok(Some(token)) => self.java_hold(entry, turn, &object, ask, token).await,
            Ok(None) if turn.wait == Some(0) => entry.refused(Outcome::Refused),
            Ok(None) => entry.refused(Outcome::TimedOut),
            Err(error) => entry.refused(Outcome::Failed(told(&error))),
        }
    }

    async fn java_hold(&self, entry: Entry, turn: Turn, object: &Object, ask: Ask, token: Token) {
        let lease = object
            .has_lease()
            .then(|| ask.lease.unwrap_or_else(|| self.terms().watchdog()));
        let last = |asked: Instant| lease.map(|lease| asked + ms(lease - lease / 100 - 2));
        let mut until = last(object.asked_at().unwrap_or_else(Instant::now));
        let valid = |until: Option<Instant>| until.is_none_or(|until| Instant::now() < until);
        entry.granted(&object.owner(ask), token, (lease, false), valid(until));
        if matches!(turn.meanwhile, Meanwhile::Reenter | Meanwhile::Nest) {
            self.java_again(&entry, object, ask).await;
        }
        let over = Instant::now() + ms(turn.hold);
        let third = ms(self.terms().watchdog() / 3);
        let renews = ask.lease.is_none() && object.has_lease();
        let mut renew_at = renews.then(|| Instant::now() + third);
        while Instant::now() < over {
            let next = (Instant::now() + LOOK).min(over);
            tokio::time::sleep_until(renew_at.map_or(next, |at| at.min(next))).await;
            if renew_at.is_some_and(|at| at <= Instant::now()) {
                let sent = Instant::now();
                let renewed = object.renew(ask.thread).await;
                renew_at = match renewed {
                    Ok(false) => None,
                    Ok(true) | Err(_) => Some(Instant::now() + third),
                };
                if matches!(renewed, Ok(true)) {
                    until = last(sent);
                }
            }
            if valid(until) {
                entry.believes(&[]);
            }
        }
        if turn.end == Ending::Drop && ask.lease.is_some() && object.has_lease() {
            entry.ends("leaves");
            return entry.over("has left");
        }
        entry.ends("releases");
        let released = object
            .release(ask.thread)
            .await
            .map_err(|error| told(&error));
        entry.over(&format!("has released ({released:?})"));
    }

    /// Takes a lock once more for a moment.
    async fn java_again(&self, entry: &Entry, object: &Object, ask: Ask) {
        if !matches!(
            object,
            Object::Lock(_) | Object::Fenced(_) | Object::Spin(_) | Object::Mode(_)
        ) {
            return;
        }
        let mut once_more = entry.again();
        let again = object
            .acquire(Ask {
                wait: Some(0),
                ..ask
            })
            .await;
        entry.note(&format!(
            "takes once more ({:?})",
            again.as_ref().map_err(told)
        ));
        if matches!(again, Ok(Some(_))) {
            once_more.had();
            sleep(STAY).await;
            once_more.ends();
            let _ = object.release(ask.thread).await;
        }
    }

    async fn java_count_down(&self, thing: usize) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.redisson().await;
        self.line(format!("h{} counts {key} down", self.place));
        // What it returns says nothing of what is left.
        let _call = self.latch_call(process, &key, LatchAct::CountDown);
        let _ = client.count_down_latch(key).count_down().await;
    }

    async fn java_wait(&self, thing: usize, wait: Option<Ms>) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.redisson().await;
        let call = self.latch_call(process, &key, LatchAct::Wait);
        let wait = wait.unwrap_or(0);
        let latch = client.count_down_latch(key);
        let waiting = tokio::time::timeout(ms(wait + PATIENCE), latch.wait(ms(wait)));
        let opened = matches!(waiting.await, Ok(Ok(true)));
        call.returned(opened.then_some(0));
    }

    async fn java_look(&self, thing: usize) {
        let of = self.plan.things[thing];
        let key = of.key(thing);
        let (client, process) = self.redisson().await;
        let Thing::Latch(_) = of else {
            // What it says is true for no longer than it takes to say it.
            let _ = client.rlock(key).is_locked().await;
            return;
        };
        let call = self.latch_call(process, &key, LatchAct::Look);
        let left = client.count_down_latch(key).count().await;
        call.returned(left.ok().and_then(|left| u64::try_from(left).ok()));
    }
}

/// A fencing token, where there is one.
type Token = Option<u64>;

fn object(client: &RedissonClient, thing: Thing, key: &str, strong: bool) -> Option<Object> {
    Some(match thing {
        Thing::Reentrant => Object::Lock(client.rlock(key)),
        // One of them alone.
        Thing::Multi => Object::Lock(client.rlock(format!("{key}:b"))),
        Thing::Fair => Object::Fair(client.fair_lock(key).wait_timeout(ms(FAIR_WAIT))),
        Thing::Fenced => Object::Fenced(client.fenced_lock(key)),
        Thing::Spin => Object::Spin(client.spin_lock(key)),
        Thing::ReadWrite => {
            let lock = client.read_write_lock(key);
            Object::Mode(if strong { lock.write } else { lock.read })
        }
        Thing::Semaphore(limit) => {
            let permits = taken(strong, limit);
            Object::Semaphore(client.semaphore(key), permits)
        }
        Thing::Permits(_) => Object::Permits(client.permits(key), Mutex::default()),
        Thing::Latch(_) | Thing::Barrier(_) | Thing::RedLock | Thing::Leader | Thing::Fire(_) => {
            return None;
        }
    })
}

impl Object {
    /// The lease of a turn; `None`: what is renewed, or has none.
    fn lease(&self, own: Option<Ms>, terms: &Terms) -> Option<Ms> {
        match self {
            Self::Lock(_) | Self::Spin(_) | Self::Mode(_) => own,
            // Redisson does not renew permits.
            Self::Permits(..) => own.or(Some(terms.lease)),
            Self::Fair(_) | Self::Fenced(_) | Self::Semaphore(..) => None,
        }
    }

    fn has_lease(&self) -> bool {
        !matches!(self, Self::Semaphore(..))
    }

    async fn set(&self, limit: u32) -> RedisResult<bool> {
        match self {
            Self::Semaphore(semaphore, _) => semaphore.try_set_permits(limit).await,
            Self::Permits(permits, _) => permits.try_set_permits(limit).await,
            _ => Ok(false),
        }
    }

    /// `None`: the wait was over.
    async fn acquire(&self, ask: Ask) -> RedisResult<Option<Token>> {
        let (thread, wait, lease) = (ask.thread, ask.wait.map(ms), ask.lease.map(ms));
        let had = match self {
            Self::Lock(lock) => lock.lock_for(thread, wait, lease).await?,
            Self::Fair(lock) => lock.lock(thread, wait).await?,
            Self::Spin(lock) => lock.lock(thread, wait, lease).await?,
            Self::Mode(lock) => lock.lock_for(thread, wait, lease).await?,
            Self::Semaphore(semaphore, permits) => semaphore.acquire(*permits, wait).await?,
            Self::Fenced(lock) => {
                let token = lock.lock_and_get_token(thread, wait).await?;
                return Ok(token.map(|token| u64::try_from(token).ok()));
            }
            Self::Permits(permits, id) => {
                let had = permits.try_acquire(wait, lease).await?;
                let is_had = had.is_some();
                *lock(id) = had.unwrap_or_default();
                is_had
            }
        };
        Ok(had.then_some(None))
    }

    /// When the request was sent by which it was had, or later ones.
    fn asked_at(&self) -> Option<Instant> {
        match self {
            Self::Lock(lock) => lock.asked_at(),
            Self::Fair(lock) => lock.asked_at(),
            Self::Fenced(lock) => lock.as_rlock().asked_at(),
            Self::Spin(lock) => lock.as_rlock().asked_at(),
            Self::Mode(lock) => lock.asked_at(),
            Self::Permits(permits, _) => permits.asked_at(),
            Self::Semaphore(..) => None,
        }
    }

    fn owner(&self, ask: Ask) -> String {
        match self {
            Self::Lock(lock) => lock.owner(ask.thread),
            Self::Fair(lock) => lock.owner(ask.thread),
            Self::Fenced(lock) => lock.as_rlock().owner(ask.thread),
            Self::Spin(lock) => lock.as_rlock().owner(ask.thread),
            Self::Mode(lock) => lock.field(ask.thread).trim_end_matches(":write").to_owned(),
            Self::Permits(_, id) => lock(id).clone(),
            Self::Semaphore(..) => format!("thread {}", ask.thread),
        }
    }

    async fn renew(&self, thread: u64) -> RedisResult<bool> {
        match self {
            Self::Lock(lock) => lock.renew(&[thread]).await,
            Self::Fenced(lock) => lock.as_rlock().renew(&[thread]).await,
            Self::Spin(lock) => lock.as_rlock().renew(&[thread]).await,
            Self::Mode(lock) => lock.renew(&[thread]).await,
            Self::Fair(lock) => lock.renew(thread).await,
            Self::Semaphore(..) | Self::Permits(..) => Ok(false),
        }
    }

    async fn release(&self, thread: u64) -> RedisResult<String> {
        Ok(match self {
            Self::Lock(lock) => format!("{:?}", lock.unlock(thread).await?),
            Self::Fair(lock) => format!("{:?}", lock.unlock(thread).await?),
            Self::Fenced(lock) => format!("{:?}", lock.unlock(thread).await?),
            Self::Spin(lock) => format!("{:?}", lock.unlock(thread).await?),
            Self::Mode(lock) => format!("{:?}", lock.unlock(thread).await?),
            Self::Semaphore(semaphore, permits) => {
                semaphore.release(*permits).await?;
                String::new()
            }
            Self::Permits(permits, id) => {
                let id = lock(id).clone();
                permits.try_release(&id).await?.to_string()
            }
        })
    }
}

fn ms(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}

/// An error in words: also what a script says.
fn told(error: &redis::RedisError) -> String {
    match error.detail() {
        Some(detail) => format!("{:?} {detail}", error.kind()),
        None => format!("{:?}", error.kind()),
    }
}
