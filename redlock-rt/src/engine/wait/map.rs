//! The wait queues of this process: one for each name that tasks wait for or hold.

#[cfg(test)]
mod loom_latch;
#[cfg(test)]
mod loom_lock;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::called::Waits;
use super::health::Health;
use super::queue::{Departure, OfferLook, Refusal, Ticket, WaitQueue, Wake};
use super::weak_map::WeakMap;
use crate::clock;
use crate::connection::Message;
use crate::engine::hub::{ChannelListener, Hub, Subscription};
use crate::engine::timers::Timers;
use crate::name::LockName;
use crate::shim::{Mutex, lock};
use crate::wire::keys::Channel;

/// How often a timer checks whether the head of a queue runs.
const LOOK: Duration = Duration::from_millis(250);

/// The subject for which the waiters of one map wait. One value exists beside each queue.
pub(crate) trait Subject: Default + Send + Sync + 'static {
    /// A possible result of one try for all waiters.
    type Outcome: Clone + Send + 'static;

    /// By which a holder of this client passes its hold to the next waiter.
    type Offer: Send + 'static;

    /// Whether no waiter has anything to try before something is announced.
    fn is_taken(&self) -> bool {
        false
    }

    /// Whether a waiter lets other clients try first, for a queue of this kind.
    fn yields(_kind: &str) -> bool {
        false
    }
}

/// The key of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    pub(crate) kind: &'static str,
    pub(crate) name: LockName,
}

/// The queue of a name.
type Queue<S> = WaitQueue<<S as Subject>::Outcome, <S as Subject>::Offer>;

/// The queues by name. A queue exists while a waiter, a hold or a cleanup has a reference to it.
pub(crate) struct WaiterMap<S: Subject> {
    names: WeakMap<WaitKey, Waiters<S>>,
    closed: AtomicBool,
    waiting: AtomicUsize,
    timers: Arc<Timers>,
}

/// The waiters of one name; see [`WaitQueue`]. Removed from the map with the last reference.
pub(crate) struct Waiters<S: Subject> {
    map: Arc<WaiterMap<S>>,
    key: WaitKey,
    /// While it has tickets. Boxed, since each held lock stores one. Its mutex is held briefly, with no other
    /// mutex taken inside.
    queue: Mutex<Option<Box<Queue<S>>>>,
    pub(crate) subject: S,
    /// The subscription to the channel, while there are waiters.
    subscription: Subscription,
}

impl<S: Subject> WaiterMap<S> {
    pub(crate) fn new(timers: &Arc<Timers>) -> Arc<Self> {
        Arc::new(Self {
            names: WeakMap::default(),
            closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            timers: Arc::clone(timers),
        })
    }

    /// The waiters of a name; created if there are none.
    pub(crate) fn waiters(self: &Arc<Self>, key: WaitKey) -> Arc<Waiters<S>> {
        let waiters = self.names.get_or_make(key, |key| {
            Arc::new(Waiters {
                map: Arc::clone(self),
                key,
                queue: Mutex::default(),
                subject: S::default(),
                subscription: Subscription::default(),
            })
        });
        // A queue that was made during `close` is closed too.
        if self.closed.load(Ordering::Acquire) {
            waiters.close();
        }
        waiters
    }

    /// The waiters of a name, if there are any.
    pub(crate) fn get(&self, key: &WaitKey) -> Option<Arc<Waiters<S>>> {
        self.names.get(key)
    }

    /// Tells all current and future waiters that the client shuts down.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.names.all().iter().for_each(|waiters| waiters.close());
    }

    /// Makes the head of every queue try again.
    pub(crate) fn notify_all(&self) {
        self.names.all().iter().for_each(|waiters| waiters.notify());
    }

    /// Takes back all offers.
    pub(crate) fn withdraw_offers(&self) {
        let all = self.names.all();
        let offers: Vec<_> = all.iter().filter_map(|one| one.take_offer()).collect();
        // Dropped together: the drop of one may find the end of another task, and call this again.
        drop(offers);
    }

    /// The number of waiting tasks.
    pub(crate) fn waiting(&self) -> usize {
        // `ClientEngine::task_ended` asks after it has marked the end of a task. A waiter checks whether
        // the task runs after it was counted. So one of the two sees the other.
        self.waiting.load(Ordering::SeqCst)
    }

    /// The number of names in use.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

impl<S: Subject> Waiters<S> {
    /// Joins the queue. Attaches to the channel, if there is one, when that needs no command. If the
    /// subject is taken, there is nothing to try before it ends. The head still looks at `retry_at`, since
    /// the end may not be announced.
    pub(crate) fn enter(
        self: &Arc<Self>,
        hub: &Arc<Hub>,
        channel: Option<Channel<'_>>,
        retry_at: impl FnOnce() -> Instant,
        latest: Option<Instant>,
    ) -> WaiterGuard<S> {
        let (guard, first) = self.join();
        let joined =
            channel.and_then(|channel| self.subscription.start_if_confirmed(hub, channel, self));
        let yields = joined.flatten().filter(|_| S::yields(self.key.kind));
        let yields = yields.map(|until| latest.map_or(until, |latest| until.min(latest)));
        // Checked only after the waiter has joined and attached. If the hold is still valid, its end gives
        // the waiter a permit, by the announcement or by `notify`.
        let tries = (first || joined.is_some()) && self.try_unless_taken(yields);
        if first && !tries {
            let retry_at = retry_at();
            self.with_queue(|queue| queue.set_retry(Some(retry_at)));
        }
        guard
    }

    /// Joins a queue without announcements: each waiter has its try when it is the head.
    pub(crate) fn enter_unannounced(self: &Arc<Self>) -> WaiterGuard<S> {
        let (guard, first) = self.join();
        if first {
            self.notify();
        }
        guard
    }

    /// Joins the queue. Returns also whether the queue was empty.
    fn join(self: &Arc<Self>) -> (WaiterGuard<S>, bool) {
        let (ticket, first, unminded) = self.with_queue(|queue| {
            let (ticket, first) = queue.enter();
            (ticket, first, queue.mind())
        });
        if unminded {
            self.look_later();
        }
        self.map.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = WaiterGuard {
            waiters: Arc::clone(self),
            ticket,
            passes_on: false,
            left: false,
        };
        (guard, first)
    }

    /// Acts on the queue; a new one, if there is none.
    fn with_queue<R>(&self, act: impl FnOnce(&mut Queue<S>) -> R) -> R {
        let mut place = lock(&self.queue);
        let queue = place.get_or_insert_default();
        let result = act(queue);
        if queue.is_idle() {
            *place = None;
        }
        result
    }

    /// Acts on the queue if there is one. This would not change a new one.
    fn if_queue<R>(&self, act: impl FnOnce(&mut Queue<S>) -> R) -> Option<R> {
        let mut place = lock(&self.queue);
        let queue = place.as_mut()?;
        let result = act(queue);
        if queue.is_idle() {
            *place = None;
        }
        Some(result)
    }

    /// Sets the timer that checks the head.
    fn look_later(self: &Arc<Self>) {
        let (at, waiters) = (clock::after(clock::now(), LOOK), Arc::downgrade(self));
        let look = move |now| waiters.upgrade()?.look_at_head(now);
        self.map.timers.set(at, Box::new(look));
    }

    /// Subscribes to the channel; the head tries when the subscription is confirmed.
    pub(crate) fn listen(self: &Arc<Self>, hub: &Arc<Hub>, channel: Channel<'_>) {
        self.subscription.start(hub, channel, self);
    }

    /// Whether the waiters receive the announcements of the channel.
    pub(crate) fn listens(&self) -> bool {
        self.subscription.is_begun()
    }

    /// Makes the head try, unless the subject is taken: a guard of this client stops being valid before
    /// its release is sent, so that release is still to come. `yields`: the head must not try before.
    /// Returns whether the head tries.
    fn try_unless_taken(&self, yields: Option<Instant>) -> bool {
        if self.subject.is_taken() {
            return false;
        }
        let named = self.if_queue(|queue| {
            let free = !queue.has_offer();
            free.then(|| match yields {
                Some(at) => queue.notify_at(at),
                None => queue.notify(),
            })
        });
        match named {
            Some(None) => false,
            Some(Some(waker)) => {
                waker.into_iter().for_each(Waker::wake);
                true
            }
            None => true,
        }
    }

    /// An event that may let a try succeed.
    pub(crate) fn notify(&self) {
        self.wake(WaitQueue::notify);
    }

    /// Wakes a head that does not know that it is the head.
    pub(crate) fn tell_head(&self) {
        self.wake(WaitQueue::tell_head);
    }

    /// Wakes the waiter that the queue names, with no mutex held.
    fn wake(&self, named: impl FnOnce(&mut Queue<S>) -> Option<Waker>) {
        let waker = self.if_queue(named).flatten();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn close(&self) {
        let closed = self.with_queue(|queue| (queue.close(), queue.take_stranded()));
        let (wakers, offer) = closed;
        drop(offer);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether no other waiter has anything to try: the subject is taken, or offered to the head.
    pub(crate) fn is_taken(&self) -> bool {
        let has_offer = || self.if_queue(|queue| queue.has_offer());
        self.subject.is_taken() || has_offer().unwrap_or(false)
    }

    /// Offers the hold of a holder of this client to the head. Returns whether a timer must be set for
    /// [`look_at_offer`](Self::look_at_offer), or the offer, if no waiter can take it.
    pub(crate) fn offer(&self, offer: S::Offer) -> Result<bool, S::Offer> {
        let accepted = self.with_queue(|queue| queue.offer(offer))?;
        if let Some(waker) = accepted.waker {
            waker.wake();
        }
        Ok(accepted.unwatched)
    }

    /// Takes the offer back, if there is one, and drops it.
    pub(crate) fn withdraw_offer(&self) {
        drop(self.take_offer());
    }

    fn take_offer(&self) -> Option<S::Offer> {
        self.if_queue(WaitQueue::withdraw_offer).flatten()
    }

    /// The timer checks the offer, and drops one that is over. Returns when to look again.
    pub(crate) fn look_at_offer(
        &self,
        now: Instant,
        until: impl FnOnce(&S::Offer) -> Instant,
    ) -> Option<Instant> {
        let look = self.if_queue(|queue| queue.look_at_offer(now, until));
        match look? {
            OfferLook::Again(at) => return Some(at),
            // With no mutex held, as the drop.
            OfferLook::Gone(head) => head.into_iter().for_each(Waker::wake),
            OfferLook::Over(offer) => drop(offer),
        }
        None
    }

    /// The timer checks whether the head runs. Returns when to look again.
    fn look_at_head(&self, now: Instant) -> Option<Instant> {
        let (waker, again) = self.if_queue(|queue| queue.look_at_head(now))?;
        waker.into_iter().for_each(Waker::wake);
        again.then(|| clock::after(now, LOOK))
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.with_queue(|queue| queue.set_health(health));
    }

    pub(crate) fn health(&self) -> Health {
        self.fares().0
    }

    pub(crate) fn set_refusal(&self, refusal: Refusal) {
        self.with_queue(|queue| queue.refusal = refusal);
    }

    /// The state of the head, for a waiter whose time runs out.
    pub(crate) fn fares(&self) -> (Health, Refusal) {
        let now = clock::now();
        let fares = self.if_queue(|queue| (queue.health(now), queue.refusal));
        fares.unwrap_or_default()
    }

    /// Whether another waiter may take over the lock that the head is about to acquire.
    pub(crate) fn will_share(&self) -> bool {
        self.if_queue(WaitQueue::will_share) == Some(true)
    }

    /// A holder of this client ends, and could not offer its lock to the head.
    pub(crate) fn could_share(&self) {
        self.if_queue(WaitQueue::could_share);
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.if_queue(|queue| queue.is_empty()).unwrap_or(true)
    }
}

impl<S: Subject> Drop for Waiters<S> {
    fn drop(&mut self) {
        self.map.names.forget(&self.key, self);
    }
}

impl<S: Subject> ChannelListener for Waiters<S> {
    /// The head tries in any case: a hold of this client may have been released by force before.
    fn confirmed(&self) {
        self.notify();
    }

    fn joined(&self) {
        self.try_unless_taken(None);
    }

    fn heard(&self, _message: &Message, pause: Option<Duration>) {
        let Some(pause) = pause.filter(|_| S::yields(self.key.kind)) else {
            return self.notify();
        };
        let at = clock::after(clock::now(), pause);
        self.wake(|queue| queue.notify_at(at));
    }
}

/// One waiter's place in the queue, left when dropped.
pub(crate) struct WaiterGuard<S: Subject> {
    pub(crate) waiters: Arc<Waiters<S>>,
    ticket: Ticket,
    /// The next waiter may get what this one was refused.
    passes_on: bool,
    left: bool,
}

impl<S: Subject> WaiterGuard<S> {
    /// Whether the waiter may try, which needs no waker. For a waiter that would ask Redis at this moment.
    pub(crate) fn tries_at_once(&self, asks: Instant) -> bool {
        self.with_queue(|queue| {
            let tries = queue.tries_at_once(self.ticket);
            if tries {
                queue.set_health(Health::Asking(asks));
            }
            tries
        })
    }

    fn with_queue<R>(&self, act: impl FnOnce(&mut Queue<S>) -> R) -> R {
        self.waiters.with_queue(act)
    }

    /// A waiter that was away and is polled is in front of others again.
    fn polled<R>(&self, act: impl FnOnce(&mut Queue<S>) -> R) -> R {
        let (polled, unminded) = self.with_queue(|queue| (act(queue), queue.mind()));
        if unminded {
            self.waiters.look_later();
        }
        polled
    }

    /// The try is over without success. The head tries again at `retry_at` if nothing is announced before
    /// (`None`: only then).
    pub(crate) fn tried(&self, retry_at: Option<Instant>, health: Health) {
        self.with_queue(|queue| queue.tried(self.ticket, retry_at, health));
    }

    /// The try found a result that ends the wait of all that waited when it began.
    pub(crate) fn finish(&self, outcome: &S::Outcome) {
        let wakers = self.with_queue(|queue| queue.finish(self.ticket, outcome));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The next waiter will try when this one gives up, even without an announcement.
    pub(crate) fn passes_on(&mut self) {
        self.passes_on = true;
    }

    /// The waiter leaves the queue with the lock. If the lock is `shared`, other waiters may have it too,
    /// and at once if there is `more` of it. The next head looks again at `retry_at` at the latest.
    pub(crate) fn served(&mut self, shared: bool, more: bool, retry_at: Instant) {
        let departure = Departure::Served {
            shared,
            more,
            listens: self.waiters.listens(),
        };
        self.leave(departure, |queue| {
            queue.set_retry(Some(retry_at));
            queue.refusal = Refusal::Held;
            queue.set_health(Health::Answering);
        });
    }

    fn leave(&mut self, departure: Departure, before: impl FnOnce(&mut Queue<S>)) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        let waiters = &self.waiters;
        let (next, alone, offer) = waiters.with_queue(|queue| {
            before(queue);
            let next = queue.leave(self.ticket, departure);
            (next, queue.is_empty(), queue.take_stranded())
        });
        drop(offer);
        waiters.map.waiting.fetch_sub(1, Ordering::AcqRel);
        if alone {
            // Another waiter may have joined since; then the subscription stays.
            waiters.subscription.end_if(|| waiters.is_empty());
        }
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl<S: Subject> Waits for WaiterGuard<S> {
    type Outcome = S::Outcome;
    type Offer = S::Offer;

    fn poll(&self, waker: &Waker) -> Poll<Wake<S::Outcome, S::Offer>> {
        self.polled(|queue| queue.poll(self.ticket, waker))
    }

    fn runs(&self, waker: &Waker) {
        self.polled(|queue| queue.runs(self.ticket, waker));
    }

    /// Only the head has such a time.
    fn retry_at(&self, deadline: Option<Instant>) -> Option<Instant> {
        // Others may try in the first half of the remaining time, so that this one can still try.
        let half = || {
            let (now, until) = (clock::now(), deadline?);
            Some(now + until.saturating_duration_since(now) / 2)
        };
        self.with_queue(|queue| queue.retry_at(self.ticket, half))
    }

    fn retry(&self) {
        self.with_queue(WaitQueue::retry);
    }

    fn put_back(&self) {
        self.with_queue(|queue| queue.put_back(self.ticket));
    }
}

impl<S: Subject> Drop for WaiterGuard<S> {
    fn drop(&mut self) {
        let passes_on = self.passes_on;
        self.leave(Departure::GaveUp { passes_on }, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Nothing;

    impl Subject for Nothing {
        type Outcome = ();
        type Offer = std::convert::Infallible;
    }

    fn key() -> WaitKey {
        WaitKey {
            kind: "k",
            name: LockName::new(None, "n").unwrap(),
        }
    }

    #[test]
    fn the_waiters_of_a_name_are_one_while_they_are_used_and_forgotten_after() {
        let map = WaiterMap::<Nothing>::new(&Arc::default());
        let waiters = map.waiters(key());
        assert!(Arc::ptr_eq(&waiters, &map.waiters(key())));
        assert_eq!(map.len(), 1);
        drop(waiters);
        assert_eq!(map.len(), 0);
    }

    #[test]
    fn a_queue_whose_last_reference_goes_while_another_comes_leaves_no_trace() {
        let map = WaiterMap::<Nothing>::new(&Arc::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let map = Arc::clone(&map);
                std::thread::spawn(move || {
                    for _ in 0..50_000 {
                        let waiters = map.waiters(key());
                        // In use: each caller gets the same queue.
                        assert!(Arc::ptr_eq(&waiters, &map.waiters(key())));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(map.len(), 0);
    }
}
