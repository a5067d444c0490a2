//! The waiters of one client for one name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Rooms;
use super::seats::{Question, Seats};
use crate::clock;
use crate::engine::hold::Waiting;
use crate::engine::hub::{Hub, Listener, Subscription, Topic};
use crate::engine::wait::Health;
use crate::name::{LockName, OwnerId};
use crate::shim::{Mutex, lock};
use crate::wire::{Beat, Call, Recipe};

/// After a beat that failed, or that found waiters dropped, the next comes soon.
const SOON: Duration = Duration::from_millis(250);

pub(crate) struct Room {
    rooms: Arc<Rooms>,
    recipe: Arc<dyn Recipe>,
    seats: Mutex<Seats<Arc<Waiting>>>,
    /// To the pattern of its waiters' channels, while anybody waits.
    subscription: Subscription,
}

impl Room {
    pub(super) fn new(rooms: &Arc<Rooms>, recipe: &Arc<dyn Recipe>) -> Self {
        Self {
            rooms: Arc::clone(rooms),
            recipe: Arc::clone(recipe),
            seats: Mutex::default(),
            subscription: Subscription::default(),
        }
    }

    pub(super) fn name(&self) -> &LockName {
        self.recipe.name()
    }

    fn beat_every(&self) -> Duration {
        let queue = self.recipe.queue();
        queue.map_or(SOON, |queue| queue.beat_every())
    }

    /// Takes a seat for the waiter of this owner number, who is called through `line`.
    pub(crate) fn sit(self: &Arc<Self>, number: u64, line: &Arc<Waiting>) -> Seat {
        let due = clock::after(clock::now(), self.beat_every());
        let first = lock(&self.seats).sit(number, Arc::clone(line), due);
        if first {
            self.rooms.signal.notify();
        }
        Seat {
            room: Arc::clone(self),
            number,
        }
    }

    fn listen(self: &Arc<Self>, hub: &Arc<Hub>) {
        let Some(queue) = self.recipe.queue() else {
            return;
        };
        let pattern = queue.channels_of(&self.rooms.client);
        self.subscription.start(hub, Topic::Pattern(&pattern), self);
    }

    /// What was announced up to now may not have been heard: asks who is next.
    fn beat_now(&self) {
        if lock(&self.seats).ask(clock::now()) {
            self.rooms.signal.notify();
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        lock(&self.seats).due()
    }

    /// The call of a beat; `None` where nobody is queued.
    pub(super) fn beat(&self, now: Instant) -> Option<Call> {
        let queue = self.recipe.queue()?;
        let client = &self.rooms.client;
        let until = clock::after(now, self.beat_every());
        let Question { gone, oldest } = lock(&self.seats).begin(now, until)?;
        let owners = |numbers: Vec<u64>| -> Vec<OwnerId> {
            numbers.iter().map(|&number| client.owner(number)).collect()
        };
        let (gone, oldest) = (owners(gone), owners(oldest));
        if !gone.is_empty() {
            tracing::debug!(
                lock = self.name().as_str(),
                waiters = gone.len(),
                "still queued though nobody waits; taken out"
            );
        }
        Some(queue.beat(client, &gone, &oldest))
    }

    /// A beat was answered.
    pub(super) fn told(&self, beat: &Beat, now: Instant) {
        let client = &self.rooms.client;
        let next = beat.head.as_ref().and_then(|head| client.number_of(head));
        let dropped: Vec<u64> = beat
            .missing
            .iter()
            .filter_map(|owner| client.number_of(owner))
            .collect();
        let mut seats = lock(&self.seats);
        let called = seats.told(next, beat.is_free, &dropped, now);
        let pause = match dropped.is_empty() {
            true => self.beat_every(),
            false => self.beat_every().min(SOON),
        };
        seats.rest(clock::after(now, pause), Health::Answering);
        drop(seats);
        if !dropped.is_empty() {
            tracing::debug!(
                lock = self.name().as_str(),
                waiters = dropped.len(),
                "not queued any more; they queue again"
            );
        }
        called.iter().for_each(|line| line.notify());
    }

    /// Redis refused a beat for good: the oldest waiters learn why from tries of their own.
    pub(super) fn refused(&self, now: Instant) {
        let mut seats = lock(&self.seats);
        seats.rest(clock::after(now, self.beat_every()), Health::Answering);
        let called = seats.oldest_lines();
        drop(seats);
        called.iter().for_each(|line| line.notify());
    }

    /// A beat did not reach Redis.
    pub(super) fn untold(&self, now: Instant) {
        let until = clock::after(now, self.beat_every().min(SOON));
        lock(&self.seats).rest(until, Health::Failing);
    }
}

impl Listener for Room {
    fn confirmed(&self) {
        self.beat_now();
    }

    fn heard(&self, channel: &str) {
        let number = channel.rsplit_once(':').map(|(_, number)| number.parse());
        let Some(Ok(number)) = number else {
            return;
        };
        let line = lock(&self.seats).heard(number, clock::now());
        match line {
            Some(line) => line.notify(),
            None => self.rooms.signal.notify(),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.rooms.forget(self);
    }
}

/// A seat in a room, left when dropped.
pub(crate) struct Seat {
    room: Arc<Room>,
    number: u64,
}

impl Seat {
    /// Redis has said that the waiter is queued.
    pub(crate) fn queued(&self) {
        let is_due = lock(&self.room.seats).is_queued(self.number, clock::now());
        if is_due {
            self.room.rooms.signal.notify();
        }
    }

    /// Whether Redis answers the beats for those who only wait.
    pub(crate) fn health(&self) -> Health {
        lock(&self.room.seats).health
    }

    /// Listens to the channels of this client's waiters.
    pub(crate) fn listen(&self, hub: &Arc<Hub>) {
        self.room.listen(hub);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.subscription.end_if(|| {
            let mut seats = lock(&self.room.seats);
            seats.leave(self.number);
            seats.is_empty()
        });
    }
}
