//! Whether a hold is still valid: pure state, judged by the local clock alone.
//!
//! # Invariants
//!
//! 1. No guard reports held at or after `deadline`. The deadline counts from before the acquiring command
//!    was sent, less a margin for clocks that run at different speeds.
//! 2. `Lost` and `Released` are final: nothing makes a lost hold valid again.
//! 3. `deadline` never moves back: re-entry, renewal and partial release never shorten a lease.
//! 4. After the last guard left, no renewal is planned.
//! 5. No renewal asks for more than `longest`. `longest` grows only with the turn of the hold's commands.
//!    So a command that shortens a longer lease in Redis never shortens a requested one.

mod chain;
#[cfg(test)]
mod tests;
mod told;

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use self::chain::Chain;
pub(crate) use self::chain::{ChainLimit, Legacy};
pub(crate) use self::told::ToldLease;
use crate::clock::after;
pub use crate::error::LostReason;
use crate::meter::{Held, Meter, Spanned};

/// The hold times that one guard asks for; validated together with the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The TTL of the key: the time until the lock of a crashed process is free.
    pub(crate) lease: Duration,
    /// How often the watchdog lengthens the lease while the guard lives; `None`: never.
    pub(crate) renew: Option<Duration>,
    /// The longest hold. Renewal then ends, in case the holder is stuck.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) meter: Meter,
}

impl Terms {
    /// For a kind without a lease: never renewed, never verified.
    pub(crate) const WITHOUT_LEASE: Self = Self {
        lease: Duration::MAX,
        renew: None,
        max_hold: None,
        meter: Meter::NONE,
    };

    /// The same with this `max_hold`, which the lease does not outlast.
    pub(crate) fn within(self, max_hold: Option<Duration>) -> Self {
        let lease = max_hold.map_or(self.lease, |most| self.lease.min(most));
        Self {
            lease,
            max_hold,
            ..self
        }
    }

    /// The same, counted for a lock of this kind.
    pub(crate) fn of_kind(self, kind: &'static str) -> Self {
        let meter = self.meter.kind(kind);
        Self { meter, ..self }
    }
}

/// The state of a guard at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is held, by the local clock.
    Held {
        /// When the guard stops reporting held, unless the lease is extended before.
        until: Instant,
    },
    /// Renewals fail, and the lease still runs.
    Suspect {
        /// When the guard becomes lost, unless a renewal succeeds before.
        until: Instant,
    },
    /// The lock is no longer held.
    Lost(LostReason),
    /// Released, or its release has begun.
    Released,
}

impl GuardState {
    /// Returns whether the lock is held at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Suspect { .. })
    }
}

/// Identifies a guard among the guards of one hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardId(u32);

/// The effect of the end of a guard on its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Other guards remain: the count must be sent to Redis.
    Partial,
    /// It was the last guard: the hold must end.
    Last,
}

/// A guard that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    pub(crate) leave: Leave,
    /// Why the hold was lost before, if it was.
    pub(crate) lost: Option<LostReason>,
    /// Why the clock alone ended the hold, if that was not reported before.
    pub(crate) expiry: Option<LostReason>,
    pub(crate) deadline: Instant,
}

/// The next action of the watchdog for a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalPlan {
    /// Extend the lease to this; zero = only verify that the hold exists.
    Renew(Duration),
    /// Nothing before then.
    Wait(Instant),
    /// Nothing ever again.
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HoldPhase {
    Held,
    Suspect,
    Lost(LostReason),
    Released,
}

impl HoldPhase {
    fn is_valid(&self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }
}

#[derive(Debug, Clone, Copy)]
struct Tenant {
    id: GuardId,
    lease: Duration,
    renew: Option<Duration>,
    until: Option<Instant>,
}

impl Tenant {
    fn new(id: GuardId, terms: Terms, now: Instant) -> Self {
        Self {
            id,
            lease: terms.lease,
            renew: terms.renew,
            until: terms.max_hold.map(|max_hold| after(now, max_hold)),
        }
    }
}

/// Fields that few holds need.
#[derive(Debug, Default)]
struct Rare {
    /// When to verify that the hold exists, renewed or not, because it is in doubt.
    verify_at: Option<Instant>,
    /// Since when the hold is in doubt. A reply to an earlier command does not end the doubt.
    doubted: Option<Instant>,
    /// How often to verify the hold without a doubt, if other clients may shorten the lease.
    look_every: Option<Duration>,
    /// When the server is to watch the key.
    watch_at: Option<Instant>,
    /// Until then the lock stays locked after the last guard has ended.
    min_hold: Option<Instant>,
    span: Spanned,
}

/// The lease of one hold and the guards that share it.
#[derive(Debug)]
pub(crate) struct Lease {
    phase: HoldPhase,
    /// The phase differs from the last reported one.
    untold: bool,
    deadline: Instant,
    /// The longest lease that any command for this hold has asked for, answered or not.
    longest: Duration,
    /// Nearly always one.
    tenants: SmallVec<[Tenant; 1]>,
    next_id: u32,
    /// When the watchdog acts next.
    next_renewal: Instant,
    /// Boxed, since few holds need it, and only for a short time.
    rare: Option<Box<Rare>>,
    /// It has no lease.
    permanent: bool,
    /// [`take_expiry`](Self::take_expiry) has reported the expiry.
    expiry_taken: bool,
    chain: Chain,
    /// Its metrics, until it ends.
    held: Held,
}

/// The margin for clocks that run at different speeds: 1 % of the lease, and 2 ms for rounding on both
/// sides; less for a short lease.
pub(crate) fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2).min(lease / 10)
}

impl Lease {
    /// A hold whose acquiring command was handed to the connection at `sent`.
    pub(crate) fn new(
        terms: Terms,
        look_every: Option<Duration>,
        sent: Instant,
    ) -> (Self, GuardId) {
        let mut lease = Self {
            phase: HoldPhase::Held,
            untold: false,
            deadline: sent,
            longest: terms.lease,
            tenants: SmallVec::new(),
            next_id: 0,
            next_renewal: sent,
            rare: look_every.map(|every| {
                Box::new(Rare {
                    verify_at: Some(after(sent, every)),
                    look_every,
                    ..Rare::default()
                })
            }),
            permanent: terms.lease == Duration::MAX,
            expiry_taken: false,
            chain: Chain {
                began: sent,
                turns: 1,
            },
            held: Held::new(terms.meter),
        };
        let id = lease.admit(terms, sent);
        lease.lengthen(sent, terms.lease);
        (lease, id)
    }

    /// A command is sent that asks for this lease. Returns the longest lease that any command asked for.
    pub(crate) fn asks(&mut self, lease: Duration) -> Duration {
        self.longest = self.longest.max(lease);
        self.longest
    }

    fn admit(&mut self, terms: Terms, now: Instant) -> GuardId {
        let id = GuardId(self.next_id);
        self.next_id += 1;
        self.tenants.push(Tenant::new(id, terms, now));
        id
    }

    /// Upholds invariant 3.
    fn lengthen(&mut self, sent: Instant, lease: Duration) {
        let deadline = after(sent, lease.saturating_sub(margin(lease)));
        self.deadline = self.deadline.max(deadline);
        let interval = self.renewing(sent).filter_map(|tenant| tenant.renew).min();
        let next = after(sent, interval.unwrap_or(lease));
        // A lease shorter than requested (a short extension, a guard that asks for less) delays no
        // renewal.
        let short = self.wanted(sent).is_some_and(|wanted| lease < wanted);
        self.next_renewal = if short {
            next.min(self.next_renewal)
        } else {
            next
        };
    }

    fn enter(&mut self, phase: HoldPhase) {
        self.untold |= self.phase != phase;
        self.phase = phase;
    }

    /// Updates what depends on the clock alone. Upholds invariant 1.
    fn tick(&mut self, now: Instant) {
        if self.phase.is_valid() && now >= self.deadline {
            self.enter(HoldPhase::Lost(LostReason::Expired));
        }
    }

    /// Adds a guard by re-entry; the count must be sent to Redis.
    pub(crate) fn join(&mut self, terms: Terms, now: Instant) -> Result<GuardId, LostReason> {
        self.tick(now);
        self.unchain();
        match &self.phase {
            HoldPhase::Held | HoldPhase::Suspect => Ok(self.admit(terms, now)),
            HoldPhase::Lost(reason) => Err(reason.clone()),
            HoldPhase::Released => Err(LostReason::Deleted),
        }
    }

    /// Gives a guard other terms, as if it had been admitted with them now.
    pub(crate) fn retune(&mut self, id: GuardId, terms: Terms, now: Instant) {
        self.unchain();
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.id == id) {
            *tenant = Tenant::new(id, terms, now);
        }
    }

    /// Ends a guard; `None` if it had ended before.
    pub(crate) fn leave_at(&mut self, id: GuardId, now: Instant) -> Option<Left> {
        let expiry = self.take_expiry(now);
        let leave = self.leave(id)?;
        Some(Left {
            leave,
            lost: self.lost_reason(now),
            expiry,
            deadline: self.deadline,
        })
    }

    /// Ends a guard; `None` if it had ended before. Upholds invariant 4.
    pub(crate) fn leave(&mut self, id: GuardId) -> Option<Leave> {
        let at = self.tenants.iter().position(|tenant| tenant.id == id)?;
        let last = self.tenants.swap_remove(at);
        if !self.tenants.is_empty() {
            return Some(Leave::Partial);
        }
        match &self.phase {
            // The loss is the loss of this guard, and of the hold.
            HoldPhase::Lost(reason) => {
                self.phase = HoldPhase::Lost(self.reason(&last, reason.clone()));
            }
            _ => self.enter(HoldPhase::Released),
        }
        Some(Leave::Last)
    }

    /// The terms with which a guard continues in another mode of its lock: its own, with at least
    /// the remaining lease. `None` if the guard has ended.
    pub(crate) fn terms(&self, id: GuardId, now: Instant) -> Option<Terms> {
        let tenant = self.tenants.iter().find(|tenant| tenant.id == id)?;
        let rest = self.deadline.saturating_duration_since(now);
        Some(Terms {
            lease: tenant.lease.max(rest),
            renew: tenant.renew,
            max_hold: tenant
                .until
                .map(|until| until.saturating_duration_since(now)),
            meter: self.held.meter(),
        })
    }

    /// Keeps the lock taken at least until then, also after the last guard. The release then sets the TTL
    /// instead. Only if [`Recipe::min_hold`](crate::wire::Recipe::min_hold) has a call.
    pub(crate) fn set_min_hold(&mut self, until: Instant) {
        let rare = self.rare.get_or_insert_default();
        rare.min_hold = rare.min_hold.max(Some(until));
    }

    pub(crate) fn min_hold(&self) -> Option<Instant> {
        self.rare.as_ref().and_then(|rare| rare.min_hold)
    }

    /// The hold count for Redis.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.tenants.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The state as one guard sees it.
    pub(crate) fn state(&mut self, id: GuardId, now: Instant) -> GuardState {
        self.tick(now);
        let Some(tenant) = self.tenants.iter().find(|tenant| tenant.id == id) else {
            return GuardState::Released;
        };
        let (deadline, end) = (self.deadline, tenant.until);
        let until = end.map_or(deadline, |end| end.min(deadline));
        let is_over = end.is_some_and(|end| now >= end);
        match &self.phase {
            HoldPhase::Lost(reason) => GuardState::Lost(self.reason(tenant, reason.clone())),
            HoldPhase::Released => GuardState::Released,
            _ if is_over => GuardState::Lost(LostReason::MaxHold),
            HoldPhase::Held => GuardState::Held { until },
            HoldPhase::Suspect => GuardState::Suspect { until },
        }
    }

    /// Why the hold is lost for one of its guards. The lease of the last renewal ends with `max_hold`, so
    /// both may be over. The reason is decided at the deadline, so it stays the same.
    fn reason(&self, tenant: &Tenant, reason: LostReason) -> LostReason {
        let latest = after(self.deadline, margin(tenant.lease));
        match reason {
            LostReason::Expired if tenant.until.is_some_and(|end| end <= latest) => {
                LostReason::MaxHold
            }
            reason => reason,
        }
    }

    /// The longest lease that a guard wants renewed now.
    fn renewed_lease(&self, now: Instant) -> Option<Duration> {
        self.renewing(now).map(|tenant| tenant.lease).max()
    }

    fn renewing(&self, now: Instant) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().filter(move |tenant| {
            tenant.renew.is_some() && tenant.until.is_none_or(|until| now < until)
        })
    }

    /// Why the hold is lost, if the clock alone ended it; returned once, while a guard is left.
    pub(crate) fn take_expiry(&mut self, now: Instant) -> Option<LostReason> {
        self.tick(now);
        let id = self.tenants.first()?.id;
        if self.phase != HoldPhase::Lost(LostReason::Expired) || self.expiry_taken {
            return None;
        }
        self.expiry_taken = true;
        match self.state(id, now) {
            GuardState::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// The action of the watchdog now.
    pub(crate) fn plan(&mut self, now: Instant) -> RenewalPlan {
        self.tick(now);
        if !self.phase.is_valid() {
            return RenewalPlan::Done;
        }
        let wanted = self.wanted(now);
        let renewal = wanted.map(|_| self.next_renewal);
        let rare = self.rare.as_ref();
        let rare = rare.map(|rare| [rare.verify_at, rare.watch_at]);
        let rare = rare.into_iter().flatten().flatten();
        match renewal.into_iter().chain(rare).min() {
            Some(at) if at <= now => {
                self.held.meter().renews(|| self.overdue(now));
                RenewalPlan::Renew(wanted.unwrap_or_default())
            }
            Some(at) => RenewalPlan::Wait(at.min(self.deadline)),
            None => RenewalPlan::Wait(self.deadline),
        }
    }

    /// The lease to ask for in a renewal: that of the guard with the longest, but no longer than
    /// its `max_hold` has left. Upholds invariant 5.
    fn wanted(&self, now: Instant) -> Option<Duration> {
        let rest = |until: Instant| until.saturating_duration_since(now);
        let renewing = self.renewing(now);
        let left = renewing.map(|tenant| tenant.until.map_or(Duration::MAX, rest));
        let lease = self.renewed_lease(now)?.min(self.longest);
        left.max().map(|left| left.min(lease))
    }

    /// How often it is verified without a doubt, if it is.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        self.rare.as_ref()?.look_every
    }

    /// How much earlier a renewal or a verification may be, to share a call with others.
    pub(crate) fn slack(&self, now: Instant) -> Duration {
        let renewals = self.renewing(now).filter_map(|tenant| tenant.renew);
        let interval = renewals.chain(self.look_every()).min();
        interval.unwrap_or_default() / 10
    }

    /// Whether renewals fail.
    pub(crate) fn is_suspect(&self) -> bool {
        self.phase == HoldPhase::Suspect
    }

    /// For how long a renewal has been due, as far as the lease has run.
    pub(crate) fn overdue(&self, now: Instant) -> Option<Duration> {
        let interval = self.renewing(now).filter_map(|tenant| tenant.renew).min()?;
        let lease = self.renewed_lease(now)?;
        let renewed = self.deadline.checked_sub(lease - margin(lease))?;
        now.checked_duration_since(after(renewed, interval))
    }

    /// The lease to ask for in a call that is sent anyway, before the renewal is due; zero = only
    /// verify.
    pub(crate) fn plan_early(&mut self, now: Instant) -> Option<Duration> {
        self.tick(now);
        match self.phase {
            HoldPhase::Held => {
                let look = self.look_every().map(|_| Duration::ZERO);
                self.wanted(now).or(look)
            }
            // After a failure there is a pause. A hold that is no longer held is not renewed.
            _ => None,
        }
    }

    /// The lease was lengthened to `ttl` by a command sent at `sent`.
    pub(crate) fn renewed(&mut self, sent: Instant, ttl: Duration, now: Instant) {
        self.tick(now);
        self.unchain();
        if self.phase.is_valid() {
            self.enter(HoldPhase::Held);
            if let Some(rare) = &mut self.rare
                && rare.doubted.is_none_or(|since| sent >= since)
            {
                rare.doubted = None;
                rare.verify_at = rare.look_every.map(|every| after(now, every));
            }
            if !ttl.is_zero() {
                self.lengthen(sent, ttl);
            }
        }
    }

    /// When a renewal that failed just now is to be tried again, while the lease still runs.
    pub(crate) fn retry_at(&self, now: Instant) -> Instant {
        let rest = self.deadline.saturating_duration_since(now);
        let pause = (rest / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        after(now, pause)
    }

    /// A renewal failed; the next is due at `retry_at`.
    pub(crate) fn renewal_failed(&mut self, now: Instant, retry_at: Instant) {
        self.tick(now);
        self.unchain();
        if self.phase.is_valid() {
            self.enter(HoldPhase::Suspect);
            self.next_renewal = retry_at;
            if self.wanted(now).is_none() {
                // No renewal would end the doubt.
                self.rare.get_or_insert_default().verify_at = Some(retry_at);
            }
            if let Some(rare) = &mut self.rare {
                rare.verify_at = rare.verify_at.map(|_| retry_at);
                rare.watch_at = rare.watch_at.map(|_| retry_at);
            }
        }
    }

    /// The hold is known to be lost, from Redis or otherwise. Returns whether that is new.
    pub(crate) fn lost(&mut self, reason: LostReason, now: Instant) -> bool {
        self.tick(now);
        let news = self.phase.is_valid();
        if news {
            self.enter(HoldPhase::Lost(reason));
        }
        news
    }

    /// Redis has ended the hold, intended or not: waiters ask for the lock.
    pub(crate) fn ended(&mut self, now: Instant) {
        if self.is_valid(now) {
            self.enter(HoldPhase::Released);
        }
    }

    /// Whether the hold as a whole is still valid.
    pub(crate) fn is_valid(&mut self, now: Instant) -> bool {
        self.tick(now);
        self.phase.is_valid()
    }

    /// Why the hold as a whole is lost, if it is.
    pub(crate) fn lost_reason(&mut self, now: Instant) -> Option<LostReason> {
        self.tick(now);
        match &self.phase {
            HoldPhase::Lost(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    /// The server may have lost the hold: verify at once. A hold without a lease is not verified,
    /// since Redis cannot distinguish its holders.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.unchain();
        if !self.permanent {
            let rare = self.rare.get_or_insert_default();
            rare.verify_at = Some(now);
            rare.doubted = Some(now);
        }
    }

    /// The server is to watch the key from then on: a renewal is sent, followed by that request.
    pub(crate) fn watch_at(&mut self, at: Instant) {
        self.rare.get_or_insert_default().watch_at = Some(at);
    }

    /// A renewal is sent. Returns whether the server is to watch the key after it. A key that may be gone
    /// would be watched for ever. So a hold in doubt is not watched, and tries again at `again`.
    pub(crate) fn watches(&mut self, again: Instant) -> bool {
        let Some(rare) = &mut self.rare else {
            return true;
        };
        rare.watch_at = rare.doubted.map(|since| since.max(again));
        rare.doubted.is_none()
    }

    /// Whether the watchdog renews it.
    pub(crate) fn is_renewed(&self, now: Instant) -> bool {
        self.renewed_lease(now).is_some()
    }
}
