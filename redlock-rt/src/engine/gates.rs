//! The gates that this client's tasks wait for, one a channel.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

use super::gate::{GateState, Word};
use super::hub::{Hub, Listener, Subscription, Topic};
use super::waiters::{Health, Ticket};
use crate::clock;
use crate::connection::Fault;
use crate::shim::{Mutex, lock};
use crate::wire::Ended;

/// What all waiters are told.
pub(super) type Outcome = Result<Ended, Fault>;

/// The registry. A gate exists while somebody waits for it.
///
/// # Lock order
///
/// As for lines: no reference to a gate is dropped under the map's lock.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    map: Mutex<HashMap<Arc<str>, Weak<Gate>>>,
    closed: AtomicBool,
    waiting: AtomicUsize,
}

/// The waiters of one channel; see [`GateState`]. Forgotten with the last reference.
pub(crate) struct Gate {
    gates: Arc<Gates>,
    channel: Arc<str>,
    state: Mutex<GateState<Outcome>>,
    /// To the channel, while anybody waits.
    subscription: Subscription,
}

impl Gates {
    /// Joins the waiters of a channel, and listens to it if that takes no command.
    pub(crate) fn enter(self: &Arc<Self>, hub: &Arc<Hub>, channel: &str) -> Place {
        let gate = self.gate(channel);
        let ticket = lock(&gate.state).enter();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let topic = Topic::Channel(&gate.channel);
        gate.subscription.start_if_confirmed(hub, topic, &gate);
        Place { gate, ticket }
    }

    fn gate(self: &Arc<Self>, channel: &str) -> Arc<Gate> {
        let mut map = lock(&self.map);
        let channel: Arc<str> = match map.get_key_value(channel) {
            Some((known, _)) => Arc::clone(known),
            None => channel.into(),
        };
        let known = map.entry(Arc::clone(&channel)).or_default();
        let gate = known.upgrade().unwrap_or_else(|| {
            let gate = Arc::new(Gate {
                gates: Arc::clone(self),
                channel,
                state: Mutex::new(GateState::default()),
                subscription: Subscription::default(),
            });
            *known = Arc::downgrade(&gate);
            gate
        });
        drop(map);
        // A gate that was made while they were being closed is closed too.
        if self.closed.load(Ordering::Acquire) {
            gate.close();
        }
        gate
    }

    /// Tells everybody who waits, and who will, that nobody waits any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.all().iter().for_each(|gate| gate.close());
    }

    /// Has every gate looked at.
    pub(super) fn notify_all(&self) {
        self.all().iter().for_each(|gate| gate.notify());
    }

    fn all(&self) -> Vec<Arc<Gate>> {
        let map = lock(&self.map);
        map.values().filter_map(Weak::upgrade).collect()
    }

    /// The number of waiting tasks.
    pub(crate) fn waiting(&self) -> usize {
        // `Engine::task_ended` asks after the end of a task is marked, a waiter looks whether the
        // task runs after it is counted: one of the two must see the other.
        self.waiting.load(Ordering::SeqCst)
    }

    /// The number of gates that are waited for.
    pub(crate) fn len(&self) -> usize {
        lock(&self.map).len()
    }
}

impl Gate {
    /// Listens to the channel; the head looks when that is confirmed.
    pub(super) fn listen(self: &Arc<Self>, hub: &Arc<Hub>) {
        let topic = Topic::Channel(&self.channel);
        self.subscription.start(hub, topic, self);
    }

    fn notify(&self) {
        let waker = lock(&self.state).notify();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn close(&self) {
        let wakers = lock(&self.state).close();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn set_health(&self, health: Health) {
        lock(&self.state).set_health(health);
    }

    pub(super) fn health(&self) -> Health {
        lock(&self.state).health()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut map = lock(&self.gates.map);
        // Another gate of this channel may have been made since the last reference went.
        if let Entry::Occupied(entry) = map.entry(Arc::clone(&self.channel))
            && std::ptr::eq(entry.get().as_ptr(), self)
        {
            entry.remove();
        }
    }
}

impl Listener for Gate {
    fn confirmed(&self) {
        self.notify();
    }

    fn heard(&self, _channel: &str) {
        self.notify();
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}

/// A place among the waiters, left when dropped.
pub(crate) struct Place {
    pub(super) gate: Arc<Gate>,
    ticket: Ticket,
}

/// Why a waiter was called.
#[derive(Debug)]
pub(super) enum Called {
    Word(Word<Outcome>),
    /// The wait is over.
    TimedOut,
}

impl Place {
    /// Waits to be called.
    pub(super) async fn called(&mut self, deadline: Option<Instant>) -> Called {
        let (gate, ticket) = (&*self.gate, self.ticket);
        loop {
            let word = poll_fn(|cx| lock(&gate.state).poll(ticket, cx.waker()));
            let retry_at = lock(&gate.state).retry_at(ticket);
            let Some(until) = retry_at.into_iter().chain(deadline).min() else {
                return Called::Word(word.await);
            };
            if let Ok(word) = clock::timeout_at(clock::to_tokio(until), word).await {
                return Called::Word(word);
            }
            let now = clock::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Called::TimedOut;
            }
            if retry_at.is_some_and(|at| now >= at) {
                lock(&gate.state).retry();
            }
        }
    }

    /// The look is over, and all wait on; it is time for another at `retry_at`.
    pub(super) fn shut(&self, retry_at: Instant, health: Health) {
        lock(&self.gate.state).shut(retry_at, health);
    }

    /// The look is over, and so is the wait of all that waited when it began.
    pub(super) fn tell(&self, outcome: &Outcome) {
        let wakers = lock(&self.gate.state).tell(outcome);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.gate.state);
        let next = state.leave(self.ticket);
        let alone = state.is_empty();
        drop(state);
        self.gate.gates.waiting.fetch_sub(1, Ordering::AcqRel);
        if alone {
            // Somebody may have come since; then it stays.
            let gate = &self.gate;
            gate.subscription.end_if(|| lock(&gate.state).is_empty());
        }
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
