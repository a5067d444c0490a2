//! The tasks of this process that wait for one name, in the order in which they came.
//!
//! Pure state. However many tasks wait, one of them, the *head*, asks Redis. The head tries when there is a
//! *permit*: something was announced, the subscription was confirmed (earlier announcements were not received),
//! or it is time to look again. Locks and latches use the same queue. A try for a lock serves only the head; a
//! try for a latch may end the wait of all.
//!
//! Every operation is O(log n), except those that wake all waiters.
//!
//! # Invariants
//!
//! 1. Only the head takes a permit, and only one try is in progress at a time (but see 8).
//! 2. A head that leaves without having taken its permit, or in the middle of a try, leaves the permit to the
//!    next head. So does a waiter that asked for several permits of a semaphore and gives up, since fewer may
//!    be free. If many may hold a lock at a time, a head that was served leaves a permit to the next head if
//!    there is more to be had, and a permit that was given meanwhile. If a lock has one holder at a time, a
//!    permit that was given meanwhile goes with the head that was served: the announcement is of the release by
//!    which the head got the lock, or of an earlier one. Only a forced release between the script and its reply
//!    is announced later. The next head then tries when the guard learns that it is lost, or when it is time to
//!    look again. A kept permit would cost a try without success if two releases follow each other closely.
//! 3. A waiter that becomes head is woken, since the head has the timer and the subscription. While holds are
//!    handed over (7), the waiter behind a served head is not woken: it would be woken twice at each turn, and
//!    has nothing to do before an offer or an announcement. The timer of the offer wakes it, or the release of
//!    the hold, if that is sent before. If the runtime of both is blocked under the lock, a waiter of another
//!    runtime sleeps until that one continues.
//! 4. A result for all ([`WaitQueue::finish`]) is told only to waiters that waited when the try began: a later
//!    waiter may know of a latch that was set since. Later waiters get their own try.
//! 5. Ticket numbers increase, so their order is that of the queue.
//! 6. An *offer*, by which a holder of this client leaves its lock to the head, exists only while a task waits,
//!    and is made only while no try is in progress. The head takes it before any permit. It leaves the queue
//!    once: to a head, or back to the task that must release the lock.
//! 7. While there is an offer, a timer will check it ([`WaitQueue::look_at_offer`]), even if the head is never
//!    polled.
//! 8. While there are waiters behind the head, a timer checks whether the head runs
//!    ([`WaitQueue::look_at_head`]). A future that is not polled is passed over. It is *away* until it is
//!    polled, and then has its place again. A try that it has begun may still be in progress.

#[cfg(test)]
mod loom;
#[cfg(test)]
mod loom_latch;
#[cfg(test)]
mod offers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::health::Health;

/// A head with waiters behind it is passed over if it is not polled for this time after its wake-up.
const PATIENCE: Duration = Duration::from_millis(500);

/// A place in the queue. Later places have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// Why a waiter is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake<T, O = Infallible> {
    /// The waiter is the head now, without a permit yet. Told once, and again when the time to look has
    /// changed.
    Head,
    /// The waiter is the head and has a permit, which is hereby taken.
    Try,
    /// The waiter is the head, and has the offer of a holder of this client.
    Offered(O),
    /// A try has found a result that ends the wait.
    Done(T),
    /// The client shuts down.
    Closed,
}

/// How a waiter leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The waiter holds the lock. Unless the lock is `shared`, the next waiter has nothing to try before a
    /// release is announced. If it is shared, the next waiter tries if there is `more` of it, or if something
    /// was announced meanwhile. `listens`: the queue is subscribed.
    Served {
        shared: bool,
        more: bool,
        listens: bool,
    },
    /// The waiter gave up. `passes_on`: the next waiter may get what this one was refused.
    GaveUp { passes_on: bool },
}

/// Why a try failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[default]
    Held,
    /// The number of the semaphore's permits was never set.
    Unset,
}

/// A try in progress.
#[derive(Debug, Clone, Copy)]
struct Try {
    by: Ticket,
    /// The first waiter that came after the try began.
    first_later: Ticket,
}

/// An offer was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Wake it when the mutex around the queue is free.
    pub(crate) waker: Option<Waker>,
    /// A timer must be set that calls [`WaitQueue::look_at_offer`].
    pub(crate) unwatched: bool,
}

/// The result of a look of the timer.
#[derive(Debug)]
pub(crate) enum OfferLook<O> {
    /// The timer is not needed any more. Wake the head that does not know that it is the head.
    Gone(Option<Waker>),
    /// No head took the offer in time.
    Over(O),
    /// The timer must look again then.
    Again(Instant),
}

/// The queue; see the module. `T` is the result of a try for all, and `O` an offer.
#[derive(Debug)]
pub(crate) struct WaitQueue<T, O = Infallible> {
    /// Each with its waker.
    waiting: BTreeMap<Ticket, Option<Waker>>,
    /// The head that knows that it is the head.
    told: Option<Ticket>,
    /// Waiters whose wait is over and that have not left yet.
    done: BTreeMap<Ticket, T>,
    next: u64,
    permit: bool,
    trying: Option<Try>,
    closed: bool,
    /// When the head looks again without an announcement.
    retry_at: Option<Instant>,
    /// When the head tries after the last announcement, having let others try first.
    paused_until: Option<Instant>,
    /// The state of the head's calls, for waiters behind it whose time runs out.
    health: Health,
    /// The last refusal of a head, for waiters behind it whose time runs out.
    pub(crate) refusal: Refusal,
    offer: Option<O>,
    /// See [`could_share`](Self::could_share).
    shares: bool,
    /// A timer will check the offer.
    watched: bool,
    /// A timer will check the head.
    minded: bool,
    /// The head was woken then, and was not polled since.
    probed: Option<Instant>,
    /// The number of waiters that were passed over and not polled since.
    away: usize,
}

impl<T, O> Default for WaitQueue<T, O> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            told: None,
            done: BTreeMap::new(),
            next: 0,
            permit: false,
            trying: None,
            closed: false,
            retry_at: None,
            paused_until: None,
            health: Health::Answering,
            refusal: Refusal::Held,
            offer: None,
            shares: false,
            watched: false,
            minded: false,
            probed: None,
            away: 0,
        }
    }
}

impl<T: Clone, O> WaitQueue<T, O> {
    /// Joins the queue; returns whether it was empty. An empty queue starts again, without a permit.
    pub(crate) fn enter(&mut self) -> (Ticket, bool) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let first = self.waiting.is_empty();
        if first {
            self.permit = false;
            self.retry_at = None;
            self.paused_until = None;
            self.health = Health::Answering;
            self.refusal = Refusal::Held;
        }
        self.waiting.insert(ticket, None);
        (ticket, first)
    }

    /// Asks for news; the waker is woken when there are some.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Wake<T, O>> {
        if let Some(outcome) = self.done.get(&ticket) {
            return Poll::Ready(Wake::Done(outcome.clone()));
        }
        if self.closed {
            return Poll::Ready(Wake::Closed);
        }
        self.comes(ticket);
        let head = self.is_head(ticket);
        if head && self.trying.is_none() && (self.permit || self.offer.is_some()) {
            return Poll::Ready(match self.offer.take() {
                Some(offer) => {
                    self.begin_try(ticket);
                    Wake::Offered(offer)
                }
                None => {
                    self.permit = false;
                    self.begin_try(ticket);
                    Wake::Try
                }
            });
        }
        if head && self.told != Some(ticket) {
            self.told = Some(ticket);
            return Poll::Ready(Wake::Head);
        }
        self.wakes(ticket, waker);
        Poll::Pending
    }

    /// The waiter is polled while it tries.
    pub(crate) fn runs(&mut self, ticket: Ticket, waker: &Waker) {
        if !self.closed && !self.done.contains_key(&ticket) {
            self.comes(ticket);
            self.wakes(ticket, waker);
        }
    }

    /// The waiter is polled. If it was away, it is back. If it tries and is no longer the head, it continues,
    /// and the head may try at the same time.
    fn comes(&mut self, ticket: Ticket) {
        if !self.waiting.contains_key(&ticket) {
            self.away -= 1;
            self.permit |= self.waiting.is_empty();
            self.waiting.insert(ticket, None);
            let first = self.head();
            let overtaken = self.trying.take_if(|trying| Some(trying.by) != first);
            self.permit |= overtaken.is_some();
        }
        if self.is_head(ticket) {
            self.probed = None;
        }
    }

    fn wakes(&mut self, ticket: Ticket, waker: &Waker) {
        if let Some(known) = self.waiting.get_mut(&ticket)
            && !known.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
    }

    /// Returns whether [`poll`](Self::poll) would return [`Wake::Try`], and then has the same effect. Needs no
    /// waker.
    pub(crate) fn tries_at_once(&mut self, ticket: Ticket) -> bool {
        let asked = self.trying.is_some() || self.offer.is_some() || self.closed;
        let may = self.permit && !asked && self.is_head(ticket) && !self.done.contains_key(&ticket);
        if may {
            self.permit = false;
            self.begin_try(ticket);
        }
        may
    }

    fn begin_try(&mut self, by: Ticket) {
        let first_later = Ticket(self.next);
        self.trying = Some(Try { by, first_later });
    }

    /// An event that makes a try useful, also while one is in progress: Redis may have answered that one
    /// before. Wake the returned waker when the mutex around this state is free.
    #[must_use]
    pub(crate) fn notify(&mut self) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        self.permit = true;
        self.paused_until = None;
        self.head_waker()
    }

    /// An event that makes a try useful at that time, instead of an earlier such time. A permit that the head
    /// has not taken yet stays.
    #[must_use]
    pub(crate) fn notify_at(&mut self, at: Instant) -> Option<Waker> {
        if self.permit {
            return self.notify();
        }
        if self.waiting.is_empty() {
            return None;
        }
        // Told again, since the time has changed.
        self.told = None;
        self.paused_until = Some(at);
        self.head_waker()
    }

    /// The try is over without success. The head tries again at `retry_at` if nothing is announced before
    /// (`None`: only then).
    pub(crate) fn tried(&mut self, by: Ticket, retry_at: Option<Instant>, health: Health) {
        // Otherwise it was passed over meanwhile.
        if self.trying.take_if(|trying| trying.by == by).is_some() {
            self.retry_at = retry_at;
            self.set_health(health);
        }
    }

    /// The head took a permit, and has no time left for a try.
    pub(crate) fn put_back(&mut self, ticket: Ticket) {
        if self.trying.take_if(|trying| trying.by == ticket).is_some() {
            self.permit = true;
        }
    }

    /// The try found a result that ends the wait of all that waited when it began. Upholds invariant 4.
    #[must_use]
    pub(crate) fn finish(&mut self, by: Ticket, outcome: &T) -> Vec<Waker> {
        let began = self.trying.take_if(|trying| trying.by == by);
        // If it was passed over meanwhile, the waiters that came before are not known.
        let first_later = began.map_or(Ticket(by.0 + 1), |trying| trying.first_later);
        let mut wakers = Vec::new();
        let later = self.waiting.split_off(&first_later);
        for (ticket, waker) in std::mem::replace(&mut self.waiting, later) {
            self.done.insert(ticket, outcome.clone());
            wakers.extend(waker);
        }
        self.permit = !self.waiting.is_empty();
        self.retry_at = None;
        self.paused_until = None;
        self.set_health(Health::Answering);
        wakers.extend(self.head_waker());
        wakers
    }

    /// Leaves the queue. Upholds invariants 2 and 3.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: Ticket, departure: Departure) -> Option<Waker> {
        let was_done = self.done.remove(&ticket).is_some();
        let tried = self.trying.take_if(|trying| trying.by == ticket).is_some();
        let head = self.is_head(ticket);
        let waited = self.waiting.remove(&ticket).is_some();
        self.away -= usize::from(!waited && !was_done);
        if !head {
            return None;
        }
        self.probed = None;
        match departure {
            // Of a lock with one holder at a time, all announcements are outdated now.
            Departure::Served { shared, more, .. } => {
                self.permit = shared && (self.permit || more);
                self.paused_until = self.paused_until.filter(|_| shared);
            }
            Departure::GaveUp { passes_on } => self.permit |= tried || passes_on,
        }
        self.forget_call();
        let idle = self.watched && !self.permit && self.paused_until.is_none();
        match departure {
            Departure::Served { listens: true, .. } if idle => None,
            _ => self.head_waker(),
        }
    }

    /// Offers the lock of this client to the head. Gives the offer back if there is no head, or if it is asking
    /// Redis. Upholds invariants 6 and 7.
    pub(crate) fn offer(&mut self, offer: O) -> Result<Accepted, O> {
        let alone = self.waiting.is_empty() || self.closed;
        if alone || self.trying.is_some() || self.offer.is_some() {
            return Err(offer);
        }
        self.offer = Some(offer);
        Ok(Accepted {
            waker: self.head_waker(),
            unwatched: !std::mem::replace(&mut self.watched, true),
        })
    }

    pub(crate) fn has_offer(&self) -> bool {
        self.offer.is_some()
    }

    /// Takes an offer that no waiter is left to take.
    #[must_use]
    pub(crate) fn take_stranded(&mut self) -> Option<O> {
        let alone = self.waiting.is_empty() || self.closed;
        self.offer.take_if(|_| alone)
    }

    /// Takes the offer back.
    #[must_use]
    pub(crate) fn withdraw_offer(&mut self) -> Option<O> {
        self.offer.take()
    }

    /// The timer checks the offer. `until`: when an offer ends.
    pub(crate) fn look_at_offer(
        &mut self,
        now: Instant,
        until: impl FnOnce(&O) -> Instant,
    ) -> OfferLook<O> {
        match self.offer.take() {
            None => {
                self.watched = false;
                OfferLook::Gone(self.tell_head())
            }
            Some(offer) => {
                let until = until(&offer);
                if until > now {
                    self.offer = Some(offer);
                    return OfferLook::Again(until);
                }
                self.watched = false;
                OfferLook::Over(offer)
            }
        }
    }

    /// No more offers: wake the head that does not know that it is the head.
    #[must_use]
    pub(crate) fn tell_head(&mut self) -> Option<Waker> {
        let unaware = self.head() != self.told;
        unaware.then(|| self.head_waker()).flatten()
    }

    /// Whether a timer must be set that calls [`look_at_head`](Self::look_at_head).
    pub(crate) fn mind(&mut self) -> bool {
        self.has_more() && !std::mem::replace(&mut self.minded, true)
    }

    /// The timer checks whether the head runs, if it has something to do. The head is woken, and passed over if
    /// it was not polled until [`PATIENCE`] later. Upholds invariant 8. Returns whether the timer must look
    /// again.
    pub(crate) fn look_at_head(&mut self, now: Instant) -> (Option<Waker>, bool) {
        self.minded = self.has_more();
        let asked = self.permit || self.trying.is_some() || self.offer.is_some();
        if !self.minded || !asked && self.moment(|| None).is_none_or(|at| at > now) {
            return (None, self.minded);
        }
        if self.is_unpolled(now, PATIENCE) && self.waiting.pop_first().is_some() {
            self.away += 1;
            self.probed = None;
            self.trying = None;
            self.permit = true;
            self.forget_call();
        }
        self.probed.get_or_insert(now);
        (self.head_waker(), true)
    }

    /// Whether the head was woken at least `span` ago, and was not polled since.
    fn is_unpolled(&self, now: Instant, span: Duration) -> bool {
        let since = |at| now.saturating_duration_since(at);
        self.probed.is_some_and(|at| since(at) >= span)
    }

    /// The outcome of a call of the head will not be reported here.
    fn forget_call(&mut self) {
        if matches!(self.health, Health::Asking(_)) {
            self.health = Health::Answering;
        }
    }

    /// No task may wait here any more.
    #[must_use]
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.waiting.values_mut().filter_map(Option::take).collect()
    }

    /// The head must look again.
    pub(crate) fn retry(&mut self) {
        self.retry_at = None;
        self.paused_until = None;
        self.permit = true;
    }

    pub(crate) fn set_retry(&mut self, at: Option<Instant>) {
        self.retry_at = at;
    }

    /// When `ticket` must look again on its own; only the head does. A head that lets others try first does so
    /// until `latest` at most, which is then called.
    pub(crate) fn retry_at(
        &self,
        ticket: Ticket,
        latest: impl FnOnce() -> Option<Instant>,
    ) -> Option<Instant> {
        self.is_head(ticket).then(|| self.moment(latest))?
    }

    fn moment(&self, latest: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let paused_until = self.paused_until;
        let paused_until = paused_until.map(|at| latest().map_or(at, |latest| latest.min(at)));
        self.retry_at.into_iter().chain(paused_until).min()
    }

    pub(crate) fn set_health(&mut self, health: Health) {
        self.health.follow(health);
    }

    pub(crate) fn health(&self, now: Instant) -> Health {
        match self.is_unpolled(now, PATIENCE / 10) {
            true => Health::Unpolled,
            false => self.health,
        }
    }

    /// Whether there is no waiter, not even one that was told and has not left yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.done.is_empty()
    }

    /// Whether a new queue may take its place: no ticket is left, and no waiter that has just left needs the
    /// state of the last head.
    pub(crate) fn is_idle(&self) -> bool {
        let fared = self.health != Health::Answering || self.refusal != Refusal::Held;
        let used = self.watched || self.minded || self.away > 0;
        self.is_empty() && self.offer.is_none() && !used && !self.closed && !fared
    }

    fn is_head(&self, ticket: Ticket) -> bool {
        self.head() == Some(ticket)
    }

    fn head(&self) -> Option<Ticket> {
        self.waiting.keys().next().copied()
    }

    /// A holder of this client ends, and could not offer its lock to the head.
    pub(crate) fn could_share(&mut self) {
        self.shares = !self.waiting.is_empty();
    }

    /// Whether another waiter may take over the lock that the head is about to acquire. Of two tasks that
    /// alternate, the one that acquires is alone; the other one ended its hold just before.
    pub(crate) fn will_share(&mut self) -> bool {
        std::mem::take(&mut self.shares) || self.has_more()
    }

    /// Whether there are others behind the head.
    fn has_more(&self) -> bool {
        self.waiting.len() > 1
    }

    fn head_waker(&mut self) -> Option<Waker> {
        self.waiting.first_entry()?.get_mut().take()
    }
}
