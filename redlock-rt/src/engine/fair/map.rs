//! The fair locks that one client waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::waiters::{FairTicket, FairWaiters};
use crate::clock;
use crate::connection::{Delivery, Message};
use crate::engine::ClientEngine;
use crate::engine::hold::{Request, Terms};
use crate::engine::hub::{ChannelListener, Hub, Subscription};
use crate::engine::release::{OrphanedAttempt, abandon};
use crate::engine::signal::Signal;
use crate::engine::wait::{Seat, WeakMap};
use crate::engine::watchdog::Schedule;
use crate::name::{ClientId, LockName};
use crate::shim::Mutex;
use crate::wire::keys::{fair_twin, wake_channel};
use crate::wire::{Recipe, TurnMessage};

/// The waiters by name, and the signal of the task that sends their beats.
pub(in crate::engine) struct FairMap {
    engine: Weak<ClientEngine>,
    pub(super) client: ClientId,
    pub(super) hub: Arc<Hub>,
    /// The channel on which our clients announce the turns of this client's waiters.
    pub(super) channel: String,
    /// The subscription to that channel, while there are waiters for any name.
    wake: Subscription,
    /// Whether the channel is confirmed, or Redis forbids it: a beat is then not too early.
    listening: AtomicBool,
    /// The polling fallback of the heads of queues, lengthened at random by up to the same time
    /// again.
    pub(super) poll_interval: Duration,
    /// The number of tickets of all names.
    tickets: AtomicUsize,
    names: WeakMap<LockName, FairWaiters>,
    closed: AtomicBool,
    /// Numbers the names in the schedule.
    numbers: AtomicU64,
    /// When the beat of each name is due.
    pub(super) schedule: Mutex<Schedule<Weak<FairWaiters>>>,
    /// Readable without the mutex, since every lock of another kind reads it.
    used: AtomicBool,
    pub(in crate::engine) signal: Arc<Signal>,
}

impl FairMap {
    pub(in crate::engine) fn new(
        engine: &Weak<ClientEngine>,
        client: ClientId,
        hub: &Arc<Hub>,
        poll_interval: Duration,
    ) -> Self {
        Self {
            engine: Weak::clone(engine),
            hub: Arc::clone(hub),
            channel: wake_channel(&client),
            wake: Subscription::default(),
            listening: AtomicBool::new(false),
            poll_interval,
            tickets: AtomicUsize::new(0),
            client,
            names: WeakMap::default(),
            closed: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            schedule: Mutex::default(),
            used: AtomicBool::new(false),
            signal: Arc::default(),
        }
    }

    /// A ticket for the waiter of this owner number; `None` for a kind without a queue in Redis.
    pub(in crate::engine) fn enter(
        self: &Arc<Self>,
        recipe: &Arc<dyn Recipe>,
        number: u64,
        lease: Duration,
    ) -> Option<FairTicket> {
        recipe.queue()?;
        self.used.store(true, Ordering::Release);
        let waiters = self.names.get_or_make(recipe.name().clone(), |_| {
            let id = self.numbers.fetch_add(1, Ordering::Relaxed);
            FairWaiters::new(self, recipe, id)
        });
        let ticket = waiters.enter(number, lease);
        // Counted after it is in the queue: a task that finds it counted looks for it there.
        self.tickets.fetch_add(1, Ordering::SeqCst);
        // A waiter that came during `close` is told too.
        if self.closed.load(Ordering::Acquire) {
            ticket.seat.close();
        }
        Some(ticket)
    }

    /// The number of waiters.
    pub(in crate::engine) fn waiting(&self) -> usize {
        // As for `WaiterMap::waiting`.
        self.tickets.load(Ordering::SeqCst)
    }

    /// Tells all current and future waiters that the client shuts down.
    pub(in crate::engine) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.for_each_seat(Seat::close);
    }

    /// Makes every waiter try again.
    pub(in crate::engine) fn notify_all(&self) {
        let now = clock::now();
        self.for_each_seat(|seat| seat.notify(now));
    }

    fn for_each_seat(&self, tell: impl Fn(&Seat)) {
        for waiters in self.names.all() {
            waiters.seats().iter().for_each(|seat| tell(seat));
        }
    }

    /// Gives back what Redis has for this number: its place or the lock.
    pub(super) fn withdraw(&self, recipe: &Arc<dyn Recipe>, number: u64) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let mut request = Request::new(&engine, Arc::clone(recipe), Terms::WITHOUT_LEASE);
        request.owner = number;
        abandon(OrphanedAttempt {
            request,
            traces: true,
            delivery: Delivery::default(),
        });
    }

    pub(super) fn forget(&self, waiters: &FairWaiters) {
        self.names.forget(waiters.name(), waiters);
    }

    pub(in crate::engine) fn get(&self, name: &str) -> Option<Arc<FairWaiters>> {
        self.names.get(name)
    }

    /// Whether the waiter of this number has its ticket under the other name of the same queue.
    pub(super) fn twin_has(&self, waiters: &FairWaiters, number: u64) -> bool {
        let twin = fair_twin(waiters.name().as_str());
        let twin = twin.and_then(|name| self.get(&name));
        twin.is_some_and(|twin| twin.has(number))
    }

    /// Subscribes to the client's channel. Waiters with tickets look again when the channel is
    /// confirmed. Later waiters miss nothing, since they are not queued yet.
    pub(super) fn listen(self: &Arc<Self>) {
        self.wake.start(&self.hub, &self.channel, self);
    }

    /// A ticket was dropped.
    pub(super) fn left(&self) {
        self.tickets.fetch_sub(1, Ordering::AcqRel);
        self.wake.end_if(|| {
            let was_last = self.tickets.load(Ordering::Acquire) == 0;
            if was_last {
                self.listening.store(false, Ordering::Release);
            }
            was_last
        });
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// All names with tickets look again. Names that get tickets later ask on their own.
    fn look_again(&self) {
        self.listening.store(true, Ordering::Release);
        let all = self.names.all();
        all.iter().for_each(|waiters| waiters.beat_now());
    }

    /// Whether there ever was a waiter.
    pub(in crate::engine) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }
}

impl ChannelListener for FairMap {
    fn confirmed(&self) {
        self.look_again();
    }

    fn refused(&self) {
        self.look_again();
    }

    fn heard(&self, message: &Message, _pause: Option<Duration>) {
        let Some(TurnMessage { number, name, left }) = TurnMessage::decode(&message.payload) else {
            return;
        };
        let twin = fair_twin(name);
        let names = [Some(name), twin.as_deref()].into_iter().flatten();
        let known: Vec<_> = names.filter_map(|name| self.get(name)).collect();
        if !known.iter().any(|waiters| waiters.is_next(number, left)) {
            known.iter().for_each(|waiters| waiters.unclaimed());
        }
    }
}
