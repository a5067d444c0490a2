//! A hold: one owner number in one lock, from the moment its count becomes 1 until it is 0.

mod holders;
mod lease;
mod request;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub(crate) use self::holders::{Holders, OwnedHolds};
use self::lease::ToldLease;
pub(crate) use self::lease::{
    ChainLimit, GuardId, Lease, Leave, Left, Legacy, RenewalPlan, Terms, margin,
};
pub use self::lease::{GuardState, LostReason};
pub(crate) use self::request::{Claim, Request};
pub(crate) use self::turn::CommandTurn;
use super::ClientEngine;
use super::announcement::News;
use super::hand_over::Offer;
use super::hub::Rivals;
use super::opaque::Opaque;
use super::wait::{Subject, WaitKey, WaiterMap, Waiters};
use crate::clock;
use crate::connection::{Home, To};
use crate::error::Error;
use crate::meter::LockEvent;
use crate::name::HoldId;
use crate::shim::{Mutex, lock};
use crate::wire::{Call, HoldReply, Recipe, Tokens, yields};

/// The waiters of one lock, and the holds of this client in it.
pub(crate) type LockQueue = Waiters<Holders>;
/// The wait queues of all locks.
pub(crate) type LockQueues = WaiterMap<Holders>;
/// The holds of an explicit owner in one name; locked while a call acquires the name.
pub(crate) type OwnerSlot = Arc<tokio::sync::Mutex<OwnedHolds>>;

impl Subject for Holders {
    /// A try for a lock serves only the waiter that makes it.
    type Outcome = std::convert::Infallible;

    type Offer = Box<Offer>;

    fn is_taken(&self) -> bool {
        self.is_held()
    }

    fn yields(kind: &str) -> bool {
        yields(kind)
    }
}

/// The key of the queue of a lock's waiters.
pub(crate) fn key_of(recipe: &dyn Recipe) -> WaitKey {
    WaitKey {
        kind: recipe.profile().kind,
        name: recipe.name().clone(),
    }
}

impl LockQueues {
    /// Whether this client has a valid hold of the lock, or offers it to one of its waiters.
    pub(crate) fn is_held_here(&self, recipe: &dyn Recipe) -> bool {
        let waiters = self.get(&key_of(recipe));
        waiters.is_some_and(|waiters| waiters.is_taken())
    }

    /// Whether this client neither holds the lock nor waits for it.
    pub(crate) fn is_idle(&self, recipe: &dyn Recipe) -> bool {
        let waiters = self.get(&key_of(recipe));
        waiters.is_none_or(|waiters| !waiters.subject.is_held() && waiters.is_empty())
    }
}

/// The state that all guards of one hold share.
pub(crate) struct Hold {
    pub(crate) engine: Arc<ClientEngine>,
    pub(crate) recipe: Arc<dyn Recipe>,
    /// The number in its id.
    pub(crate) owner: u64,
    /// Identifies the hold in the client.
    pub(crate) number: u64,
    /// The fencing token, for a kind with tokens, and the tokens of the next holds of its chain.
    tokens: Option<Tokens>,
    /// Whether a hold in another mode had or has this id; see [`paired_owner`](Self::paired_owner).
    paired: AtomicBool,
    lease: Mutex<Lease>,
    /// Woken when the lease was lengthened or lost, or a turn ended.
    changed: Notify,
    /// The slot of its explicit owner.
    slot: OnceLock<OwnerSlot>,
    /// The id, if the caller wanted to know it.
    hold_id: OnceLock<HoldId>,
    /// Whether the [`CommandTurn`] is taken.
    busy: AtomicBool,
    pub(super) waiters: Opaque<LockQueue>,
    /// As in the [`Request`].
    pub(crate) repeated: bool,
    settled: AtomicBool,
    /// The runtime in which it was acquired; `None` if no runtime of a caller is needed.
    pub(crate) home: Option<Home>,
}

impl Hold {
    /// A hold that was acquired by a command sent at `sent`, and the id of its first guard. Holds that Redis
    /// can no longer have are marked as lost: older holds, or this one, if its reply was read late.
    pub(crate) fn new(
        request: &Request,
        tokens: Option<Tokens>,
        sent: Instant,
    ) -> (Arc<Self>, GuardId) {
        let profile = request.recipe.profile();
        let (mut lease, id) = Lease::new(request.terms, profile.look_every, sent);
        lease.tell(&request.engine, &*request.recipe, LockEvent::Acquired);
        let hold = Self::with_lease(request, tokens, lease);
        let holders = &hold.waiters.subject;
        let mut superseded = Vec::new();
        if profile.exclusive {
            superseded.extend(holders.replace(&hold));
        } else if !profile.supersedes.is_empty() {
            holders.add(&hold);
        }
        if hold.waiters.listens() {
            hold.rivals(|rivals| rivals.acquired(sent));
        }
        // The holder of another mode may have this mode in addition.
        if !request.is_under() {
            superseded.extend(hold.superseded_in_other_modes());
        }
        // The older one was released by force or deleted, and its guards do not know that yet. Both must not
        // report held at the same time.
        for before in superseded {
            if hold.is_valid() && before.is_valid() {
                let acquired = before.lease().acquired();
                if acquired <= sent {
                    before.mark_lost(LostReason::Taken);
                } else {
                    if std::ptr::eq(&*hold.waiters, &*before.waiters) {
                        holders.follow(&hold, &before);
                    }
                    hold.mark_lost(LostReason::Taken);
                }
            }
        }
        (hold, id)
    }

    /// The next hold of the chain of `before`; `request` has the chain's owner number. `None` if there is no
    /// token for it, or if this client has acquired the lock anew meanwhile: Redis then no longer has that
    /// number.
    pub(super) fn next_of(
        before: &Arc<Self>,
        request: &Request,
        legacy: &Legacy,
        now: Instant,
    ) -> Option<(Arc<Self>, GuardId)> {
        let (mut lease, id) = Lease::next_of(legacy, request.terms, now);
        let tokens = match before.tokens {
            Some(tokens) => Some(tokens.next()?),
            None => None,
        };
        // Before another acquisition can find the hold and end it.
        lease.tell(&request.engine, &*request.recipe, LockEvent::Acquired);
        let hold = Self::with_lease(request, tokens, lease);
        let holders = &hold.waiters.subject;
        if !holders.follow(before, &hold) {
            hold.lease().leave(id);
            return None;
        }
        Some((hold, id))
    }

    fn with_lease(request: &Request, tokens: Option<Tokens>, mut lease: Lease) -> Arc<Self> {
        let chains = request.recipe.profile().hands_over;
        if !chains || request.repeated || request.is_under() {
            lease.unchain();
        }
        Arc::new(Self {
            home: request.engine.home(),
            engine: Arc::clone(&request.engine),
            recipe: Arc::clone(&request.recipe),
            owner: request.owner,
            number: request.number,
            tokens,
            paired: AtomicBool::new(request.is_under()),
            lease: Mutex::new(lease),
            changed: Notify::new(),
            slot: OnceLock::new(),
            hold_id: OnceLock::new(),
            busy: AtomicBool::new(false),
            waiters: Arc::clone(&request.waiters).into(),
            repeated: request.repeated,
            settled: AtomicBool::new(false),
        })
    }

    fn superseded_in_other_modes(&self) -> Vec<Arc<Self>> {
        let name = self.recipe.name();
        let modes = self.recipe.profile().supersedes.iter().map(|kind| WaitKey {
            kind,
            name: name.clone(),
        });
        let waiters = modes.filter_map(|key| self.engine.locks.get(&key));
        waiters.flat_map(|waiters| waiters.subject.all()).collect()
    }

    /// The fencing token, for a kind that has one.
    pub(crate) fn token(&self) -> Option<u64> {
        self.tokens.map(Tokens::first)
    }

    /// Whether the next hold of a chain would have a fencing token, or needs none.
    pub(super) fn has_next_token(&self) -> bool {
        self.tokens.is_none_or(|tokens| tokens.next().is_some())
    }

    /// The text of its id. It is made on demand, so that a held lock does not store it.
    pub(crate) fn id(&self) -> String {
        self.engine.id.hold_text(self.owner)
    }

    /// Its id, for the caller. Stored from then on.
    pub(crate) fn hold_id(&self) -> &HoldId {
        let id = || self.engine.id.hold_id(self.owner);
        self.hold_id.get_or_init(id)
    }

    /// The owner of a hold in another mode of the same lock, taken under this one. It is the same owner, as
    /// in Redisson, but only once, since a field whose release was sent is never used again.
    pub(crate) fn paired_owner(&self) -> Option<u64> {
        let taken = self.paired.swap(true, Ordering::AcqRel);
        (!taken).then_some(self.owner)
    }

    pub(crate) fn set_slot(&self, slot: &OwnerSlot) {
        self.lease().unchain();
        let _ = self.slot.set(Arc::clone(slot));
    }

    pub(crate) fn slot(&self) -> Option<&OwnerSlot> {
        self.slot.get()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lease().is_valid(clock::now())
    }

    pub(crate) fn lost_reason(&self, now: Instant) -> Option<LostReason> {
        self.lease().lost_reason(now)
    }

    /// The state of the lease. Its mutex is held briefly, never across a call.
    pub(crate) fn lease(&self) -> ToldLease<'_> {
        ToldLease {
            hold: self,
            lease: lock(&self.lease),
        }
    }

    /// The call that ends the hold and keeps the lock taken for a while.
    pub(crate) fn min_hold_call(&self) -> Option<Call> {
        let until = self.lease().min_hold()?;
        let rest = until.checked_duration_since(clock::now())?;
        if rest.is_zero() {
            return None;
        }
        self.recipe.min_hold(&self.id(), rest)
    }

    pub(crate) fn count(&self) -> u32 {
        self.lease().count()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.lease().deadline()
    }

    pub(crate) fn plan(&self, now: Instant) -> RenewalPlan {
        self.lease().plan(now)
    }

    /// Resolves when the lease was extended or lost, or a turn ended.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Wakes all that wait for a change.
    pub(crate) fn notify_changed(&self) {
        self.changed.notify_waiters();
    }

    /// Whether Redis is to report writes to its key. The key of a lock with several holders is written by
    /// other clients all the time.
    pub(crate) fn is_tracked(&self) -> bool {
        self.engine.tracking.is_some() && self.recipe.profile().exclusive
    }

    /// Whether such reports arrive.
    pub(crate) fn is_listened_for(&self) -> bool {
        let tracking = self.engine.tracking.as_ref();
        tracking.is_some_and(|tracking| tracking.listens())
    }

    /// How many leases its renewal reads.
    pub(crate) fn weight(&self) -> usize {
        let leases = self.recipe.profile().leases;
        leases.weight(self.count(), self.recipe.permits())
    }

    pub(crate) fn renewal_failed(&self, now: Instant, retry_at: Instant) {
        self.lease().renewal_failed(now, retry_at);
        self.notify_changed();
    }

    /// Processes the reply to a command that extends the lease.
    pub(crate) fn answered(&self, reply: &HoldReply, sent: Instant, ttl: Duration) {
        match reply.lost() {
            None => self.lease().renewed(sent, ttl, clock::now()),
            Some(LostReason::Deleted) if self.recipe.profile().ends_with_others => {
                self.lease().ended(clock::now());
            }
            Some(reason) => self.mark_lost(reason),
        }
        self.notify_changed();
    }

    /// Makes every guard of this hold lost, for good.
    pub(crate) fn mark_lost(&self, reason: LostReason) {
        let news = self.lease().lost(reason.clone(), clock::now());
        if news {
            self.report(reason, clock::now());
        }
        self.notify_changed();
        // The lock may be free for waiters of this process.
        self.waiters.notify();
    }

    pub(super) fn report(&self, reason: LostReason, now: Instant) {
        let name = self.recipe.name().as_str();
        self.engine.watchdog.report(name, reason, now);
    }

    /// The clock alone ended the hold: logs that once, and wakes the waiters for that.
    pub(crate) fn expired(&self) {
        let now = clock::now();
        let expiry = self.lease().take_expiry(now);
        if let Some(reason) = expiry {
            self.report(reason, now);
        }
        self.notify_changed();
        self.waiters.notify();
    }

    /// The release of a hold begins.
    pub(super) fn releases(&self, now: Instant) {
        if self.engine.hub.channels() > 0 {
            let chain = self.lease().chain();
            let chained = chain.is_some_and(|chain| chain.turns > 1);
            let unseen = chained && self.engine.nodes.cluster().is_some();
            self.rivals(|rivals| rivals.releasing(now, unseen));
        }
    }

    /// Reads or updates the state of other clients that want the lock; `None` if there is none.
    pub(super) fn rivals<R>(&self, ask: impl FnOnce(&mut Rivals) -> R) -> Option<R> {
        let channel = self.recipe.channel()?;
        let yields = yields(self.recipe.profile().kind);
        yields.then(|| self.engine.hub.rivals(channel, ask))?
    }

    /// Ends the only guard and leaves the hold to the next one, if nothing has put it in doubt. The caller
    /// holds the mutex of the schedule.
    pub(super) fn hand_over(&self, id: GuardId, limit: ChainLimit, now: Instant) -> Option<Legacy> {
        let mut lease = self.lease();
        let sent = lease.chain()?.began;
        if self.engine.watchdog.is_doubted_since(sent) {
            return None;
        }
        lease.hand_over(id, limit, now)
    }

    /// Where its commands are sent.
    pub(super) fn to(&self) -> To<'_> {
        self.engine.to(self.recipe.name())
    }

    /// Another hold continues under the same owner number, so this one needs no release.
    pub(super) fn continued(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The end of the hold is known, so waiters of this process may try.
    pub(crate) fn settled(&self, news: &News) {
        if self.settled.swap(true, Ordering::AcqRel) {
            return;
        }
        self.waiters.subject.remove(self);
        if let (News::Announced(announcement, _), Some(channel)) = (news, self.recipe.channel())
            && yields(self.recipe.profile().kind)
        {
            self.engine.hub.released(channel, announcement.receivers);
        }
        // If the announcement is received, it wakes this process like all other processes, so that
        // the releasing process has no advantage. If the announcement is missed, the hub wakes the
        // waiters later. Other waiters may be subscribed to the channel although these are not.
        let told = self.engine.ended(&*self.recipe, news);
        match told && self.waiters.listens() {
            // The timer of the head is the only wake-up that needs none of the client's tasks, whose runtime
            // may be blocked.
            true => self.waiters.tell_head(),
            false => self.waiters.notify(),
        }
    }

    pub(crate) fn lost_error(&self, action: &'static str, reason: LostReason) -> Error {
        Error::lost(action, reason).named(self.recipe.name().as_arc())
    }
}
