//! The waiters of one client for one fair lock.
//!
//! After every change of their queue, the time of the next beat is written to the schedule under the
//! queue's mutex.
//!
//! A head that was told that it is next, or that it has the lock, is withdrawn before a beat if it was not
//! polled for the waiter time-out. Its number is then released like that of a dropped future. Removal from
//! the list decides the race: the waiter removes itself before it returns a guard. A waiter that finds
//! itself withdrawn queues again under another number.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::FairMap;
use super::queue::{BeatRequest, FairWaitQueue, SOON};
use crate::clock;
use crate::connection::Message;
use crate::engine::hub::{ChannelListener, Subscription};
use crate::engine::wait::{Health, Seat};
use crate::name::LockName;
use crate::shim::{Mutex, lock};
use crate::wire::{Beat, FairPlace, FairQueue, Recipe};

pub(crate) struct FairWaiters {
    pub(super) map: Arc<FairMap>,
    recipe: Arc<dyn Recipe>,
    /// A reference to this value, and its number in the schedule.
    weak: Weak<Self>,
    pub(super) id: u64,
    queue: Mutex<FairWaitQueue<Arc<Seat>>>,
    /// The subscriptions to the channels of the first waiters, on which other clients announce turns. By
    /// owner number.
    channels: Mutex<BTreeMap<u64, Subscription>>,
}

impl FairWaiters {
    pub(super) fn new(map: &Arc<FairMap>, recipe: &Arc<dyn Recipe>, id: u64) -> Arc<Self> {
        Arc::new_cyclic(|weak| Self {
            map: Arc::clone(map),
            recipe: Arc::clone(recipe),
            weak: Weak::clone(weak),
            id,
            queue: Mutex::default(),
            channels: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &LockName {
        self.recipe.name()
    }

    pub(super) fn keys(&self) -> Option<&FairQueue> {
        self.recipe.queue()
    }

    /// Withdraws waiters that were told that they are next, or have the lock, and were not polled for the
    /// waiter time-out. They enter again when they are polled.
    pub(super) fn withdraw(&self, now: Instant) {
        let patience = self.keys().map(|keys| keys.alive);
        let Some(before) = patience.and_then(|patience| now.checked_sub(patience)) else {
            return;
        };
        for number in self.update(|queue| queue.withdraw(|seat| seat.hangs(before))) {
            let lock = self.name().as_str();
            tracing::debug!(lock, number, "withdrawn, since its future is not polled");
            self.map.withdraw(&self.recipe, number);
        }
    }

    fn beat_every(&self) -> Duration {
        self.keys().map_or(SOON, FairQueue::beat_every)
    }

    /// The polling fallback: the interval after which the head looks, or all if turns cannot be received.
    fn poll_within(&self, spread: f64) -> Duration {
        self.map.poll_interval.mul_f64(1.0 + spread)
    }

    /// Changes the queue, and moves the next beat in the schedule accordingly.
    fn update<T>(&self, change: impl FnOnce(&mut FairWaitQueue<Arc<Seat>>) -> T) -> T {
        let mut queue = lock(&self.queue);
        let before = queue.due();
        let done = change(&mut queue);
        let wake = match (before, queue.due()) {
            (before, due) if before == due => false,
            (_, Some(at)) => {
                let waiters = Weak::clone(&self.weak);
                lock(&self.map.schedule).set(self.id, at, waiters)
            }
            (_, None) => {
                lock(&self.map.schedule).remove(self.id);
                false
            }
        };
        drop(queue);
        if wake {
            self.map.signal.notify();
        }
        done
    }

    /// Adds the waiter of this owner number.
    pub(super) fn enter(self: &Arc<Self>, number: u64, lease: Duration) -> FairTicket {
        // Whether turns can be received is not known yet.
        let poll = self.poll_within(fastrand::f64());
        let due = clock::after(clock::now(), self.beat_every().min(poll));
        let seat = Arc::new(Seat::new(number));
        self.update(|queue| queue.enter(number, Arc::clone(&seat), lease, due));
        FairTicket {
            waiters: Arc::clone(self),
            seat,
        }
    }

    /// The seats of all waiters.
    pub(super) fn seats(&self) -> Vec<Arc<Seat>> {
        lock(&self.queue).seats()
    }

    /// Subscribes to the channels of the waiters for which foreign clients may publish there, and ends the
    /// subscriptions of waiters that have left.
    fn subscribe_oldest(self: &Arc<Self>) {
        let mut channels = lock(&self.channels);
        let oldest = lock(&self.queue).with_channels();
        if oldest.is_empty() && channels.is_empty() {
            return;
        }
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut *channels)
            .into_iter()
            .partition(|(number, _)| oldest.contains(number));
        *channels = kept;
        for number in oldest {
            let (Some(keys), false) = (self.keys(), channels.contains_key(&number)) else {
                continue;
            };
            let FairMap { client, hub, .. } = &*self.map;
            let channel = keys.channel_of(&client.hold_id(number));
            let subscription = Subscription::brief();
            subscription.start(hub, &channel, self);
            channels.insert(number, subscription);
        }
        drop(channels);
        // With no mutex held, since this takes the hub's.
        drop(ended);
    }

    /// Asks Redis for the head: earlier announcements may have been missed.
    pub(super) fn beat_now(&self) {
        // A dropped ticket may cause this.
        let now = clock::now_in_drop();
        self.update(|queue| queue.ask(now));
    }

    pub(super) fn has(&self, number: u64) -> bool {
        lock(&self.queue).seat_of(number).is_some()
    }

    /// The waiter of this number is next. It tries now, or a beat looks when the lease of the holder ends,
    /// in `left`. Returns whether the number is one of these waiters.
    pub(in crate::engine) fn is_next(&self, number: u64, left: Option<Duration>) -> bool {
        let now = clock::now();
        let Some(left) = left else {
            let seat = lock(&self.queue).seat_of(number);
            return seat.inspect(|seat| seat.notify(now)).is_some();
        };
        let over = clock::after(now, after_expiry(left));
        self.update(|queue| queue.is_next(number, over))
    }

    /// The waiters that may be next, and their leases.
    pub(in crate::engine) fn next_in_line(&self) -> Vec<(u64, Duration)> {
        lock(&self.queue).next_in_line()
    }

    /// A release that was sent at this time gave the lock to the waiter of this number.
    pub(in crate::engine) fn grant(&self, number: u64, sent: Instant) {
        let seat = lock(&self.queue).grant(number, sent);
        if let Some(seat) = seat {
            seat.notify(clock::now());
        }
    }

    /// Forgets grants that were not taken yet: those waiters ask Redis.
    pub(in crate::engine) fn revoke(&self) {
        lock(&self.queue).revoke(clock::now());
    }

    /// A turn was announced for a number without a ticket.
    pub(super) fn unclaimed(&self) {
        let now = clock::now();
        self.update(|queue| queue.unclaimed(now));
    }

    /// A beat begins; `None` if no waiter is queued.
    pub(super) fn begin_beat(&self, now: Instant) -> Option<BeatRequest> {
        let until = clock::after(now, self.beat_every());
        let request = self.update(|queue| queue.begin_beat(now, until))?;
        if !request.left_over.is_empty() {
            tracing::debug!(
                lock = self.name().as_str(),
                waiters = request.left_over.len(),
                "still queued though nobody waits; taken out"
            );
        }
        Some(request)
    }

    /// A beat was answered. `spread`, from 0 to 1, varies the time until the next one, so that processes do
    /// not send beats together.
    pub(super) fn beat_answered(&self, beat: &Beat, spread: f64, now: Instant) {
        let client = &self.map.client;
        let head = beat.head.as_ref().and_then(|head| client.number_of(head));
        // A number without a ticket here may have one under the other name of the same queue.
        let head = head.filter(|&number| self.has(number) || !self.map.twin_has(self, number));
        let dropped = &beat.missing;
        let every = self.beat_every().mul_f64(0.9 + 0.1 * spread);
        let soon = (!dropped.is_empty()).then_some(SOON);
        let looks = [Some(self.poll_within(spread)), beat.lease.map(after_expiry)];
        let looks = looks.into_iter().flatten();
        let deaf = !self.map.hub.hears(&self.map.channel);
        let woken = self.update(|queue| {
            let woken = queue.reported(head, beat.is_free, dropped, now);
            let looks = looks.filter(|_| deaf || queue.has_head());
            let pause = looks.chain(soon).fold(every, Duration::min);
            queue.beat_answered(now, clock::after(now, pause));
            woken
        });
        if let Some(waiters) = self.weak.upgrade() {
            waiters.subscribe_oldest();
        }
        if !dropped.is_empty() {
            tracing::debug!(
                lock = self.name().as_str(),
                waiters = dropped.len(),
                "not queued any more; they queue again"
            );
        }
        woken.iter().for_each(|seat| seat.notify(now));
    }

    /// Redis refused a beat for good: the oldest waiters get the reason from their own tries.
    pub(super) fn beat_refused(&self, now: Instant) {
        let pause = self.beat_every().min(self.poll_within(fastrand::f64()));
        let woken = self.update(|queue| {
            queue.beat_answered(now, clock::after(now, pause));
            queue.oldest_seats()
        });
        woken.iter().for_each(|seat| seat.notify(now));
    }

    /// A beat did not reach Redis. While beats fail, the head tries on its own every poll interval: its
    /// calls may use another connection.
    pub(super) fn beat_failed(&self, now: Instant) {
        let again = clock::after(now, self.beat_every().min(SOON));
        let fallback = clock::after(now, self.poll_within(fastrand::f64()));
        let woken = self.update(|queue| queue.beat_failed(now, again, fallback));
        if let Some(seat) = woken {
            seat.notify(now);
        }
    }
}

/// Redis expires keys by the millisecond, so one more millisecond.
fn after_expiry(left: Duration) -> Duration {
    left + Duration::from_millis(1)
}

impl ChannelListener for FairWaiters {
    fn confirmed(&self) {
        self.beat_now();
    }

    fn heard(&self, message: &Message, _pause: Option<Duration>) {
        let number = message.channel.rsplit_once(':');
        let Some(Ok(number)) = number.map(|(_, number)| number.parse()) else {
            return;
        };
        if !self.is_next(number, None) {
            self.unclaimed();
        }
    }
}

impl Drop for FairWaiters {
    fn drop(&mut self) {
        self.map.forget(self);
    }
}

/// One waiter's entry, from before its first call until after its last; it leaves when dropped.
pub(crate) struct FairTicket {
    waiters: Arc<FairWaiters>,
    pub(crate) seat: Arc<Seat>,
}

impl FairTicket {
    /// Redis has reported that the waiter is queued. `look_at`: the waiter is the head, and a beat looks
    /// again at this time. From now on the waiter is woken when it may get the lock.
    pub(crate) fn queued(&self, place: FairPlace, look_at: Option<Instant>) {
        let waiters = &self.waiters;
        let is_first = waiters.update(|queue| queue.is_queued(self.seat.number, place, look_at));
        waiters.map.listen();
        // The first beat finds waiters in Redis that this client no longer has.
        if is_first && waiters.map.is_listening() {
            waiters.beat_now();
        }
        waiters.subscribe_oldest();
    }

    /// When the release was sent that gave the lock to the waiter, if one did since `asked`.
    pub(crate) fn take_grant(&self, asked: Option<Instant>) -> Option<Instant> {
        lock(&self.waiters.queue).take_grant(self.seat.number, asked)
    }

    /// Leaves. Returns whether it was not [withdrawn](FairWaiters::withdraw) before.
    pub(crate) fn leave(&self) -> bool {
        self.waiters.update(|queue| queue.leave(self.seat.number))
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        !self.waiters.has(self.seat.number)
    }

    /// Whether Redis answers the waiter, or the beats while it only waits.
    pub(crate) fn health(&self) -> Health {
        match self.seat.health() {
            Health::Answering => lock(&self.waiters.queue).health,
            health => health,
        }
    }
}

impl Drop for FairTicket {
    fn drop(&mut self) {
        self.leave();
        self.waiters.subscribe_oldest();
        self.waiters.map.left();
    }
}
