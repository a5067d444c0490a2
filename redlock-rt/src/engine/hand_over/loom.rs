//! Offers concurrent with all events that may end them. Every interleaving, with the engine's own
//! queue, lease, watchdog and releases. No server answers and timers are left out: a release is done
//! when it is queued, and the model calls the look of a timer.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ::loom::future::block_on;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{HandOver, Offer, Taken};
use crate::clock;
use crate::connection::Connector;
use crate::engine::hold::{Holders, LockQueue, LostReason, RenewalPlan, Request};
use crate::engine::wait::{Health, WaiterGuard, Waits, Wake};
use crate::engine::{ClientEngine, Config, HoldGuard, Terms};
use crate::name::LockName;
use crate::shim::model;
use crate::wire::{RLockWire, Recipe};

const LEASE: Duration = Duration::from_secs(6000);
/// Longer than a model runs.
const CHAIN: Duration = Duration::from_secs(1000);

type Place = WaiterGuard<Holders>;

/// A client whose tasks do not run on their own.
struct World {
    engine: Arc<ClientEngine>,
    recipe: Arc<dyn Recipe>,
    waiters: Arc<LockQueue>,
    first: Request,
    /// The guards at this moment.
    guards: AtomicUsize,
}

impl World {
    /// With a guard that can be handed over.
    fn new() -> (Arc<Self>, HoldGuard) {
        let connect = |_: &str, _: u16| async {
            Err::<tokio::io::DuplexStream, _>(std::io::ErrorKind::Other.into())
        };
        let mut config = Config::for_tests(LEASE);
        config.hand_over = CHAIN;
        let engine = ClientEngine::through(Connector::new(connect), config);
        engine.releases.timers.signal.runs();
        let recipe: Arc<dyn Recipe> = Arc::new(RLockWire::new(LockName::new(None, "n").unwrap()));
        let terms = Terms {
            lease: LEASE,
            renew: Some(LEASE / 3),
            max_hold: None,
            ..Terms::WITHOUT_LEASE
        };
        let first = Request::new(&engine, Arc::clone(&recipe), terms);
        let now = clock::now();
        let guard = HoldGuard::acquired(&first, None, now, now).0;
        let world = Self {
            engine,
            recipe,
            waiters: Arc::clone(&first.waiters),
            first,
            guards: AtomicUsize::new(1),
        };
        (Arc::new(world), guard)
    }

    /// Another request, without the map of the queues: its mutex would only add interleavings.
    fn request(&self) -> Request {
        let number = self.engine.next_number();
        Request {
            number,
            owner: number,
            ..self.first.clone()
        }
    }

    fn enter(&self) -> Place {
        let retry_at = clock::after(clock::now(), LEASE);
        self.waiters
            .enter(&self.engine.hub, None, || retry_at, None)
    }

    fn end(&self, guard: HoldGuard) {
        self.guards.fetch_sub(1, Ordering::AcqRel);
        self.leave(guard);
    }

    /// As the drop of a guard. A release that begins is announced at once.
    fn leave(&self, mut guard: HoldGuard) {
        match guard.hand_over() {
            HandOver::Done => return,
            HandOver::Release(release) => drop(release),
            HandOver::Impossible => drop(guard),
        }
        self.waiters.notify();
    }

    /// As `AcquireLoop::take`.
    fn take(&self, mut place: Place, wake: Wake<Infallible, Box<Offer>>) -> Option<HoldGuard> {
        let Wake::Offered(offer) = wake else {
            return None;
        };
        let now = clock::now();
        match offer.take(&self.request(), now) {
            Taken::Guard(guard) => {
                let before = self.guards.fetch_add(1, Ordering::AcqRel);
                assert_eq!(before, 0, "two guards");
                place.served(false, false, now + LEASE);
                Some(guard)
            }
            Taken::Declined(offer) => {
                place.tried(Some(now + LEASE), Health::Answering);
                drop(offer);
                None
            }
            Taken::Closed => None,
        }
    }

    /// Waits for an event; `None`: the waiter must ask Redis, or the client shuts down.
    fn wait(&self, place: Place) -> Option<HoldGuard> {
        let wake = block_on(poll_fn(|cx| match place.poll(cx.waker()) {
            Poll::Ready(Wake::Head) => place.poll(cx.waker()),
            poll => poll,
        }));
        self.take(place, wake)
    }

    /// Looks once, and gives up if there is nothing, as at the end of a wait.
    fn look(&self, place: Place) -> Option<HoldGuard> {
        let wake = block_on(poll_fn(|cx| {
            let mut poll = place.poll(cx.waker());
            if matches!(poll, Poll::Ready(Wake::Head)) {
                poll = place.poll(cx.waker());
            }
            Poll::Ready(poll)
        }));
        match wake {
            Poll::Ready(wake) => self.take(place, wake),
            Poll::Pending => None,
        }
    }

    fn later(&self) -> Instant {
        clock::now() + CHAIN * 2
    }

    fn spawn(self: &Arc<Self>, run: impl FnOnce(&Self) + 'static) -> thread::JoinHandle<()> {
        let world = Arc::clone(self);
        thread::spawn(move || run(&world))
    }

    /// The lock has no holder, and each owner number was released, or will be, once.
    fn is_released(&self, owners: usize) {
        assert!(!self.waiters.is_taken());
        assert_eq!(self.engine.watchdog.len(), 0);
        assert_eq!(self.engine.releases.undelivered().all, owners);
        assert_eq!(self.engine.releases.len(), owners);
    }
}

#[test]
fn an_offer_to_a_waiter_that_is_cancelled_is_the_next_ones() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let [first, second] = [(); 2].map(|()| world.enter());
        let ends = world.spawn(move |world| world.end(guard));
        let cancelled = world.spawn(move |_| drop(first));
        let guard = world.wait(second);
        ends.join().unwrap();
        cancelled.join().unwrap();
        if let Some(guard) = guard {
            world.end(guard);
        }
        world.is_released(1);
    });
}

#[test]
fn an_offer_to_the_only_waiter_that_is_cancelled_is_released() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let ends = world.spawn(move |world| world.end(guard));
        drop(first);
        ends.join().unwrap();
        world.is_released(1);
    });
}

/// At every moment a shut-down sees the outstanding release.
#[test]
fn an_offer_beside_a_shut_down_is_released_before_its_end() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let ends = world.spawn(move |world| world.end(guard));
        let waits = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(first))
        };
        // As `ClientEngine::shut_down`.
        world.engine.stop_acquiring();
        for hold in world.engine.watchdog.holds() {
            hold.end(LostReason::ShutDown);
        }
        assert_ne!(world.engine.releases.undelivered().all, 0);
        ends.join().unwrap();
        if let Some(guard) = waits.join().unwrap() {
            assert!(!guard.hold.is_valid());
        }
        assert!(!world.waiters.is_taken());
        assert_eq!(world.engine.watchdog.len(), 0);
        assert_ne!(world.engine.releases.undelivered().all, 0);
    });
}

#[test]
fn an_offer_at_the_end_of_a_wait_is_taken_or_the_next_ones() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let [first, second] = [(); 2].map(|()| world.enter());
        let ends = world.spawn(move |world| world.end(guard));
        let timed_out = world.spawn(move |world| {
            if let Some(guard) = world.look(first) {
                world.end(guard);
            }
        });
        if let Some(guard) = world.wait(second) {
            world.end(guard);
        }
        ends.join().unwrap();
        timed_out.join().unwrap();
        world.is_released(1);
    });
}

/// The first offer is taken, so the timer that was set for it finds the second, or nothing.
#[test]
fn an_offer_beside_the_end_of_its_chain_is_taken_or_released() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let [first, second] = [(); 2].map(|()| world.enter());
        world.end(guard);
        let guard = world.look(first).unwrap();
        let ends = world.spawn(move |world| world.end(guard));
        let timer = world.spawn(|world| {
            let _ = world.engine.releases.timers.look(world.later());
        });
        ends.join().unwrap();
        timer.join().unwrap();
        // The timer of this offer, if that one was gone.
        let _ = world.engine.releases.timers.look(world.later());
        assert!(world.look(second).is_none());
        world.is_released(1);
    });
}

/// The runtime of the release task ends, which would have ended the offer in time.
#[test]
fn an_offer_beside_the_end_of_the_tasks_is_released() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let ends = world.spawn(move |world| world.end(guard));
        let tasks = world.spawn(|world| {
            world.engine.releases.timers.signal.ends();
            world.engine.locks.withdraw_offers();
        });
        ends.join().unwrap();
        tasks.join().unwrap();
        assert!(!world.waiters.is_taken());
        drop(first);
        world.is_released(1);
    });
}

#[test]
fn an_offer_beside_a_doubt_is_declined_or_taken_in_doubt() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let doubt = world.spawn(|world| {
            world.engine.watchdog.doubt();
            world.engine.watchdog.doubt_all(&world.engine.nodes);
            while world.engine.watchdog.doubt_some() {}
        });
        let ends = world.spawn(move |world| world.end(guard));
        let guard = world.wait(first);
        doubt.join().unwrap();
        ends.join().unwrap();
        if let Some(guard) = guard {
            let plan = guard.hold.plan(clock::now());
            assert!(matches!(plan, RenewalPlan::Renew(_)), "{plan:?}");
            world.end(guard);
        }
        world.is_released(1);
    });
}

#[test]
fn a_hold_that_is_lost_is_not_handed_over() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let (first, hold) = (world.enter(), Arc::clone(&guard.hold));
        let lost = thread::spawn(move || {
            let news = hold.lease().lost(LostReason::Deleted, clock::now());
            // Tells all other tasks.
            hold.mark_lost(LostReason::Deleted);
            news
        });
        let ends = world.spawn(move |world| world.end(guard));
        let guard = world.wait(first);
        let lost = lost.join().unwrap();
        ends.join().unwrap();
        if let Some(guard) = guard {
            assert!(!lost);
            world.end(guard);
        }
        world.is_released(1);
    });
}

/// The lock was freed by force, and this client has acquired it anew: the earlier hold does not come
/// back.
#[test]
fn an_offer_beside_a_later_hold_is_not_held_with_it() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let ends = world.spawn(move |_| drop(guard));
        let again = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let now = clock::now();
                HoldGuard::acquired(&world.request(), None, now, now).0
            })
        };
        world.guards.store(0, Ordering::Release);
        let before = world.wait(first);
        ends.join().unwrap();
        let again = again.join().unwrap();
        assert!(again.hold.is_valid());
        if let Some(before) = before {
            assert!(!before.hold.is_valid());
        }
        drop(again);
        world.is_released(2);
    });
}

/// Two holds end soon after each other, as after a forced release. A waiter has one of them.
#[test]
fn beside_a_second_offer_one_is_released() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let channel = world.recipe.channel().unwrap();
        world.waiters.listen(&world.engine.hub, channel);
        world.guards.store(0, Ordering::Release);
        let ends = world.spawn(move |world| world.leave(guard));
        let again = world.spawn(move |world| {
            let now = clock::now();
            world.leave(HoldGuard::acquired(&world.request(), None, now, now).0);
        });
        let guard = world.wait(first);
        ends.join().unwrap();
        again.join().unwrap();
        if let Some(guard) = guard {
            world.end(guard);
        }
        world.is_released(2);
    });
}

/// The client frees the lock by force meanwhile: the offer is taken back, or was taken before.
#[test]
fn an_offer_beside_a_forced_release_is_not_left_over() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let first = world.enter();
        let ends = world.spawn(move |world| world.end(guard));
        let forced = world.spawn(|world| world.engine.end_chain(&*world.recipe));
        let guard = world.look(first);
        ends.join().unwrap();
        forced.join().unwrap();
        if let Some(guard) = guard {
            world.end(guard);
        }
        // The timer of an offer that was made after that.
        let _ = world.engine.releases.timers.look(world.later());
        world.is_released(1);
    });
}

/// The waiter behind a served one is not woken while the timer of the chain is set. Whether the timer
/// looks before that waiter leaves or after, the waiter behind it learns that it is the head.
#[test]
fn who_is_next_beside_the_end_of_a_chain_learns_it() {
    model(Some(2), || {
        let (world, guard) = World::new();
        let [first, second] = [(); 2].map(|()| world.enter());
        let channel = world.recipe.channel().unwrap();
        world.waiters.listen(&world.engine.hub, channel);
        world.end(guard);
        let takes = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.look(first))
        };
        let timer = world.spawn(|world| {
            let _ = world.engine.releases.timers.look(world.later());
        });
        // No task ends the hold before: there is no other wake-up.
        let wake = block_on(poll_fn(|cx| second.poll(cx.waker())));
        assert!(matches!(wake, Wake::Head));
        timer.join().unwrap();
        if let Some(guard) = takes.join().unwrap() {
            world.end(guard);
        }
        drop(second);
        world.is_released(1);
    });
}
