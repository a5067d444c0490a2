//! The waiters of one client for one name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Rooms;
use crate::clock;
use crate::engine::hub::{Attachment, Hub, Listener, Topic};
use crate::engine::line::Health;
use crate::engine::lines::Line;
use crate::name::{LockName, OwnerId};
use crate::shim::{Mutex, lock};
use crate::wire::{Beat, Call, Recipe};

/// So many of the oldest waiters are asked after in a beat: other clients drop from the front.
const ASKED_AFTER: usize = 50;
/// After a beat that failed, or that found waiters dropped, the next comes soon.
const SOON: Duration = Duration::from_millis(250);

pub(crate) struct Room {
    rooms: Arc<Rooms>,
    recipe: Arc<dyn Recipe>,
    seats: Mutex<Seats<Arc<Line>>>,
    /// Keeps the pattern subscribed while anybody waits.
    attachment: Mutex<Option<Attachment>>,
}

/// A waiter, and how it is called.
#[derive(Debug)]
struct Sitter<L> {
    line: L,
    /// Once Redis has said that it is queued: its turn in `Seats::queued`.
    queued: Option<u64>,
}

/// Who waits, and when Redis is to hear of it next. Pure.
#[derive(Debug)]
struct Seats<L> {
    /// By owner number.
    map: BTreeMap<u64, Sitter<L>>,
    /// The numbers of those that are queued, in their order.
    queued: BTreeMap<u64, u64>,
    turns: u64,
    /// Who was told last that it is next.
    next: Option<u64>,
    due: Option<Instant>,
    /// Whether Redis answers beats.
    health: Health,
}

impl<L> Default for Seats<L> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            queued: BTreeMap::new(),
            turns: 0,
            next: None,
            due: None,
            health: Health::Answering,
        }
    }
}

impl<L: Clone> Seats<L> {
    /// Answers whether it is the first: beats begin.
    fn sit(&mut self, number: u64, line: L, due: Instant) -> bool {
        let first = self.map.is_empty();
        let queued = None;
        self.map.insert(number, Sitter { line, queued });
        if first {
            self.due = Some(due);
        }
        first
    }

    fn leave(&mut self, number: u64) {
        let left = self.map.remove(&number);
        if let Some(turn) = left.and_then(|sitter| sitter.queued) {
            self.queued.remove(&turn);
        }
        if self.map.is_empty() {
            *self = Self::default();
        }
    }

    fn is_queued(&mut self, number: u64) {
        if let Some(sitter) = self.map.get_mut(&number)
            && sitter.queued.is_none()
        {
            self.turns += 1;
            sitter.queued = Some(self.turns);
            self.queued.insert(self.turns, number);
        }
    }

    /// Those to ask after: others have their first call under way.
    fn oldest(&self) -> impl Iterator<Item = u64> {
        self.queued.values().copied().take(ASKED_AFTER)
    }

    /// Puts the next beat off.
    fn rest(&mut self, until: Instant) {
        self.due = self.due.map(|_| until);
    }

    /// Takes in the numbers that a beat told: who is next, if it is one of these, and who was
    /// dropped. Answers whom to call.
    fn told(&mut self, next: Option<u64>, is_free: bool, dropped: &[u64]) -> Vec<L> {
        let mut called = Vec::new();
        for number in dropped {
            if let Some(sitter) = self.map.get_mut(number) {
                if let Some(turn) = sitter.queued.take() {
                    self.queued.remove(&turn);
                }
                called.push(sitter.line.clone());
            }
        }
        // Once it has looked it has a timer of its own, and is called by announcements.
        if let Some(number) = next
            && (is_free || self.next != next)
            && let Some(sitter) = self.map.get(&number)
        {
            called.push(sitter.line.clone());
        }
        self.next = next;
        called
    }
}

impl Room {
    pub(super) fn new(rooms: &Arc<Rooms>, recipe: &Arc<dyn Recipe>) -> Self {
        Self {
            rooms: Arc::clone(rooms),
            recipe: Arc::clone(recipe),
            seats: Mutex::default(),
            attachment: Mutex::new(None),
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
    pub(crate) fn sit(self: &Arc<Self>, number: u64, line: &Arc<Line>) -> Seat {
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
        let mut attachment = lock(&self.attachment);
        if attachment.is_some() {
            return;
        }
        let pattern = queue.channels_of(&self.rooms.client);
        let (attached, confirmed) = hub.attach(Topic::Pattern(&pattern), Arc::clone(self) as _);
        *attachment = Some(attached);
        drop(attachment);
        if confirmed {
            self.beat_now();
        }
    }

    /// What was announced up to now may not have been heard: asks who is next.
    fn beat_now(&self) {
        let mut seats = lock(&self.seats);
        if seats.due.is_some() {
            seats.due = Some(clock::now());
            drop(seats);
            self.rooms.signal.notify();
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        lock(&self.seats).due
    }

    /// The call of a beat; `None` where nobody is queued.
    pub(super) fn beat(&self, now: Instant) -> Option<Call> {
        let queue = self.recipe.queue()?;
        let client = &self.rooms.client;
        let mut seats = lock(&self.seats);
        seats.rest(clock::after(now, self.beat_every()));
        let owners: Vec<OwnerId> = seats.oldest().map(|number| client.owner(number)).collect();
        if !owners.is_empty() && seats.health == Health::Answering {
            seats.health = Health::Asking(now);
        }
        drop(seats);
        (!owners.is_empty()).then(|| queue.beat(client, owners.iter()))
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
        let called = seats.told(next, beat.is_free, &dropped);
        let pause = match dropped.is_empty() {
            true => self.beat_every(),
            false => self.beat_every().min(SOON),
        };
        seats.rest(clock::after(now, pause));
        seats.health = Health::Answering;
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
        seats.rest(clock::after(now, self.beat_every()));
        seats.health = Health::Answering;
        let line = |number| Some(Arc::clone(&seats.map.get(&number)?.line));
        let called: Vec<_> = seats.oldest().filter_map(line).collect();
        drop(seats);
        called.iter().for_each(|line| line.notify());
    }

    /// A beat did not reach Redis.
    pub(super) fn untold(&self, now: Instant) {
        let mut seats = lock(&self.seats);
        let pause = self.beat_every().min(SOON);
        seats.rest(clock::after(now, pause));
        seats.health = Health::Failing;
    }
}

impl Listener for Room {
    fn notify(&self) {
        self.beat_now();
    }

    fn heard(&self, channel: &str) {
        let number = channel.rsplit_once(':').map(|(_, number)| number.parse());
        let Some(Ok(number)) = number else {
            return;
        };
        let sitter = |seats: &Seats<Arc<Line>>| Some(Arc::clone(&seats.map.get(&number)?.line));
        let line = sitter(&lock(&self.seats));
        if let Some(line) = line {
            line.notify();
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
        lock(&self.room.seats).is_queued(self.number);
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
        let mut attachment = lock(&self.room.attachment);
        let mut seats = lock(&self.room.seats);
        seats.leave(self.number);
        // Out of the locks before it is dropped: it takes the hub's.
        let unneeded = match seats.map.is_empty() {
            true => attachment.take(),
            false => None,
        };
        drop((seats, attachment));
        drop(unneeded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_next_is_called_once_until_the_lock_is_free() {
        let now = Instant::now();
        let mut seats = Seats::default();
        assert!(seats.sit(1, "a", now));
        assert!(!seats.sit(2, "b", now));
        assert_eq!(seats.told(Some(1), false, &[]), ["a"]);
        assert!(seats.told(Some(1), false, &[]).is_empty());
        assert_eq!(seats.told(Some(1), true, &[]), ["a"]);
        assert_eq!(seats.told(Some(2), false, &[]), ["b"]);
        // Somebody of another client.
        assert!(seats.told(None, true, &[]).is_empty());
    }

    #[test]
    fn who_was_dropped_is_called() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.sit(2, "b", now);
        assert_eq!(seats.told(None, false, &[1, 2, 3]), ["a", "b"]);
    }

    /// The same few would be asked after for ever, and the others never be missed.
    #[test]
    fn who_queues_again_is_behind_those_who_are_queued() {
        let now = Instant::now();
        let mut seats = Seats::default();
        for number in 1..=3 {
            seats.sit(number, "line", now);
            seats.is_queued(number);
        }
        seats.told(None, false, &[1]);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [2, 3]);
        seats.is_queued(1);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [2, 3, 1]);
        seats.leave(2);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn beats_end_with_the_last_waiter() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        assert_eq!(seats.due, Some(now));
        seats.leave(1);
        assert_eq!(seats.due, None);
    }
}
