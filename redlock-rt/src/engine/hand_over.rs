//! A task of this client takes over the hold of another task, without a call.
//!
//! ```text
//! the guard ends ──▶ Offer ──▶ the head of the queue: a new Hold under the same owner number
//!                      │
//!                      └── nobody takes it in time ──▶ the release that it is
//! ```
//!
//! An [`Offer`] is a release that has not begun. Dropping an offer begins the release, so an offer cannot
//! be forgotten. Until it is taken it counts as an outstanding release, for statistics, a shut-down and
//! the flush of the last handle.
//!
//! For Redis the *chain* of these holds is one hold, whose owner changes inside this process. Each has
//! its own [`Hold`], and so its own loss, `max_hold` and `min_hold`.
//!
//! # Invariants
//!
//! 1. The acquiring command is the only one that was sent to Redis for the owner number of a chain, until
//!    its last hold is renewed, re-entered, extended or released. So the deadline of each hold of the
//!    chain counts from that command, and no command of an earlier hold is in flight.
//! 2. A chain is handed over only for [`Config::hand_over`](super::Config) after that command, so that
//!    other processes get their turn, and a lock that was freed by force or flushed is noticed.
//! 3. After a doubt (`Watchdog::doubt`) no chain from before it is handed over.
//! 4. An offer is taken, or released when the chain ends, whether or not its waiter is polled.
//! 5. Only the last hold that this client had in the lock is handed over. A later acquisition of the
//!    client has another owner number, so Redis has forgotten the chain.
//! 6. Until a shut-down can find the next hold, it finds the outstanding release.
//!
//! If a process ends by `exit` while an offer is untaken, the lock ends with its lease, as if the waiter
//! had taken the offer.

#[cfg(test)]
mod loom;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ClientEngine;
use super::guard::HoldGuard;
use super::hold::{ChainLimit, Hold, Legacy, LockQueue, Request, key_of};
use super::release::{Cleanup, Outstanding, PendingCleanup};
use crate::clock;
use crate::wire::Recipe;

/// The longest chain while other clients want the lock, so that they get their share.
const SHARED_TURNS: u32 = 2;

/// The outcome for a hold whose guard ends.
pub(super) enum HandOver {
    /// It is left to the next waiter.
    Done,
    /// The guard has ended, and its release must run: no waiter could take the hold.
    Release(Box<PendingCleanup>),
    /// The guard is unchanged.
    Impossible,
}

/// The outcome of an offer to a waiter.
pub(super) enum Taken {
    /// The waiter takes over the hold.
    Guard(HoldGuard),
    /// The waiter cannot take over the hold; the offer is unchanged.
    Declined(Box<Offer>),
    /// The client shuts down, and the release has begun.
    Closed,
}

/// The release of a hold, which is not needed if a waiter of this client takes over.
pub(crate) struct Offer {
    hold: Arc<Hold>,
    /// `None` once it is taken.
    release: Option<PendingCleanup>,
    legacy: Legacy,
    until: Instant,
}

impl Offer {
    fn new(hold: &Arc<Hold>, legacy: Legacy, open: Outstanding) -> Self {
        let offered = &hold.engine.releases.offered;
        offered.fetch_add(1, Ordering::SeqCst);
        let release = Cleanup::release(hold, hold.deadline());
        Self {
            hold: Arc::clone(hold),
            release: Some(PendingCleanup::registered(release, open)),
            legacy,
            until: clock::after(legacy.chain.began, hold.engine.config.hand_over),
        }
    }

    /// Takes over the hold for this request.
    pub(super) fn take(mut self: Box<Self>, request: &Request, now: Instant) -> Taken {
        let engine = Arc::clone(&self.hold.engine);
        let sent = self.legacy.chain.began;
        let alike = self.hold.recipe.token_ttl() == request.recipe.token_ttl();
        let fits = alike && self.legacy.fits(&request.terms) && now < self.until;
        if !fits || engine.watchdog.is_doubted_since(sent) {
            return Taken::Declined(self);
        }
        let request = Request {
            owner: self.hold.owner,
            repeated: request.repeated || self.hold.repeated,
            ..request.clone()
        };
        let next = Hold::next_of(&self.hold, &request, &self.legacy, now);
        let Some((hold, id)) = next else {
            return Taken::Declined(self);
        };
        // If a doubt has come meanwhile, this also puts the new hold in doubt.
        engine.watch(&hold, id, sent, now);
        let guard = HoldGuard::new(hold, id);
        // As for an acquisition: either a shut-down finds the hold, or this check finds the shut-down.
        // Until then the release is outstanding.
        let taken = match engine.is_closing() {
            true => {
                drop(guard);
                Taken::Closed
            }
            false => Taken::Guard(guard),
        };
        if let Some(release) = self.release.take() {
            release.spare();
        }
        taken
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.release.is_some() {
            self.hold.releases(clock::now_in_drop());
        }
        // Begins the release, if it was not taken.
        drop(self.release.take());
        let offered = &self.hold.engine.releases.offered;
        offered.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ClientEngine {
    /// An offer was made that ends at `until`. `unwatched`: its timer is still to be set.
    fn offered(&self, waiters: &Arc<LockQueue>, unwatched: bool, until: Instant) {
        if unwatched {
            let waiters = Arc::downgrade(waiters);
            let look = move |now| waiters.upgrade()?.look_at_offer(now, |offer| offer.until);
            self.releases.timers.set(until, Box::new(look));
        }
        // Either this finds that the task has ended, or the end of the task finds the offer and
        // withdraws it. After a panic of the task its next start finds the timer.
        if !self.releases.timers.signal.is_running() {
            waiters.withdraw_offer();
        }
    }

    /// Stops hand-overs of this lock by its holder here: the lock is freed by force.
    pub(super) fn end_chain(&self, recipe: &dyn Recipe) {
        if let Some(waiters) = self.fair.get(recipe.name().as_str())
            && recipe.queue().is_some()
        {
            waiters.revoke();
        }
        let Some(waiters) = self.locks.get(&key_of(recipe)) else {
            return;
        };
        if let Some(hold) = waiters.subject.one() {
            hold.lease().unchain();
        }
        waiters.withdraw_offer();
    }
}

impl HoldGuard {
    /// Leaves the lock to the next waiter of this client, if there is one and the hold allows it.
    pub(super) fn hand_over(&mut self) -> HandOver {
        let hold = &self.hold;
        let engine = &hold.engine;
        let waiters = &hold.waiters;
        let time = engine.config.hand_over;
        let token = hold.has_next_token();
        if !token {
            waiters.could_share();
        }
        let may = hold.recipe.profile().hands_over && token;
        // Without the task, no offer would end in time.
        let possible = may && !self.left && !time.is_zero();
        if !possible || waiters.is_empty() || engine.is_closing() || !clock::is_there() {
            return HandOver::Impossible;
        }
        if !engine.releases.timers.signal.is_running() {
            return HandOver::Impossible;
        }
        let turns = match hold.rivals(|rivals| rivals.compete()) {
            Some(true) => SHARED_TURNS,
            _ => u32::MAX,
        };
        let limit = ChainLimit { time, turns };
        let now = clock::now();
        match self.end_chained(limit, now) {
            Some((legacy, open)) => self.offer(legacy, open, now),
            None => HandOver::Impossible,
        }
    }

    /// Ends the guard, if the hold may be handed over.
    fn end_chained(&mut self, limit: ChainLimit, now: Instant) -> Option<(Legacy, Outstanding)> {
        let hold = &self.hold;
        // Before the watchdog forgets the hold, so that a shut-down finds one of the two.
        let open = PendingCleanup::register(hold);
        let legacy = hold.engine.watchdog.unwatch_if(hold, || {
            let legacy = hold.hand_over(self.id, limit, now);
            (legacy, legacy.is_some())
        })?;
        self.left = true;
        Some((legacy, open))
    }

    fn offer(&self, legacy: Legacy, open: Outstanding, now: Instant) -> HandOver {
        let hold = &self.hold;
        let offer = Box::new(Offer::new(hold, legacy, open));
        let until = offer.until;
        match hold.waiters.offer(offer) {
            Ok(unwatched) => {
                hold.engine.offered(&hold.waiters.share(), unwatched, until);
                HandOver::Done
            }
            Err(mut offer) => match offer.release.take() {
                Some(release) => {
                    hold.releases(now);
                    HandOver::Release(Box::new(release))
                }
                None => HandOver::Done,
            },
        }
    }
}
