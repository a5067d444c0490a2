//! The waiters of one client for one name.
//!
//! Whatever is done to the seats, the moment of the next beat goes into the schedule under their lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Rooms;
use super::seats::{Question, Seats};
use crate::clock;
use crate::connection::Message;
use crate::engine::hold::Waiting;
use crate::engine::hub::{Listener, Subscription};
use crate::engine::wait::Health;
use crate::name::LockName;
use crate::shim::{Mutex, lock};
use crate::wire::{Beat, FairQueue, Recipe};

/// After a beat that failed, or that found waiters dropped, the next comes soon.
const SOON: Duration = Duration::from_millis(250);

pub(crate) struct Room {
    rooms: Arc<Rooms>,
    recipe: Arc<dyn Recipe>,
    /// Itself, and by which number the schedule knows it.
    weak: Weak<Self>,
    id: u64,
    /// A beat along with others was refused because of this one.
    apart: AtomicBool,
    seats: Mutex<Seats<Arc<Waiting>>>,
    /// To the channels of the oldest waiters, where clients that are not ours announce their turns. By
    /// owner number.
    ears: Mutex<BTreeMap<u64, Subscription>>,
}

impl Room {
    pub(super) fn new(rooms: &Arc<Rooms>, recipe: &Arc<dyn Recipe>, id: u64) -> Arc<Self> {
        Arc::new_cyclic(|weak| Self {
            rooms: Arc::clone(rooms),
            recipe: Arc::clone(recipe),
            weak: Weak::clone(weak),
            id,
            apart: AtomicBool::new(false),
            seats: Mutex::default(),
            ears: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &LockName {
        self.recipe.name()
    }

    pub(super) fn queue(&self) -> Option<&FairQueue> {
        self.recipe.queue()
    }

    pub(super) fn beat_every(&self) -> Duration {
        self.queue().map_or(SOON, FairQueue::beat_every)
    }

    /// Whether it is asked for alone, since a call for several was refused because of it.
    pub(super) fn is_apart(&self) -> bool {
        self.apart.load(Ordering::Relaxed)
    }

    /// Does something to the seats, and has the schedule follow.
    fn seats<T>(&self, act: impl FnOnce(&mut Seats<Arc<Waiting>>) -> T) -> T {
        let mut seats = lock(&self.seats);
        let before = seats.due();
        let done = act(&mut seats);
        let wake = match (before, seats.due()) {
            (before, due) if before == due => false,
            (_, Some(at)) => {
                let room = Weak::clone(&self.weak);
                lock(&self.rooms.schedule).set(self.id, at, room)
            }
            (_, None) => {
                lock(&self.rooms.schedule).remove(self.id);
                false
            }
        };
        drop(seats);
        if wake {
            self.rooms.signal.notify();
        }
        done
    }

    /// Takes a seat for the waiter of this owner number, who is called through `line`.
    pub(crate) fn sit(self: &Arc<Self>, number: u64, line: &Arc<Waiting>) -> Seat {
        let due = clock::after(clock::now(), self.beat_every());
        self.seats(|seats| seats.sit(number, Arc::clone(line), due));
        Seat {
            room: Arc::clone(self),
            number,
        }
    }

    /// Listens to the channels of the oldest waiters where somebody may publish there, and no more to
    /// those of waiters that have left.
    fn tune(self: &Arc<Self>) {
        let mut ears = lock(&self.ears);
        let heads = lock(&self.seats).heads();
        if heads.is_empty() && ears.is_empty() {
            return;
        }
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut *ears)
            .into_iter()
            .partition(|(number, _)| heads.contains(number));
        *ears = kept;
        for number in heads {
            let (Some(queue), false) = (self.recipe.queue(), ears.contains_key(&number)) else {
                continue;
            };
            let Rooms { client, hub, .. } = &*self.rooms;
            let channel = queue.channel_of(&client.hold_id(number));
            let ear = Subscription::brief();
            ear.start(hub, &channel, self);
            ears.insert(number, ear);
        }
        drop(ears);
        // With no lock held: this takes the hub's.
        drop(ended);
    }

    /// What was announced up to now may not have been heard: asks who is next.
    pub(super) fn beat_now(&self) {
        // Who leaves a seat may bring it about.
        let now = clock::now_in_drop();
        self.seats(|seats| seats.ask(now));
    }

    /// Whether the waiter of this number is one of this room.
    pub(super) fn has(&self, number: u64) -> bool {
        lock(&self.seats).line(number).is_some()
    }

    /// It is the turn of the waiter of this number. Returns whether it is one of this room.
    pub(super) fn call(&self, number: u64) -> bool {
        let line = lock(&self.seats).line(number);
        line.inspect(|line| line.notify()).is_some()
    }

    /// A turn was announced, and nobody waits as the one whose it is.
    pub(super) fn unclaimed(&self) {
        let now = clock::now();
        self.seats(|seats| seats.unclaimed(now));
    }

    /// A beat begins; `None` where nobody is queued.
    pub(super) fn begin(&self, now: Instant) -> Option<Question> {
        let until = clock::after(now, self.beat_every());
        let question = self.seats(|seats| seats.begin(now, until))?;
        if !question.gone.is_empty() {
            tracing::debug!(
                lock = self.name().as_str(),
                waiters = question.gone.len(),
                "still queued though nobody waits; taken out"
            );
        }
        Some(question)
    }

    /// A beat was answered. The time until the next is varied by `spread`, from 0 to 1, so that
    /// processes do not come together.
    pub(super) fn told(&self, beat: &Beat, spread: f64, now: Instant) {
        let client = &self.rooms.client;
        let next = beat.head.as_ref().and_then(|head| client.number_of(head));
        // Not one without a task where another name has the same queue.
        let next = next.filter(|&number| self.has(number) || !self.rooms.is_beside(self, number));
        let dropped = &beat.missing;
        let every = self.beat_every().mul_f64(0.9 + 0.1 * spread);
        let soon = (!dropped.is_empty()).then_some(SOON);
        // Redis expires by the millisecond: one more, and the lease is over.
        let over = beat.lease.map(|lease| lease + Duration::from_millis(1));
        let looks = [Some(self.poll_within(spread)), over];
        let called = self.seats(|seats| {
            let called = seats.told(next, beat.is_free, dropped, now);
            let looks = looks.into_iter().flatten().filter(|_| seats.has_next());
            let pause = looks.chain(soon).fold(every, Duration::min);
            seats.rest(now, clock::after(now, pause));
            called
        });
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
        self.apart.store(true, Ordering::Relaxed);
        let pause = self.beat_every().min(self.poll_within(fastrand::f64()));
        let called = self.seats(|seats| {
            seats.rest(now, clock::after(now, pause));
            seats.oldest_lines()
        });
        called.iter().for_each(|line| line.notify());
    }

    /// A beat did not reach Redis. While that goes on whoever is next tries by itself, every poll
    /// interval: its calls take another connection.
    pub(super) fn untold(&self, now: Instant) {
        let again = clock::after(now, self.beat_every().min(SOON));
        let alone = clock::after(now, self.poll_within(fastrand::f64()));
        let called = self.seats(|seats| seats.untold(now, again, alone));
        if let Some(line) = called {
            line.notify();
        }
    }

    /// How long whoever is next goes without a look although nothing was announced.
    fn poll_within(&self, spread: f64) -> Duration {
        self.rooms.poll_interval.mul_f64(1.0 + spread)
    }

    /// Whether a call for several may have it among them.
    pub(super) fn rejoin(&self) {
        self.apart.store(false, Ordering::Relaxed);
    }
}

impl Listener for Room {
    fn confirmed(&self) {
        self.beat_now();
    }

    fn heard(&self, message: &Message) {
        let number = message.channel.rsplit_once(':');
        let Some(Ok(number)) = number.map(|(_, number)| number.parse()) else {
            return;
        };
        if !self.call(number) {
            self.unclaimed();
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
    /// Redis has said that the waiter is queued; `mixed`: in a queue that is not of our clients alone,
    /// or behind a holder that is of another; `look_at`: when to look again where it is next. From now on
    /// it is called when it may have the lock.
    pub(crate) fn queued(&self, mixed: bool, look_at: Option<Instant>) {
        let room = &self.room;
        let is_first = room.seats(|seats| seats.is_queued(self.number, mixed, look_at));
        room.rooms.listen();
        // What Redis still has of this client, and this client has not, is found by the first beat.
        if is_first && room.rooms.is_settled() {
            room.beat_now();
        }
        room.tune();
    }

    /// Whether Redis answers the beats for those who only wait.
    pub(crate) fn health(&self) -> Health {
        lock(&self.room.seats).health
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.seats(|seats| seats.leave(self.number));
        self.room.tune();
        self.room.rooms.left();
    }
}
