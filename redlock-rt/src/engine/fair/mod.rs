//! Waiters that have a place of their own in a queue in Redis.
//!
//! ```text
//! acquire ──takes a seat──▶ Room ──who is next──▶ its Waiters ──▶ acquire tries
//!                            ▲ ▲
//!          announcements ────┘ └──── beats (one call for many rooms)
//! ```
//!
//! A waiter queues by one call and then sleeps. The waiter is called when its turn is announced, or
//! when a beat says that it is next and the lock is free. A room is all that one client has waiting for
//! one name: one beat says that the client is alive, whatever the number of its waiters. A room with the
//! waiter that is next looks by its beat when the holder's lease is over, and every poll interval. Beats
//! of up to a hundred rooms go in one call, as renewals do.
//!
//! Clients of this crate announce all turns of a client on one channel of that client. Redisson
//! announces turns on a channel of the waiter: where a Redisson client has the lock or is queued, a
//! room listens to the channels of its oldest waiters.
//!
//! # Lock order
//!
//! The attachment to the client's channel; a room's ears; the map of the rooms, or a room's seats; the
//! schedule.

mod room;
mod seats;
mod task;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use self::room::Room;
pub(super) use self::room::Seat;
use self::seats::Question;
pub(super) use self::task::run;
use super::hold::Waiting;
use super::hub::{Hub, Listener, Subscription};
use super::signal::Signal;
use super::watchdog::Schedule;
use crate::clock;
use crate::connection::Message;
use crate::name::{ClientId, LockName};
use crate::shim::{Mutex, lock};
use crate::wire::keys::{fair_twin, wake_channel};
use crate::wire::{Recipe, Turn};

/// The rooms of one call at most: few enough not to hold up the server.
const MOST_ROOMS: usize = 100;
/// No more rooms come into a call that asks after so many owners.
const MOST_OWNERS: usize = 400;

/// The rooms of a client, and the signal of the task that beats for them.
pub(super) struct Rooms {
    client: ClientId,
    hub: Arc<Hub>,
    /// Where clients of ours announce the turns of this one's waiters.
    channel: String,
    /// To that channel, while anybody waits in any room.
    wake: Subscription,
    /// Whether it is known that the channel is heard, or that Redis does not allow it: a beat that is sent
    /// now is none too early.
    settled: AtomicBool,
    /// After so long a room looks whose waiter is next; varied by up to as much again.
    poll_interval: Duration,
    /// Seats in all rooms.
    seated: AtomicUsize,
    map: Mutex<HashMap<LockName, Weak<Room>>>,
    /// How many rooms there were.
    numbers: AtomicU64,
    /// When each room's beat is due.
    schedule: Mutex<Schedule<Weak<Room>>>,
    /// To be read without the lock on the way of every lock of another kind.
    used: AtomicBool,
    pub(super) signal: Signal,
}

impl Rooms {
    pub(super) fn new(client: ClientId, hub: &Arc<Hub>, poll_interval: Duration) -> Self {
        Self {
            hub: Arc::clone(hub),
            channel: wake_channel(&client),
            wake: Subscription::default(),
            settled: AtomicBool::new(false),
            poll_interval,
            seated: AtomicUsize::new(0),
            client,
            map: Mutex::default(),
            numbers: AtomicU64::new(0),
            schedule: Mutex::default(),
            used: AtomicBool::new(false),
            signal: Signal::default(),
        }
    }

    /// A seat for the waiter of this owner number, who is called through the line; `None` for a
    /// kind without a queue.
    pub(super) fn sit(
        self: &Arc<Self>,
        recipe: &Arc<dyn Recipe>,
        number: u64,
        line: impl FnOnce() -> Arc<Waiting>,
    ) -> Option<(Seat, Arc<Waiting>)> {
        recipe.queue()?;
        self.used.store(true, Ordering::Release);
        let line = line();
        self.seated.fetch_add(1, Ordering::AcqRel);
        Some((self.room(recipe).sit(number, &line), line))
    }

    /// The room of a name, made where there is none.
    fn room(self: &Arc<Self>, recipe: &Arc<dyn Recipe>) -> Arc<Room> {
        let mut map = lock(&self.map);
        let known = map.entry(recipe.name().clone()).or_default();
        let room = known.upgrade().unwrap_or_else(|| {
            let id = self.numbers.fetch_add(1, Ordering::Relaxed);
            let room = Room::new(self, recipe, id);
            *known = Arc::downgrade(&room);
            room
        });
        drop(map);
        room
    }

    fn forget(&self, room: &Room) {
        let mut map = lock(&self.map);
        let name = room.name();
        // Another room of this name may have been made since the last reference went.
        if map
            .get(name)
            .is_some_and(|known| std::ptr::eq(known.as_ptr(), room))
        {
            map.remove(name);
        }
    }

    fn known(&self, name: &str) -> Option<Arc<Room>> {
        lock(&self.map).get(name)?.upgrade()
    }

    /// Whether the waiter of this number has a seat in the other room that has the queue of this one.
    fn is_beside(&self, room: &Room, number: u64) -> bool {
        let twin = fair_twin(room.name().as_str());
        let twin = twin.and_then(|name| self.known(&name));
        twin.is_some_and(|twin| twin.has(number))
    }

    /// Listens to the client's channel. Who has taken a seat by now looks again when that is confirmed;
    /// who does so later misses nothing, since it is not queued yet.
    fn listen(self: &Arc<Self>) {
        self.wake.start(&self.hub, &self.channel, self);
    }

    /// Somebody has left its seat.
    fn left(&self) {
        self.wake.end_if(|| {
            let was_last = self.seated.fetch_sub(1, Ordering::AcqRel) == 1;
            if was_last {
                self.settled.store(false, Ordering::Release);
            }
            was_last
        });
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// All rooms that have seats by now look again; those that get some later ask by themselves.
    fn settle(&self) {
        self.settled.store(true, Ordering::Release);
        self.all().iter().for_each(|room| room.beat_now());
    }

    /// Whether anybody ever waited.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn all(&self) -> Vec<Arc<Room>> {
        lock(&self.map).values().filter_map(Weak::upgrade).collect()
    }

    /// Takes rooms whose beats are due, as many as one call is for, and with them those that are due
    /// within half of the time for which the first has rested: so all that wait come together, whenever
    /// they began, and one that has just looked brings nobody along. Calls for one slot of a cluster
    /// would be cut here.
    fn pick(&self, now: Instant) -> Vec<Asked> {
        let mut batch: Vec<Asked> = Vec::new();
        let (mut horizon, mut owners) = (now, 0);
        while batch.len() < MOST_ROOMS && owners < MOST_OWNERS {
            let due = lock(&self.schedule).pop_due(horizon);
            let Some((id, weak)) = due else { break };
            let Some(room) = weak.upgrade() else { continue };
            if room.is_apart() && !batch.is_empty() {
                let _ = lock(&self.schedule).set(id, now, weak);
                break;
            }
            let Some(question) = room.begin(now) else {
                continue;
            };
            if batch.is_empty() {
                horizon = clock::after(now, question.rested / 2);
            }
            owners += question.gone.len() + question.oldest.len();
            let alone = room.is_apart();
            batch.push(Asked::new(room, question));
            if alone {
                break;
            }
        }
        batch
    }
}

impl Listener for Rooms {
    fn confirmed(&self) {
        self.settle();
    }

    fn refused(&self) {
        self.settle();
    }

    fn heard(&self, message: &Message) {
        let Some(Turn { number, name }) = Turn::decode(&message.payload) else {
            return;
        };
        let twin = fair_twin(name);
        let names = [Some(name), twin.as_deref()].into_iter().flatten();
        let rooms: Vec<Arc<Room>> = names.filter_map(|name| self.known(name)).collect();
        if !rooms.iter().any(|room| room.call(number)) {
            rooms.iter().for_each(|room| room.unclaimed());
        }
    }
}

/// A room whose beat is under way. Where no answer is taken in, the next beat comes soon.
struct Asked {
    room: Arc<Room>,
    question: Question,
    answered: bool,
}

impl Asked {
    fn new(room: Arc<Room>, question: Question) -> Self {
        Self {
            room,
            question,
            answered: false,
        }
    }

    /// What came of it is taken in by `act`.
    fn answered(mut self, act: impl FnOnce(&Room)) {
        self.answered = true;
        act(&self.room);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered {
            self.room.untold(clock::now_in_drop());
        }
    }
}

impl AsRef<Signal> for Rooms {
    fn as_ref(&self) -> &Signal {
        &self.signal
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "embedded", not(redlock_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection::{Connector, Dialer, Spawner, Timeouts};
    use crate::engine::hold::key_of;
    use crate::engine::{Config, Engine};
    use crate::wire::{FairTerms, FairWire};

    const S: Duration = Duration::from_secs(1);
    /// A third of which passes between two beats.
    const ALIVE: Duration = Duration::from_secs(30);

    /// Tasks do not run: there is no runtime.
    fn engine() -> Arc<Engine> {
        let server = crate::embedded::Engine::new();
        Engine::new(Config {
            dialer: Dialer::through(Connector::new(move || {
                std::future::ready(Ok(server.connect()))
            })),
            spawner: Spawner::default(),
            timeouts: Timeouts {
                connect: S,
                response: S,
            },
            linger: S,
            poll_interval: S,
            lease: ALIVE,
            namespace: None,
            waiter_timeout: ALIVE,
            flush_on_drop: None,
        })
    }

    /// One who is queued for this name.
    fn queued(engine: &Arc<Engine>, name: usize) -> Seat {
        let name = LockName::new(None, &name.to_string()).expect("digits are a name");
        let terms = FairTerms {
            alive: ALIVE,
            longest: ALIVE,
        };
        let recipe: Arc<dyn Recipe> = Arc::new(FairWire::new(name, terms));
        let number = engine.next_number();
        let key = key_of(&*recipe, Some(number));
        let line = || engine.locks.waiters(key);
        let (seat, _) = engine.rooms.sit(&recipe, number, line).expect("it queues");
        seat.queued(false, None);
        seat
    }

    #[test]
    fn beats_of_names_that_began_at_different_moments_come_together() {
        let engine = engine();
        let started = clock::now();
        let _seats: Vec<Seat> = (0..250).map(|name| queued(&engine, name)).collect();
        assert!(engine.rooms.pick(started).is_empty());
        engine.rooms.known("7").unwrap().beat_now();
        engine.rooms.known("8").unwrap().beat_now();
        // The others are not due in half of their time.
        let asked = engine.rooms.pick(clock::now());
        assert_eq!(asked.len(), 2);
        for one in asked {
            let beat = crate::wire::Beat {
                head: None,
                is_free: false,
                lease: None,
                missing: vec![],
            };
            one.answered(|room| room.told(&beat, 0.0, started));
        }
        // These two are due first, and bring others along.
        let mut batches = vec![engine.rooms.pick(started + ALIVE.mul_f64(0.31))];
        let due = clock::now() + ALIVE / 3;
        batches.extend(std::iter::from_fn(|| {
            let batch = engine.rooms.pick(due);
            (!batch.is_empty()).then_some(batch)
        }));
        let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
    }

    #[test]
    fn a_beat_that_nobody_heard_the_end_of_is_sent_again() {
        let engine = engine();
        let _seat = queued(&engine, 1);
        let room = engine.rooms.known("1").unwrap();
        room.beat_now();
        let asked = engine.rooms.pick(clock::now());
        assert_eq!(asked.len(), 1);
        room.beat_now();
        assert!(
            engine.rooms.pick(clock::now() + S).is_empty(),
            "it is under way"
        );
        // The runtime has ended.
        drop(asked);
        assert_eq!(engine.rooms.pick(clock::now()).len(), 1);
    }

    #[test]
    fn who_is_refused_is_asked_for_alone_until_it_is_answered() {
        let engine = engine();
        let _seats: Vec<Seat> = (0..3).map(|name| queued(&engine, name)).collect();
        let due = clock::now() + ALIVE;
        let refused = engine.rooms.known("1").unwrap();
        refused.refused(clock::now());
        let pick = || {
            let names = engine.rooms.pick(due).into_iter().map(|asked| {
                let name = asked.room.name().as_str().to_owned();
                asked.answered(|room| room.untold(due + ALIVE));
                name
            });
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        let mut calls = [pick(), pick()];
        calls.sort();
        assert_eq!(calls, [vec!["0", "2"], vec!["1"]]);
        assert_eq!(pick(), Vec::<String>::new());
    }
}
