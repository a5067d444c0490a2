//! Waiters that have a place of their own in a queue in Redis.
//!
//! ```text
//! acquire ──sits down──▶ Room ──who is next──▶ its Line ──▶ acquire tries
//!                         ▲ ▲
//!       announcements ────┘ └──── beats (one call a room, several a second at most)
//! ```
//!
//! Whoever waits has queued by one call and then sleeps. It is called when the announcement to its
//! own channel comes, or when a beat says that it is next; nobody else tries or polls. A room is
//! all that one client has waiting for one name: one subscription to a pattern, and one beat that
//! says that the client is alive, whatever the number of its waiters.

mod room;
mod seats;
mod task;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use self::room::Room;
pub(super) use self::room::Seat;
pub(super) use self::task::run;
use super::hold::Waiting;
use super::signal::Signal;
use crate::name::{ClientId, LockName};
use crate::shim::{Mutex, lock};
use crate::wire::Recipe;

/// The rooms of a client, and the signal of the task that beats for them.
pub(super) struct Rooms {
    client: ClientId,
    map: Mutex<HashMap<LockName, Weak<Room>>>,
    /// To be read without the lock on the way of every lock of another kind.
    used: AtomicBool,
    pub(super) signal: Signal,
}

impl Rooms {
    pub(super) fn new(client: ClientId) -> Self {
        Self {
            client,
            map: Mutex::default(),
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
        Some((self.room(recipe).sit(number, &line), line))
    }

    /// The room of a name, made where there is none.
    fn room(self: &Arc<Self>, recipe: &Arc<dyn Recipe>) -> Arc<Room> {
        let mut map = lock(&self.map);
        let known = map.entry(recipe.name().clone()).or_default();
        let room = known.upgrade().unwrap_or_else(|| {
            let room = Arc::new(Room::new(self, recipe));
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

    /// Whether anybody ever waited.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn all(&self) -> Vec<Arc<Room>> {
        lock(&self.map).values().filter_map(Weak::upgrade).collect()
    }

    /// The rooms whose beat is due, and when the next is.
    fn due(&self, now: Instant) -> (Vec<Arc<Room>>, Option<Instant>) {
        let mut due = self.all();
        let next = due.iter().filter_map(|room| room.due()).min();
        due.retain(|room| room.due().is_some_and(|at| at <= now));
        (due, next)
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
