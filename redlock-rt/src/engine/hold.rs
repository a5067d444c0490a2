//! A hold: one owner number in one lock, from the count's first 1 to its 0.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::frame::Slot;
use super::lease::{GuardId, GuardState, Lease, Leave, LostReason, Plan, Terms};
use super::lines::Line;
use super::news::News;
use super::settle::{Goal, Settlement, Unsettled};
use super::{Engine, Handle};
use crate::clock;
use crate::connection::Home;
use crate::error::{Error, ErrorKind};
use crate::name::OwnerId;
use crate::shim::{Mutex, lock};
use crate::wire::{Ask, Call, HoldReply, Recipe};

/// What a hold is asked for with.
#[derive(Clone)]
pub(super) struct Bid {
    pub(super) engine: Arc<Engine>,
    pub(super) recipe: Arc<dyn Recipe>,
    pub(super) owner: OwnerId,
    pub(super) number: u64,
    /// The hold under which this one is taken, in another mode of the same lock.
    pub(super) under: Option<Arc<Hold>>,
    pub(super) line: Arc<Line>,
    pub(super) terms: Terms,
    /// It was asked for more than once: an earlier call may still come.
    pub(super) repeated: bool,
}

impl Bid {
    pub(super) fn call(&self, waits: bool, until: Option<Instant>) -> Call {
        // Only a queue in Redis is told how long a waiter stays: no other call looks at the clock.
        let until = until.filter(|_| self.recipe.queue().is_some());
        self.recipe.acquire(&Ask {
            owner: &self.owner,
            lease: self.terms.lease,
            waits,
            rest: until.map(|until| until.saturating_duration_since(clock::now())),
            under: self.under.as_ref().map(|hold| &hold.owner),
        })
    }
}

/// What all guards of one hold share.
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    pub(crate) recipe: Arc<dyn Recipe>,
    pub(crate) owner: OwnerId,
    /// Names the hold in the client.
    pub(crate) number: u64,
    /// What the kind gives with it: a fencing token, or how many permits were left.
    pub(crate) token: Option<u64>,
    /// Whether a hold in another mode had or has this owner; see [`mate_owner`](Self::mate_owner).
    mated: AtomicBool,
    /// Of the explicit owner that it was acquired as.
    slot: OnceLock<Slot>,
    lease: Mutex<Lease>,
    /// Woken when the lease was lengthened or lost.
    changed: Notify,
    /// State-changing commands of one hold go one at a time, also those whose caller went away.
    pub(super) serial: Arc<tokio::sync::Mutex<()>>,
    line: Arc<Line>,
    /// As in the [`Bid`].
    pub(super) repeated: bool,
    /// The lease that it was acquired with.
    pub(super) asked_for: Duration,
    settled: AtomicBool,
    /// Where it was acquired; `None` where no runtime of a caller is needed.
    pub(super) home: Option<Home>,
}

impl Hold {
    /// A hold that was acquired by a command sent at `sent`, and its first guard.
    pub(super) fn acquired(
        bid: &Bid,
        token: Option<u64>,
        sent: Instant,
        now: Instant,
    ) -> HoldGuard {
        let (lease, id) = Lease::new(bid.terms, bid.recipe.look_every(), sent);
        let hold = Arc::new(Self {
            home: bid.engine.config.spawner.home(),
            engine: Arc::clone(&bid.engine),
            recipe: Arc::clone(&bid.recipe),
            owner: bid.owner.clone(),
            number: bid.number,
            token,
            mated: AtomicBool::new(bid.under.is_some()),
            slot: OnceLock::new(),
            lease: Mutex::new(lease),
            changed: Notify::new(),
            serial: Arc::default(),
            line: Arc::clone(&bid.line),
            repeated: bid.repeated,
            asked_for: bid.terms.lease,
            settled: AtomicBool::new(false),
        });
        let before = match hold.recipe.is_exclusive() {
            true => hold.line.set_holder(&hold),
            false => {
                if !hold.recipe.ousts().is_empty() {
                    hold.line.add_sharer(&hold);
                }
                None
            }
        };
        // Who holds another mode may have this one besides.
        let others = match bid.under {
            Some(_) => &[],
            None => hold.recipe.ousts(),
        };
        let name = hold.recipe.name();
        let others = others.iter();
        let others = others.flat_map(|kind| hold.engine.lines.holders(kind, name));
        // They were forced or deleted, and their guards have not heard: they and ours must not both
        // report held.
        for before in before.into_iter().chain(others) {
            if hold.is_valid() && before.is_valid() {
                before.mark_lost(LostReason::Taken);
            }
        }
        hold.engine.watchdog.watch(&hold, sent, now);
        HoldGuard {
            _handle: Handle::new(&hold.engine),
            hold,
            id,
            left: false,
            turn: None,
        }
    }

    /// The owner for a hold in another mode of the same lock, taken under this one: the same, as
    /// Redisson has it, but only once, since a field whose release was sent is never used again.
    pub(super) fn mate_owner(&self) -> Option<OwnerId> {
        let taken = self.mated.swap(true, Ordering::AcqRel);
        (!taken).then(|| self.owner.clone())
    }

    pub(super) fn set_slot(&self, slot: &Slot) {
        let _ = self.slot.set(Arc::clone(slot));
    }

    pub(crate) fn is_valid(&self) -> bool {
        lock(&self.lease).is_valid(clock::now())
    }

    fn lost_reason(&self, now: Instant) -> Option<LostReason> {
        lock(&self.lease).lost_reason(now)
    }

    /// Keeps the lock from others until then at least, also after its last guard: the release then
    /// sets the TTL instead. Only where [`Recipe::stay`] has a call.
    pub(crate) fn stay_until(&self, until: Instant) {
        lock(&self.lease).stay(until);
    }

    /// What ends the hold where the lock is to stay locked for a while then.
    pub(super) fn stay(&self, now: Instant) -> Option<Call> {
        let rest = lock(&self.lease).stays()?.checked_duration_since(now)?;
        if rest.is_zero() {
            return None;
        }
        self.recipe.stay(&self.owner, rest)
    }

    pub(crate) fn count(&self) -> u32 {
        lock(&self.lease).count()
    }

    pub(crate) fn deadline(&self) -> Instant {
        lock(&self.lease).deadline()
    }

    pub(super) fn plan(&self, now: Instant) -> Plan {
        lock(&self.lease).plan(now)
    }

    pub(super) fn slack(&self, now: Instant) -> Duration {
        lock(&self.lease).slack(now)
    }

    pub(super) fn plan_early(&self, now: Instant) -> Option<Duration> {
        lock(&self.lease).plan_early(now)
    }

    pub(super) fn is_renewed(&self, now: Instant) -> bool {
        lock(&self.lease).is_renewed(now)
    }

    pub(super) fn doubt(&self, now: Instant) {
        lock(&self.lease).doubt(now);
    }

    /// Is woken when the lease was lengthened or lost.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// What it weighs in a renewal; see [`Recipe::weight`].
    pub(super) fn weight(&self) -> usize {
        self.recipe.weight(self.count())
    }

    pub(super) fn retry_at(&self, now: Instant) -> Instant {
        lock(&self.lease).retry_at(now)
    }

    pub(super) fn renewal_failed(&self, now: Instant, retry_at: Instant) {
        lock(&self.lease).renewal_failed(now, retry_at);
        self.changed.notify_waiters();
    }

    /// Takes in what Redis answered to a command that was to lengthen the lease.
    pub(super) fn answered(&self, reply: HoldReply, sent: Instant, ttl: Duration) {
        let now = clock::now();
        match reply {
            HoldReply::Done | HoldReply::Kept => lock(&self.lease).renewed(sent, ttl, now),
            HoldReply::Gone => self.mark_lost(LostReason::Deleted),
            HoldReply::Taken => self.mark_lost(LostReason::Taken),
        }
        self.changed.notify_waiters();
    }

    /// Makes every guard of this hold lost, for good.
    pub(super) fn mark_lost(&self, reason: LostReason) {
        let news = lock(&self.lease).lost(reason, clock::now());
        if news {
            self.report(reason, clock::now());
        }
        self.changed.notify_waiters();
        // It may be free for those who wait in this process.
        self.line.notify();
    }

    fn report(&self, reason: LostReason, now: Instant) {
        let name = self.recipe.name().as_str();
        self.engine.watchdog.report(name, reason, now);
    }

    /// Tells the log once if the lease is over and a guard was left.
    fn report_expiry(&self, now: Instant) {
        let expiry = lock(&self.lease).take_expiry(now);
        if let Some(reason) = expiry {
            self.report(reason, now);
        }
    }

    /// The clock alone ended it: tells who waits for that.
    pub(super) fn expired(&self) {
        self.report_expiry(clock::now());
        self.changed.notify_waiters();
        self.line.notify();
    }

    /// Ends the hold under its guards, which are lost.
    pub(super) fn end(self: &Arc<Self>, reason: LostReason) {
        let held = self.engine.watchdog.unwatch_if(self, || {
            (lock(&self.lease).lost(reason, clock::now()), true)
        });
        self.changed.notify_waiters();
        if held {
            drop(Unsettled::new(Settlement::new(self, Goal::End)));
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The end of the hold is known: waiters of this process are not held back by it any more.
    /// `announced`: by a call that was sent then.
    pub(super) fn settled(&self, news: &News) {
        if !self.settled.swap(true, Ordering::AcqRel) {
            self.line.released(self, news);
        }
    }

    /// Adds a guard by re-entry: one call, which also tells whether the lock is still there.
    ///
    /// # Cancel safety
    ///
    /// The guard exists from the start, so dropping the future releases it like any other.
    pub(crate) async fn reenter(
        self: &Arc<Self>,
        terms: Terms,
        deadline: Option<Instant>,
    ) -> Result<HoldGuard, Error> {
        const ACTION: &str = "re-enter lock";
        let joined = lock(&self.lease).join(terms, clock::now());
        let id = joined.map_err(|reason| self.lost_error(ACTION, reason))?;
        let guard = HoldGuard {
            hold: Arc::clone(self),
            id,
            left: false,
            turn: None,
            _handle: Handle::new(&self.engine),
        };
        match self.lengthen(ACTION, terms.lease, deadline).await {
            Ok(()) => Ok(guard),
            // Nothing is unknown: the guard ends here, and the count is set back.
            Err(error) if error.is_outcome_unknown() => Err(error.known_as(ErrorKind::Unavailable)),
            Err(error) => Err(error),
        }
    }

    /// Tells Redis the present count and a lease, which is never shortened.
    pub(crate) async fn lengthen(
        self: &Arc<Self>,
        action: &'static str,
        lease: Duration,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let deadline = deadline.unwrap_or_else(|| self.engine.patience(clock::now()));
        let settlement = Settlement::new(self, Goal::Lengthen(lease));
        let mut unsettled = Unsettled::new(settlement);
        match unsettled.run(Some(deadline)).await {
            Some(Ok(HoldReply::Done)) => {
                if let Some(reason) = self.lost_reason(clock::now()) {
                    return Err(self.lost_error(action, reason));
                }
                self.engine.watchdog.rewatch(self);
                Ok(())
            }
            Some(Ok(reply)) => {
                let reason = match reply {
                    HoldReply::Taken => LostReason::Taken,
                    _ => LostReason::Deleted,
                };
                Err(self.lost_error(action, reason))
            }
            Some(Err(fault)) => {
                let error = unsettled.failed(fault, action);
                Err(error.named(self.recipe.name().as_arc()))
            }
            None => Err(unsettled.out_of_time(action)),
        }
    }

    pub(crate) fn lost_error(&self, action: &'static str, reason: LostReason) -> Error {
        Error::lost(action, reason).named(self.recipe.name().as_arc())
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", self.recipe.name())
            .field("owner", &self.owner)
            .field("lease", &*lock(&self.lease))
            .finish_non_exhaustive()
    }
}

/// One guard of a hold; the part that guards of all kinds share. Dropping it queues the release.
pub(crate) struct HoldGuard {
    pub(crate) hold: Arc<Hold>,
    id: GuardId,
    left: bool,
    /// Of a body that runs under this guard; see `Engine::lock_for_body`.
    turn: Option<tokio::sync::OwnedMutexGuard<()>>,
    /// Dropped when the release is queued.
    _handle: Handle,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlocked {
    /// The lock is free.
    Released,
    /// The hold has ended, and the lock stays locked for the rest of its
    /// [`min_hold`](crate::LockOptions::min_hold): nobody can acquire it before then, and until then
    /// [`is_locked`](crate::Lock::is_locked) answers `true` and [`holder`](crate::Lock::holder) the
    /// owner of the hold that has ended. Redis frees it, whether or not this process lives.
    Kept {
        /// When it can be acquired at the earliest, by the local clock.
        until: Instant,
    },
    /// Other guards of the same hold remain: the lock was re-entered.
    StillHeld,
    /// There was nothing left to release: the lease had run out, or the lock was deleted or taken
    /// over. What was done under it may have met another holder.
    AlreadyExpired,
}

impl HoldGuard {
    /// Keeps a turn for as long as the guard lives.
    pub(super) fn keep(&mut self, turn: tokio::sync::OwnedMutexGuard<()>) {
        self.turn = Some(turn);
    }

    pub(crate) fn state(&self) -> GuardState {
        self.state_at(clock::now())
    }

    pub(crate) fn state_at(&self, now: Instant) -> GuardState {
        lock(&self.hold.lease).state(self.id, now)
    }

    /// Runs `body`, and drops it as soon as the lock is lost.
    pub(crate) async fn run<T>(
        &self,
        action: &'static str,
        body: impl Future<Output = T>,
    ) -> Result<T, Error> {
        if let GuardState::Lost(reason) = self.state() {
            return Err(self.hold.lost_error(action, reason));
        }
        until_lost(self.lost(), body).await.map_err(|reason| {
            let error = self.hold.lost_error(action, reason);
            error.and("the body was dropped, its outcome is unknown")
        })
    }

    /// Takes the lock in another mode besides, on this guard's terms; `None`: it is not to be had.
    pub(crate) async fn also(
        &self,
        action: &'static str,
        recipe: &Arc<dyn Recipe>,
    ) -> Result<Option<Self>, Error> {
        let hold = &self.hold;
        let engine = &hold.engine;
        engine.open(action, recipe.name())?;
        let now = clock::now();
        if let GuardState::Lost(reason) = self.state_at(now) {
            return Err(hold.lost_error(action, reason));
        }
        let terms = lock(&hold.lease).terms(self.id, now);
        let terms = terms.ok_or_else(|| hold.lost_error(action, LostReason::ShutDown))?;
        let until = engine.patience(now);
        let Some(slot) = hold.slot.get() else {
            return engine.join(recipe, terms, hold, Some(until)).await;
        };
        // Its owner has the new hold too, and finds it when it next asks. It waits for nothing
        // while it holds the lock, so the slot is soon free.
        let turn = clock::timeout_at(clock::to_tokio(until), slot.lock()).await;
        let mut turn = turn.map_err(|_| {
            Error::new(ErrorKind::Unavailable, action).named(recipe.name().as_arc())
        })?;
        let joined = engine.join(recipe, terms, hold, Some(until)).await?;
        Ok(joined.map(|guard| turn.keep(slot, guard)))
    }

    /// Has Redis asked at once whether it is still ours.
    pub(crate) fn doubt(&self) {
        self.hold.doubt(clock::now());
        self.hold.engine.watchdog.rewatch(&self.hold);
    }

    /// Gives the guard other terms from now on; the lease itself stays as it is.
    pub(crate) fn retune(&self, terms: Terms) {
        lock(&self.hold.lease).retune(self.id, terms, clock::now());
        self.hold.engine.watchdog.rewatch(&self.hold);
        self.hold.changed.notify_waiters();
    }

    /// Resolves when the lock is lost, at the local deadline at the latest.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let mut changed = std::pin::pin!(self.hold.changed.notified());
            // Registered before the state is read, so that no change falls between.
            changed.as_mut().enable();
            let until = match self.state() {
                GuardState::Held { until } | GuardState::Suspect { until } => until,
                GuardState::Lost(reason) => return reason,
                // Whoever asks still borrows the guard, so only a shut-down can have released it.
                GuardState::Released => return LostReason::ShutDown,
            };
            tokio::select! {
                () = changed => {}
                () = clock::sleep_until(until) => {}
            }
        }
    }

    /// Releases, and waits until Redis has said what became of it.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub(crate) async fn unlock(self) -> Result<Unlocked, Error> {
        let until = self.hold.engine.patience(clock::now());
        self.unlock_until(until).await
    }

    /// As [`unlock`](Self::unlock), at most until then.
    pub(crate) async fn unlock_until(mut self, until: Instant) -> Result<Unlocked, Error> {
        const ACTION: &str = "release lock";
        let Some((leave, settlement)) = self.leave() else {
            return Ok(Unlocked::AlreadyExpired);
        };
        let hold = Arc::clone(&self.hold);
        let now = clock::now();
        if hold.lost_reason(now).is_some() {
            // The key may outlive the local deadline by the margin, or by an outage: it is freed
            // in the background, and the caller need not wait for that to know that it was lost.
            drop(Unsettled::new(settlement));
            return Ok(Unlocked::AlreadyExpired);
        }
        let mut unsettled = Unsettled::new(settlement);
        let reply = match unsettled.run(Some(until)).await {
            Some(Ok(reply)) => reply,
            Some(Err(fault)) => {
                let error = unsettled.failed(fault, ACTION);
                return Err(error.named(hold.recipe.name().as_arc()));
            }
            None => return Err(unsettled.out_of_time(ACTION)),
        };
        Ok(match (leave, reply) {
            (Leave::Last, HoldReply::Done) => Unlocked::Released,
            (Leave::Last, HoldReply::Kept) => Unlocked::Kept {
                until: lock(&hold.lease).stays().unwrap_or(now),
            },
            (Leave::Partial, HoldReply::Done) => Unlocked::StillHeld,
            _ => Unlocked::AlreadyExpired,
        })
    }

    /// Ends the guard and leaves what it holds as it is, without renewal.
    pub(crate) fn forget(mut self) {
        if let Some((Leave::Last, mut settlement)) = self.leave() {
            settlement.only_forgets();
            drop(Unsettled::new(settlement));
        }
    }

    /// Ends the guard; from here on no renewal is sent for its hold if it was the last.
    pub(super) fn leave(&mut self) -> Option<(Leave, Settlement)> {
        if std::mem::replace(&mut self.left, true) {
            return None;
        }
        let hold = &self.hold;
        hold.report_expiry(clock::now_in_drop());
        let leave = hold.engine.watchdog.unwatch_if(hold, || {
            let leave = lock(&hold.lease).leave(self.id);
            (leave, leave == Some(Leave::Last))
        })?;
        let goal = match leave {
            Leave::Partial => Goal::Lengthen(Duration::ZERO),
            Leave::Last => Goal::End,
        };
        Some((leave, Settlement::new(hold, goal)))
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let Some((_, settlement)) = self.leave() {
            let engine = Arc::clone(&self.hold.engine);
            engine.leave(settlement);
        }
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.hold.recipe.name())
            .field("owner", &self.hold.owner)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Polls `body` first and `lost` second: a body that completed is never called lost.
pub(crate) async fn until_lost<T>(
    lost: impl Future<Output = LostReason>,
    body: impl Future<Output = T>,
) -> Result<T, LostReason> {
    let mut body = std::pin::pin!(body);
    let mut lost = std::pin::pin!(lost);
    poll_fn(|cx| match body.as_mut().poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Ok(output)),
        std::task::Poll::Pending => lost.as_mut().poll(cx).map(Err),
    })
    .await
}
