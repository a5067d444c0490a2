//! Guards: a caller's share of a hold.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::hand_over::HandOver;
use super::hold::{GuardId, GuardState, Hold, Lease, Leave, Left, LostReason, Request, Terms};
use super::release::{Cleanup, PendingCleanup};
use crate::clock;
use crate::error::Error;
use crate::wire::{HoldReply, Tokens};

impl Hold {
    /// Ends the hold although guards exist; the guards are lost.
    pub(super) fn end(self: &Arc<Self>, reason: LostReason) {
        let held = self
            .engine
            .watchdog
            .unwatch_if(self, || (self.lease().lost(reason, clock::now()), true));
        self.notify_changed();
        if held {
            drop(PendingCleanup::new(Cleanup::release(self, self.deadline())));
        }
    }

    /// Adds a guard by re-entry: one call, which also checks that the lock is still there.
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
        let joined = self.lease().join(terms, clock::now());
        let id = joined.map_err(|reason| self.lost_error(ACTION, reason))?;
        let guard = HoldGuard::new(Arc::clone(self), id);
        match self.lengthen(ACTION, terms.lease, deadline).await {
            Ok(()) => Ok(guard),
            // The guard ends here, and the count is reduced again.
            Err(error) => Err(error.of_no_change()),
        }
    }

    /// Sends the current count and a lease to Redis. The lease is never shortened.
    pub(crate) async fn lengthen(
        self: &Arc<Self>,
        action: &'static str,
        lease: Duration,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        self.engine.ensure_tasks();
        let deadline = deadline.unwrap_or_else(|| self.engine.patience(clock::now()));
        self.lease().unchain();
        let cleanup = Cleanup::update(self, lease, self.deadline());
        let mut pending = PendingCleanup::new(cleanup);
        let name = self.recipe.name();
        match pending.finish(action, name, deadline, None).await? {
            HoldReply::Done => {
                if let Some(reason) = self.lost_reason(clock::now()) {
                    return Err(self.lost_error(action, reason));
                }
                self.engine.watchdog.rewatch(self);
                Ok(())
            }
            reply => {
                let reason = reply.lost().unwrap_or(LostReason::Deleted);
                Err(self.lost_error(action, reason))
            }
        }
    }

    fn state(&self, guard: GuardId) -> GuardState {
        self.lease().state(guard, clock::now())
    }

    /// Resolves when the lock is lost for this guard, at the local deadline at the latest.
    async fn lost(self: &Arc<Self>, guard: GuardId) -> LostReason {
        self.engine.ensure_tasks();
        loop {
            let mut changed = std::pin::pin!(self.changed());
            // Registered before the state is read, so that no change is missed.
            changed.as_mut().enable();
            let until = match self.state(guard) {
                GuardState::Held { until } | GuardState::Suspect { until } => until,
                GuardState::Lost(reason) => return reason,
                // The caller still borrows the guard, so only a shut-down can have released it.
                GuardState::Released => return LostReason::ShutDown,
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = clock::sleep_until(until) => {}
            }
        }
    }
}

/// One guard of a hold: the part that the guards of all kinds share. Dropping it queues the
/// release.
pub(crate) struct HoldGuard {
    pub(crate) hold: Arc<Hold>,
    pub(super) id: GuardId,
    pub(super) left: bool,
    /// The turn of a body that runs under this guard; see `AcquireParams::for_body`.
    pub(super) turn: Option<tokio::sync::OwnedMutexGuard<()>>,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlocked {
    /// The hold has ended. The lock is free, or another waiting task of this client takes over the hold; see
    /// [`ClientBuilder::hand_over`](crate::ClientBuilder::hand_over).
    Released,
    /// The hold has ended, and the lock stays locked for the rest of its
    /// [`min_hold`](crate::LockOptions::min_hold). Until then no client can acquire the lock,
    /// [`is_locked`](crate::Lock::is_locked) returns `true`, and [`holder`](crate::Lock::holder)
    /// returns the owner of the ended hold. Redis frees the lock, even if this process has ended.
    Kept {
        /// The earliest time at which the lock can be acquired, by the local clock.
        until: Instant,
    },
    /// Other guards of the same hold remain: the lock was re-entered.
    StillHeld,
    /// There was nothing to release: the lease had run out, or the lock was deleted or taken over.
    /// Another holder may have run at the same time as this one.
    AlreadyExpired,
}

impl HoldGuard {
    pub(super) fn new(hold: Arc<Hold>, id: GuardId) -> Self {
        // The guard is a use of the client, without a reference of its own to the engine.
        hold.engine.count_handle();
        Self {
            hold,
            id,
            left: false,
            turn: None,
        }
    }

    /// The first guard of a hold that was acquired by a command sent at `sent`, and whether the guard is
    /// valid: the lease may be over.
    pub(super) fn acquired(
        request: &Request,
        tokens: Option<Tokens>,
        sent: Instant,
        now: Instant,
    ) -> (Self, bool) {
        let (hold, id) = Hold::new(request, tokens, sent);
        let is_valid = hold.engine.watch(&hold, id, sent, now);
        (Self::new(hold, id), is_valid)
    }

    pub(crate) fn state(&self) -> GuardState {
        self.state_at(clock::now())
    }

    pub(crate) fn state_at(&self, now: Instant) -> GuardState {
        self.hold.lease().state(self.id, now)
    }

    /// The fencing token of a kind that has one.
    pub(crate) fn token(&self) -> u64 {
        let Some(token) = self.hold.token() else {
            unreachable!("a fenced lock that was acquired without a token")
        };
        token
    }

    /// The terms of the guard, with the rest of its `max_hold`.
    pub(crate) fn terms(&self, now: Instant) -> Option<Terms> {
        self.hold.lease().terms(self.id, now)
    }

    /// Runs `body`, and drops it as soon as the lock is lost.
    pub(crate) async fn run<T>(
        &self,
        action: &'static str,
        body: impl Future<Output = T>,
    ) -> Result<T, Error> {
        // The runtime of the client's tasks may have ended, and the guard was moved to another one.
        self.hold.engine.ensure_tasks();
        let lost_error = |reason| self.hold.lost_error(action, reason);
        run_until_lost(self.state(), self.lost(), lost_error, body).await
    }

    /// Lengthens the lease to `lease` from now, if that is longer than what is left.
    pub(crate) async fn extend(&self, action: &'static str, lease: Duration) -> Result<(), Error> {
        match self.state() {
            GuardState::Lost(reason) => Err(self.hold.lost_error(action, reason)),
            GuardState::Released => Err(self.hold.lost_error(action, LostReason::ShutDown)),
            _ => self.hold.lengthen(action, lease, None).await,
        }
    }

    /// Makes the watchdog ask Redis at once whether the hold still exists.
    pub(crate) fn doubt(&self) {
        self.hold.lease().doubt(clock::now());
        self.hold.engine.rewatch(&self.hold);
    }

    /// Gives the guard other terms from now on; the lease itself stays as it is.
    pub(crate) fn retune(&self, terms: Terms) {
        self.hold.lease().retune(self.id, terms, clock::now());
        self.hold.engine.rewatch(&self.hold);
        self.hold.notify_changed();
    }

    /// Resolves when the lock is lost, at the local deadline at the latest.
    pub(crate) fn lost(&self) -> impl Future<Output = LostReason> + use<'_> {
        self.hold.lost(self.id)
    }

    /// Calls `told` when the lock is lost, on the client's thread, the caller's runtime, or the runtime of
    /// the hold. `None`: there is no runtime.
    pub(crate) fn on_lost(
        &self,
        told: impl FnOnce(LostReason) + Send + 'static,
    ) -> Option<AbortHandle> {
        let (hold, id) = (Arc::clone(&self.hold), self.id);
        let site = hold.engine.spawner.site().or_else(|| hold.home.clone())?;
        Some(site.spawn(async move {
            let reason = hold.lost(id).await;
            // The guard may be released at the same time: that is no loss.
            if !matches!(hold.state(id), GuardState::Released) {
                told(reason);
            }
        }))
    }

    /// Releases, and waits for the reply of Redis.
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    pub(crate) fn unlock(self) -> impl Future<Output = Result<Unlocked, Error>> + Send {
        self.unlock_until(None)
    }

    /// Ends the guard, and waits for the reply at most until `until`.
    pub(crate) async fn unlock_until(mut self, until: Option<Instant>) -> Result<Unlocked, Error> {
        const ACTION: &str = "release lock";
        let now = clock::now();
        let until = until.unwrap_or_else(|| self.hold.engine.patience(now));
        let (leave, lost, mut pending) = match self.hand_over() {
            HandOver::Done => return Ok(Unlocked::Released),
            HandOver::Release(pending) => (Leave::Last, None, *pending),
            HandOver::Impossible => match self.leave(now) {
                Some((left, pending)) => (left.leave, left.lost, pending),
                None => return Ok(Unlocked::AlreadyExpired),
            },
        };
        let hold = &self.hold;
        if lost.is_some() {
            // The key may outlive the local deadline by the margin, or by an outage. It is freed in the
            // background. The caller need not wait for that to learn of the loss.
            drop(pending);
            return Ok(Unlocked::AlreadyExpired);
        }
        let name = hold.recipe.name();
        let reply = pending.finish(ACTION, name, until, Some(now)).await?;
        Ok(match (leave, reply) {
            (Leave::Last, HoldReply::Done) => Unlocked::Released,
            (Leave::Last, HoldReply::Kept) => Unlocked::Kept {
                until: hold.lease().min_hold().unwrap_or(now),
            },
            (Leave::Partial, HoldReply::Done) => Unlocked::StillHeld,
            _ => Unlocked::AlreadyExpired,
        })
    }

    /// Ends the guard and leaves the hold in Redis as it is, without renewal.
    pub(crate) fn forget(mut self) {
        if let Some((left, mut pending)) = self.leave(clock::now())
            && left.leave == Leave::Last
        {
            pending.only_forgets();
        }
    }

    /// Ends the guard and leaves the hold in Redis for the returned rest of its lease. `None`: nothing
    /// changes, since the hold is not valid, has other guards, or has a `min_hold`.
    pub(crate) fn leave_behind(&mut self) -> Option<Duration> {
        let (id, now) = (self.id, clock::now());
        let (left, mut pending) = self.leave_if(now, |lease| {
            let ends = lease.count() == 1 && lease.min_hold() <= Some(now);
            ends && lease.state(id, now).is_valid()
        })?;
        pending.only_forgets();
        Some(left.deadline.saturating_duration_since(now))
    }

    /// Ends the guard. If it was the last, no renewal is sent for its hold any more.
    pub(super) fn leave(&mut self, now: Instant) -> Option<(Left, PendingCleanup)> {
        self.leave_if(now, |_| true)
    }

    /// Ends the guard if `may` says so at that moment.
    fn leave_if(
        &mut self,
        now: Instant,
        may: impl FnOnce(&mut Lease) -> bool,
    ) -> Option<(Left, PendingCleanup)> {
        if std::mem::replace(&mut self.left, true) {
            return None;
        }
        let hold = &self.hold;
        // Before the watchdog forgets the hold, so that a shut-down finds one of the two.
        let open = PendingCleanup::register(hold);
        let left = hold.engine.watchdog.unwatch_if(hold, || {
            let mut lease = hold.lease();
            self.left = may(&mut lease);
            let left = self.left.then(|| lease.leave_at(self.id, now)).flatten();
            let last = left.as_ref().is_some_and(|left| left.leave == Leave::Last);
            (left, last)
        })?;
        if let Some(reason) = left.expiry.clone() {
            hold.report(reason, now);
        }
        let cleanup = match left.leave {
            Leave::Partial => Cleanup::update(hold, Duration::ZERO, left.deadline),
            Leave::Last => {
                hold.releases(now);
                Cleanup::release(hold, left.deadline)
            }
        };
        Some((left, PendingCleanup::registered(cleanup, open)))
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if !self.left {
            match self.hand_over() {
                HandOver::Done => {}
                // Begins the release, as below.
                HandOver::Release(pending) => drop(pending),
                HandOver::Impossible => drop(self.leave(clock::now_in_drop())),
            }
        }
        // Once the release is queued, so that a flush includes it.
        self.hold.engine.discount_handle();
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.hold.recipe.name())
            .field("id", &self.hold.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Runs `body` under a lock in this state, and drops it as soon as the lock is lost. Polls `body` first and
/// `lost` second: a completed body is never reported as lost.
pub(crate) async fn run_until_lost<T>(
    state: GuardState,
    lost: impl Future<Output = LostReason>,
    lost_error: impl Fn(LostReason) -> Error,
    body: impl Future<Output = T>,
) -> Result<T, Error> {
    if let GuardState::Lost(reason) = state {
        return Err(lost_error(reason));
    }
    let mut body = std::pin::pin!(body);
    let mut lost = std::pin::pin!(lost);
    let outcome = poll_fn(|cx| match body.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => lost.as_mut().poll(cx).map(Err),
    });
    outcome.await.map_err(|reason| {
        let error = lost_error(reason);
        error.and("the body was dropped, its outcome is unknown")
    })
}
