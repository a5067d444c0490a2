//! The waiters of one client for one fair lock, and when the next beat is due for them.
//!
//! Pure state: the time is an argument, and the waiters to wake are a return value. A waiter is
//! identified by its owner number, and woken in its seat (`S`).
//!
//! # Invariants
//!
//! 1. After a beat was requested, one is sent. If another is in progress, or no waiter is queued
//!    yet, it follows later.
//! 2. A waiter with a ticket is never removed from the queue in Redis: the ticket is made before
//!    the first call is sent, and dropped after the last. Owner numbers are not used again, so no
//!    waiter is queued under a number that had no ticket at any time since Redis reported it.
//! 3. A number whose ticket was dropped during a beat does not count as a left-over: Redis may have
//!    reported it before. This happens in most beats while the lock is handed over quickly.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::engine::wait::Health;
use crate::wire::FairPlace;

/// The number of oldest waiters that a beat asks about: other clients drop waiters from the front.
const ASKED_ABOUT: usize = 50;
/// The number of oldest waiters with a subscription in a mixed queue: more than the turns during
/// one SUBSCRIBE.
const WITH_CHANNELS: usize = 4;
/// The pause before a beat that follows a failed one, or an announcement for a number without a ticket
/// (usually that waiter has been served).
pub(super) const SOON: Duration = Duration::from_millis(250);
/// The most left-over waiters that one beat removes from the queue.
const MOST_LEFT_OVER: usize = 50;
/// How many waiters a release names. The next waiter is among them, usually as the first one. It is not the
/// first if that one has left, or if the reply with its place is not read yet.
const NAMED: usize = 4;

/// The most microseconds by which a reply is read after later replies of Redis.
const MOST_LATE: u64 = 2_000_000;

/// A waiter, and how to wake it.
#[derive(Debug)]
struct FairWaiter<S> {
    seat: S,
    /// The requested lease.
    lease: Duration,
    /// Its key in `FairWaitQueue::queued`, after Redis has reported that it is queued.
    position: Option<Position>,
}

/// When Redis queued a waiter; for equal times, the order in which the replies were read.
type Position = (u64, NonZeroU64);

/// The reports and questions of a beat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BeatRequest {
    /// Numbers without a waiter, to be removed from the queue.
    pub(super) left_over: Vec<u64>,
    /// Numbers to ask about.
    pub(super) oldest: Vec<u64>,
    /// The time since the last beat.
    pub(super) since_last: Duration,
}

/// The waiters; see the module.
#[derive(Debug)]
pub(super) struct FairWaitQueue<S> {
    /// By owner number.
    waiters: BTreeMap<u64, FairWaiter<S>>,
    /// The numbers of the waiters that are queued in Redis, in their order.
    queued: BTreeMap<Position, u64>,
    next_position: NonZeroU64,
    /// Whether another client that is not ours held the lock or was queued when one of the waiters queued.
    mixed: bool,
    /// When the releases were sent that gave the lock to these waiters. A separate map, since it usually
    /// has only one of all waiters.
    granted: BTreeMap<u64, Instant>,
    /// The waiter that is the head of the queue in Redis, as reported by Redis.
    head: Option<u64>,
    /// Numbers without a ticket that Redis reported as the head: their leave has not arrived.
    left_over: Vec<u64>,
    /// During a beat, the numbers whose tickets were dropped since it began.
    left: Option<BTreeSet<u64>>,
    /// When the next beat is due, unless one is requested.
    due: Option<Instant>,
    /// The latest time of a beat that was requested since the last one began.
    asked_by: Option<Instant>,
    /// When the last beat ended.
    last_beat: Option<Instant>,
    /// While beats fail, when the head tries on its own.
    fallback_at: Option<Instant>,
    /// When this client freed the lock by force.
    revoked: Option<Instant>,
    /// The greatest time at which a waiter was queued.
    latest: u64,
    /// Whether Redis answers beats.
    pub(super) health: Health,
}

impl<S> Default for FairWaitQueue<S> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            queued: BTreeMap::new(),
            next_position: NonZeroU64::MIN,
            mixed: false,
            granted: BTreeMap::new(),
            head: None,
            left_over: Vec::new(),
            left: None,
            due: None,
            asked_by: None,
            last_beat: None,
            fallback_at: None,
            revoked: None,
            latest: 0,
            health: Health::Answering,
        }
    }
}

impl<S: Clone> FairWaitQueue<S> {
    /// Adds a waiter. The first one starts the beats, at `due`.
    pub(super) fn enter(&mut self, number: u64, seat: S, lease: Duration, due: Instant) {
        if self.waiters.is_empty() {
            self.due = Some(due);
        }
        let waiter = FairWaiter {
            seat,
            lease,
            position: None,
        };
        self.waiters.insert(number, waiter);
    }

    /// Removes a waiter. Returns whether it was in the queue.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let waiter = self.waiters.remove(&number);
        let was_here = waiter.is_some();
        self.granted.remove(&number);
        if let Some(position) = waiter.and_then(|waiter| waiter.position) {
            self.queued.remove(&position);
        }
        if let Some(left) = &mut self.left {
            left.insert(number);
        }
        self.head = self.head.filter(|&head| head != number);
        if self.waiters.is_empty() {
            *self = Self {
                left: self.left.take(),
                ..Self::default()
            };
        }
        was_here
    }

    /// Removes waiters that block all others and hang: the head, and one that was given the lock. Returns
    /// their numbers.
    pub(super) fn withdraw(&mut self, hangs: impl Fn(&S) -> bool) -> Vec<u64> {
        let awaited = self.head.into_iter().chain(self.granted.keys().copied());
        let mut hung: Vec<_> = awaited.collect();
        hung.retain(|number| self.seat_of(*number).is_some_and(|seat| hangs(&seat)));
        hung.retain(|number| self.leave(*number));
        hung
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Redis has reported that this waiter is queued. `look_at`: the waiter is the head, and the next
    /// beat is due at this moment at the latest. Returns whether no other waiter is queued.
    pub(super) fn is_queued(
        &mut self,
        number: u64,
        place: FairPlace,
        look_at: Option<Instant>,
    ) -> bool {
        let Some(waiter) = self.waiters.get_mut(&number) else {
            return false;
        };
        let is_first = self.queued.is_empty();
        self.mixed |= place.mixed;
        if waiter.position.is_none() {
            // After a failover the clock may be a different one.
            let set_back = place.at < self.latest.saturating_sub(MOST_LATE);
            let at = if set_back { self.latest } else { place.at };
            self.latest = self.latest.max(at);
            let position = (at, self.next_position);
            self.next_position = self.next_position.saturating_add(1);
            waiter.position = Some(position);
            self.queued.insert(position, number);
        }
        if let Some(at) = look_at {
            self.head = Some(number);
            self.ask(at);
        }
        is_first
    }

    /// This number was announced as the head, and the lock is free at `look_at` at the latest. Returns
    /// whether it is the number of a waiter; then the next beat is due at that moment at the latest.
    pub(super) fn is_next(&mut self, number: u64, look_at: Instant) -> bool {
        let known = self.waiters.contains_key(&number);
        if known {
            self.head = Some(number);
            self.ask(look_at);
        }
        known
    }

    /// The waiters that may be next, and their leases.
    pub(super) fn next_in_line(&self) -> Vec<(u64, Duration)> {
        let queued = self.queued.values().filter_map(|number| {
            let waiter = self.waiters.get(number)?;
            let waits = !self.granted.contains_key(number);
            waits.then_some((*number, waiter.lease))
        });
        queued.take(NAMED).collect()
    }

    /// A release that was sent at this time gave the lock to the waiter of this number. Returns its seat. A
    /// waiter without a ticket has left: its own release then ends that hold.
    pub(super) fn grant(&mut self, number: u64, sent: Instant) -> Option<S> {
        let seat = self.seat_of(number)?;
        self.granted.insert(number, sent);
        Some(seat)
    }

    /// Takes the time that [`grant`](Self::grant) has stored. `asked`: when the waiter last asked on its
    /// own. The lock may be free again if the waiter was refused after the release was sent, or if this
    /// client has freed the lock by force since. Then the waiter asks.
    pub(super) fn take_grant(&mut self, number: u64, asked: Option<Instant>) -> Option<Instant> {
        let granted = self.granted.remove(&number);
        let stands = |sent: &Instant| self.revoked.is_none_or(|revoked| revoked < *sent);
        granted.filter(|sent| stands(sent) && asked.is_none_or(|asked| asked <= *sent))
    }

    /// Forgets the grants of all releases that were sent before: those waiters ask Redis.
    pub(super) fn revoke(&mut self, now: Instant) {
        self.revoked = Some(now);
    }

    /// An announcement came for a number without a ticket: the next beat, which asks for the head, is due
    /// soon.
    pub(super) fn unclaimed(&mut self, now: Instant) {
        self.ask(now + SOON);
    }

    /// A beat reported this number as the head. Returns its seat. If it has no ticket, and had
    /// none when the beat began, the next beat is due now and removes it from the queue.
    fn reported_head(&mut self, number: u64, now: Instant) -> Option<S> {
        let seat = self.seat_of(number);
        let left = self.left.as_ref();
        let has_left = left.is_some_and(|left| left.contains(&number));
        if seat.is_none() && !has_left && !self.waiters.is_empty() {
            self.ask(now);
            self.left_over.truncate(MOST_LEFT_OVER - 1);
            self.left_over.push(number);
        }
        seat
    }

    /// The seat of a waiter.
    pub(super) fn seat_of(&self, number: u64) -> Option<S> {
        Some(self.waiters.get(&number)?.seat.clone())
    }

    /// The seats of all waiters.
    pub(super) fn seats(&self) -> Vec<S> {
        let waiters = self.waiters.values();
        waiters.map(|waiter| waiter.seat.clone()).collect()
    }

    /// Whether one of the waiters is the head of the queue in Redis, as reported by Redis.
    pub(super) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// The seats of the waiters that a beat asks about.
    pub(super) fn oldest_seats(&self) -> Vec<S> {
        let oldest = self.oldest();
        oldest.filter_map(|number| self.seat_of(number)).collect()
    }

    /// The waiters whose turns foreign clients may announce next. If there are such clients, the oldest
    /// waiters; otherwise the head, in case Redisson frees the lock by force.
    pub(super) fn with_channels(&self) -> Vec<u64> {
        match self.mixed {
            true => self.queued.values().copied().take(WITH_CHANNELS).collect(),
            false => self.head.into_iter().collect(),
        }
    }

    /// The waiters that a beat asks about; the first call of the others is in progress.
    fn oldest(&self) -> impl Iterator<Item = u64> {
        self.queued.values().copied().take(ASKED_ABOUT)
    }

    /// When the next beat is due; `None` during a beat. If no waiter is queued, a requested beat is
    /// sent later.
    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.asked_by.filter(|_| !self.queued.is_empty());
        let due = self.due.map(|due| asked.map_or(due, |at| at.min(due)));
        due.filter(|_| self.left.is_none())
    }

    /// Requests a beat at this moment at the latest, if there are waiters.
    pub(super) fn ask(&mut self, at: Instant) {
        if self.due.is_some() {
            self.asked_by = Some(self.asked_by.map_or(at, |asked| asked.min(at)));
        }
    }

    /// Begins a beat. The next is due at `until` unless one is requested. If no waiter is queued, none is
    /// sent.
    pub(super) fn begin_beat(&mut self, now: Instant, until: Instant) -> Option<BeatRequest> {
        self.due = self.due.map(|_| until);
        let oldest: Vec<u64> = self.oldest().collect();
        if oldest.is_empty() {
            return None;
        }
        self.asked_by = None;
        if self.health == Health::Answering {
            self.health = Health::Asking(now);
        }
        self.left = Some(BTreeSet::new());
        Some(BeatRequest {
            left_over: std::mem::take(&mut self.left_over),
            oldest,
            since_last: now.saturating_duration_since(self.last_beat.unwrap_or(now)),
        })
    }

    /// Processes the report of a beat: the head, if its number is one of this client, whether the lock is
    /// free, and the waiters that were dropped from the queue. Returns the seats of the waiters to wake.
    pub(super) fn reported(
        &mut self,
        head: Option<u64>,
        is_free: bool,
        dropped: &[u64],
        now: Instant,
    ) -> Vec<S> {
        let mut woken = Vec::new();
        for number in dropped {
            if let Some(waiter) = self.waiters.get_mut(number) {
                if let Some(position) = waiter.position.take() {
                    self.queued.remove(&position);
                }
                woken.push(waiter.seat.clone());
            }
        }
        let seat = head.and_then(|number| self.reported_head(number, now));
        self.head = head.filter(|_| seat.is_some());
        woken.extend(seat.filter(|_| is_free));
        woken
    }

    /// Redis has answered a beat; the next is due at `until`, or earlier if one was requested
    /// meanwhile.
    pub(super) fn beat_answered(&mut self, now: Instant, until: Instant) {
        self.end_beat(now, until);
        self.fallback_at = None;
        self.health = Health::Answering;
    }

    /// A beat did not reach Redis; the next is due at `until`. Returns the seat of the head if the head
    /// must try on its own: at the time `fallback` of the first failure, and again at that of this one.
    pub(super) fn beat_failed(
        &mut self,
        now: Instant,
        until: Instant,
        fallback: Instant,
    ) -> Option<S> {
        self.end_beat(now, until);
        self.health = Health::Failing;
        if *self.fallback_at.get_or_insert(fallback) > now {
            return None;
        }
        self.fallback_at = Some(fallback);
        self.seat_of(self.head?)
    }

    fn end_beat(&mut self, now: Instant, until: Instant) {
        self.due = self.due.map(|_| until);
        self.last_beat = Some(now);
        self.left = None;
    }
}
