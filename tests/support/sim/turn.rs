//! One turn of a task with a lock or with permits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redlock_rt::{Error, Fenced, Kind, Lock, LockGuard, LockOptions, PermitOptions, ReplicaAck};
use tokio::time::Instant;

use super::act::{Host, sleep, told};
use super::guard::{Hold, Maybe};
use super::log::Entry;
use super::plan::{Cut, Ending, Meanwhile, Thing, Turn};
use crate::history::{Ack, Acquisition, Mode, Ms, Outcome};
use crate::lock;

/// How long a lock stays taken twice.
pub(super) const STAY: Ms = 15;
/// How often a holder looks.
pub(super) const LOOK: Duration = Duration::from_millis(40);
/// How long before the end of a lease it looks once more.
const MOMENT: Duration = Duration::from_millis(1);

impl Host {
    pub(super) async fn turn(&self, task: usize, turn: Turn) {
        let thing = self.plan.things[turn.thing];
        let key = thing.key(turn.thing);
        let (client, process) = self.client();
        let of = Acquisition {
            process,
            key: key.clone(),
            mode: self.mode_of(thing, turn),
            announced: !matches!(thing, Thing::Spin | Thing::RedLock),
            called: self.clock.now(),
            bound: self.bound_of(thing, turn),
            ack: turn.ack,
            returned: None,
            grant: None,
        };
        let who = format!("h{}.{task}", self.place);
        let entry = self.log.call(&self.clock, who, of.clone());
        match thing {
            Thing::Reentrant if turn.meanwhile == Meanwhile::Body => {
                self.call(entry, turn, (&client, &key)).await;
            }
            Thing::Reentrant => {
                let lock = client.rlock(&key);
                self.leave(entry, turn, lock.lock_with(options(turn)), &lock, |_| None)
                    .await;
            }
            Thing::Fenced => {
                let lock = client.fenced_lock(&key);
                let of = |held: &LockGuard<Fenced>| Some(held.token());
                self.leave(entry, turn, lock.lock_with(options(turn)), &lock, of)
                    .await;
            }
            Thing::Fair => self.lock(entry, turn, client.fair_lock(&key)).await,
            Thing::Spin => self.lock(entry, turn, client.spin_lock(&key)).await,
            Thing::ReadWrite => {
                let lock = client.read_write_lock(&key);
                match turn.strong {
                    true if turn.meanwhile == Meanwhile::Convert => {
                        self.downgrade(entry, turn, lock).await;
                    }
                    false if turn.meanwhile == Meanwhile::Convert => {
                        self.upgrade(entry, turn, lock).await;
                    }
                    true => self.lock(entry, turn, lock.write_lock()).await,
                    false => self.lock(entry, turn, lock.read_lock()).await,
                }
            }
            // One of them alone.
            Thing::Multi if !turn.strong => {
                self.lock(entry, turn, client.rlock(format!("{key}:b")))
                    .await;
            }
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
            Thing::RedLock => self.red(entry, turn, &key).await,
            Thing::Leader => self.lead(entry, turn, &client, of).await,
            Thing::Fire(attempts) => self.fire(entry, turn, &client, (&key, attempts)).await,
            Thing::Latch(_) | Thing::Barrier(_) => {
                entry.refused(Outcome::Failed("it is no lock".to_owned()));
            }
        }
    }

    /// Who may have it beside a turn.
    pub(super) fn mode_of(&self, thing: Thing, turn: Turn) -> Mode {
        match thing {
            Thing::ReadWrite if !turn.strong => Mode::Shared,
            Thing::Semaphore(limit) | Thing::Permits(limit) => Mode::Permits {
                taken: taken(turn.strong, limit),
                limit,
            },
            Thing::RedLock => Mode::Majority(self.nets.len()),
            _ => Mode::Exclusive,
        }
    }

    /// How long its call may take.
    fn bound_of(&self, thing: Thing, turn: Turn) -> Option<Ms> {
        match (thing, turn.wait) {
            (Thing::Leader, _) => None,
            // When the wait is over, one more call tells who runs it.
            (Thing::Fire(_), Some(wait)) if wait > 0 => Some(wait + self.terms().response),
            (_, wait) => wait,
        }
    }

    async fn lock<K: Kind + Send + Sync>(&self, entry: Entry, turn: Turn, lock: Lock<K>) {
        if let Some((entry, held)) = self.take(entry, turn, lock).await {
            self.keep(entry, turn, held).await;
        }
    }

    pub(super) async fn hold<H: Hold>(
        &self,
        entry: Entry,
        turn: Turn,
        acquire: impl Future<Output = Result<H, Error>> + Send,
        token: impl Fn(&H) -> Option<u64> + Send,
    ) {
        if let Some((entry, held)) = self.acquire(entry, turn, acquire, token).await {
            self.keep(entry, turn, held).await;
        }
    }

    /// Waits for the hold; `None`: it was not given out.
    pub(super) async fn acquire<H: Hold>(
        &self,
        entry: Entry,
        turn: Turn,
        acquire: impl Future<Output = Result<H, Error>> + Send,
        token: impl Fn(&H) -> Option<u64> + Send,
    ) -> Option<(Entry, H)> {
        let held = match cut(turn.cut, acquire).await {
            Some(Ok(held)) => held,
            Some(Err(error)) => {
                entry.refused(match error {
                    error if error.is_contended() => Outcome::Refused,
                    error if error.is_timed_out() => Outcome::TimedOut,
                    error if error.is_not_replicated() => not_replicated(&error),
                    error => Outcome::Failed(told(&error)),
                });
                return None;
            }
            None => {
                entry.refused(Outcome::Cancelled);
                return None;
            }
        };
        let thing = self.plan.things[turn.thing];
        let lease = match thing {
            Thing::Semaphore(_) => None,
            _ => Some(turn.lease.unwrap_or_else(|| self.terms().lease)),
        };
        entry.granted(
            &held.owner(),
            token(&held),
            (lease, turn.renew),
            held.is_valid(),
        );
        if held.is_valid() {
            entry.believes(&held.parts());
        }
        Some((entry, held))
    }

    /// Holds it for a while, and ends that.
    pub(super) async fn keep<H: Hold>(&self, entry: Entry, turn: Turn, held: H) {
        let asked = self.meanwhile(&entry, &held, turn.meanwhile).await;
        if let Some(outcome) = asked {
            look(&entry, &held);
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
            Ending::Unlock | Ending::Ticket => {
                entry.ends("releases");
                let response = self.terms().response;
                let outcome = self
                    .timed(entry.process, "unlock", response, held.end())
                    .await;
                let outcome = outcome.map_err(|error| told(&error));
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

    /// Does something under a lock.
    async fn meanwhile<H: Hold>(&self, entry: &Entry, held: &H, what: Meanwhile) -> Maybe {
        let response = self.terms().response;
        let process = entry.process;
        match what {
            Meanwhile::Nothing | Meanwhile::Convert | Meanwhile::Body => None,
            Meanwhile::Extend(lease) => {
                entry.lengthened(lease);
                let call = held.extend(Duration::from_millis(lease));
                self.timed(process, "extend", response, call).await
            }
            Meanwhile::Reenter => {
                // With the options that are not set.
                entry.lengthened(self.terms().lease);
                let mut again = entry.again();
                match self
                    .timed(process, "reenter", response, held.again())
                    .await?
                {
                    Err(error) => Some(Err(error)),
                    Ok(second) => {
                        again.had();
                        sleep(STAY).await;
                        again.ends();
                        drop(second);
                        Some(Ok(()))
                    }
                }
            }
            Meanwhile::Nest => {
                entry.lengthened(self.terms().lease);
                let again = std::sync::Mutex::new(entry.again());
                let stay = async {
                    lock(&again).had();
                    sleep(STAY).await;
                    lock(&again).ends();
                };
                held.nest(stay).await
            }
        }
    }

    /// Holds a lock for a while, looking now and then, and right before it will be lost.
    pub(super) async fn sit<H: Hold>(&self, entry: &Entry, held: &H, hold: Ms) {
        let over = Instant::now() + Duration::from_millis(hold);
        loop {
            let now = Instant::now();
            if now >= over {
                return;
            }
            let mut next = (now + LOOK).min(over);
            if let Some(last) = held.until().map(|until| Instant::from_std(until) - MOMENT)
                && now < last
            {
                next = next.min(last);
            }
            tokio::time::sleep_until(next).await;
            if !look(entry, held) {
                entry.note("has lost");
                return;
            }
        }
    }
}

/// Looks whether a lock is held.
pub(super) fn look<H: Hold>(entry: &Entry, held: &H) -> bool {
    let valid = held.is_valid();
    match valid {
        true => entry.believes(&held.parts()),
        false => entry.loses(),
    }
    valid
}

/// How many permits a turn takes.
pub(super) fn taken(strong: bool, limit: u32) -> u32 {
    if strong { limit.min(2) } else { 1 }
}

pub(super) fn options(turn: Turn) -> LockOptions {
    let mut options = LockOptions::new()
        .renew(turn.renew)
        .wait(turn.wait.map(Duration::from_millis));
    if let Some(lease) = turn.lease {
        options = options.lease(Duration::from_millis(lease));
    }
    match turn.ack {
        Some(ack) => options.replica_ack(asked(ack)),
        None => options,
    }
}

fn asked(ack: Ack) -> ReplicaAck {
    match ack {
        Ack::AtLeast(replicas) => ReplicaAck::AtLeast(replicas),
        Ack::Majority => ReplicaAck::Majority,
        Ack::All => ReplicaAck::All,
    }
}

/// What such an error says.
fn not_replicated(error: &Error) -> Outcome {
    let (wanted, got) = error.replicas().map_or((0, 0), |of| (of.wanted, of.got));
    Outcome::NotReplicated { wanted, got }
}

fn permit_options(turn: Turn, limit: u32) -> PermitOptions {
    let options = PermitOptions::new().permits(taken(turn.strong, limit));
    let options = options.wait(turn.wait.map(Duration::from_millis));
    match turn.ack {
        Some(ack) => options.replica_ack(asked(ack)),
        None => options,
    }
}

/// Runs a call until it returns or is to be dropped.
pub(super) async fn cut<T>(cut: Option<Cut>, call: impl Future<Output = T>) -> Option<T> {
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
