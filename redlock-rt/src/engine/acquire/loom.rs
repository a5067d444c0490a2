//! The lock that a release gives to the next waiter of a fair lock, concurrent with all events of that
//! waiter. Every interleaving, with the engine's own queues, attempts, watchdog and releases. No
//! server answers: a release of a number is done when it is queued.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::loom::future::block_on;
use ::loom::thread;

use super::attempt::Attempt;
use super::local_wait::LocalWait;
use crate::clock;
use crate::connection::Connector;
use crate::engine::hand_over::Offer;
use crate::engine::hold::{LostReason, Request};
use crate::engine::release::PendingCleanup;
use crate::engine::wait::{Called, Waits, Wake};
use crate::engine::{ClientEngine, Config, HoldGuard, Terms};
use crate::name::LockName;
use crate::wire::{AcquireReply, FairQueue, Recipe, Reply};

/// In words.
const STACK: usize = 0x8000;
/// Longer than a model runs.
const LONG: Duration = Duration::from_secs(6000);
const TERMS: Terms = Terms {
    lease: LONG,
    renew: Some(LONG),
    max_hold: None,
    ..Terms::WITHOUT_LEASE
};

/// A client whose tasks do not run on their own.
struct World {
    engine: Arc<ClientEngine>,
    recipe: Arc<dyn Recipe>,
}

/// As an `AcquireLoop`.
struct Waiter {
    place: LocalWait,
    attempt: Attempt,
}

impl World {
    /// With the guard of the holder.
    fn new() -> (Arc<Self>, HoldGuard) {
        let connect = |_: &str, _: u16| async {
            Err::<tokio::io::DuplexStream, _>(std::io::ErrorKind::Other.into())
        };
        let mut config = Config::for_tests(LONG);
        config.hand_over = LONG;
        let recipe = FairQueue::new(LockName::new(None, "n").unwrap(), LONG);
        let world = Self {
            engine: ClientEngine::through(Connector::new(connect), config),
            recipe: Arc::new(recipe),
        };
        let (recipe, now) = (Arc::clone(&world.recipe), clock::now());
        let request = Request::new(&world.engine, recipe, TERMS);
        let guard = HoldGuard::acquired(&request, None, now, now).0;
        (Arc::new(world), guard)
    }

    /// A waiter that has asked and is queued.
    fn queued(&self) -> Waiter {
        let mut attempt = Attempt::new(&self.engine, Arc::clone(&self.recipe), TERMS);
        let mut place = LocalWait::enter(&attempt, clock::now(), None);
        let called = block_on(place.called(None));
        assert!(matches!(called, Called::Wake(Wake::Try)));
        drop(attempt.ask(true, None, clock::now()));
        let behind = Reply::List([1000, 1, 0, 7].map(Reply::Int).into());
        match attempt.read_answer(true, Some(Ok(behind))) {
            Some(Ok(AcquireReply::Queued(at))) => place.refused(&attempt, Some(at), None),
            other => panic!("{other:?}"),
        }
        Waiter { place, attempt }
    }

    /// The guard ends, and its release is sent. Runs the reply of Redis, which has given the lock to
    /// this waiter.
    fn gives(&self, mut guard: HoldGuard, waiter: &Waiter) -> thread::JoinHandle<()> {
        let (_, release) = guard.leave(clock::now()).unwrap();
        let waiter = waiter.attempt.request.id();
        let given = vec![Reply::Int(1), Reply::Int(2), Reply::Text(waiter)];
        let answered = PendingCleanup::release_sent(release);
        spawn(move || answered(Reply::List(given)))
    }

    /// No task has the lock or waits for it, and each of this many numbers will be released once.
    fn is_released(&self, numbers: usize) {
        assert!(
            self.engine
                .fair
                .get(self.recipe.name().as_str())
                .is_none_or(|waiters| waiters.next_in_line().is_empty())
        );
        assert_eq!(self.engine.watchdog.len(), 0);
        assert_eq!(self.engine.releases.undelivered().all, numbers);
        assert_eq!(self.engine.releases.len(), numbers);
    }
}

impl Waiter {
    /// Waits until the lock is given to it; `None`: the client shuts down.
    fn waits(self) -> Option<HoldGuard> {
        let called = block_on(self.place.called(None));
        self.called(called)
    }

    /// Looks once, and gives up if there is nothing, as at the end of a wait.
    fn looks(self) -> Option<HoldGuard> {
        let called = {
            let mut called = pin!(self.place.called(None));
            block_on(poll_fn(|cx| Poll::Ready(called.as_mut().poll(cx))))
        };
        match called {
            Poll::Ready(called) => self.called(called),
            Poll::Pending => None,
        }
    }

    /// As `AcquireLoop::run`.
    fn called(mut self, called: Called<Infallible, Box<Offer>>) -> Option<HoldGuard> {
        match called {
            Called::Wake(Wake::Try) => {}
            Called::Wake(Wake::Closed) => return None,
            _ => panic!("neither a try nor an offer"),
        }
        let sent = self.place.take_grant(self.attempt.asked());
        self.attempt.granted(sent.expect("it has nothing to ask"));
        let now = clock::now();
        let guard = self.attempt.succeed(None, now).ok()??;
        self.place.served(false, false, now + LONG);
        Some(guard)
    }
}

/// The calls of a waiter need more room than the usual stack of a thread has.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    let builder = thread::Builder::new().stack_size(STACK);
    builder.spawn(run).unwrap()
}

/// All interleavings with up to two preemptions; with more there are too many.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let run = Arc::new(run);
    crate::shim::model(Some(2), move || {
        let run = Arc::clone(&run);
        spawn(move || run()).join().unwrap();
    });
}

#[test]
fn a_waiter_that_is_given_the_lock_has_it_without_asking() {
    model(|| {
        let (world, guard) = World::new();
        let waiter = world.queued();
        let given = world.gives(guard, &waiter);
        let guard = waiter.waits().unwrap();
        given.join().unwrap();
        assert!(guard.hold.is_valid());
        drop(guard);
        world.is_released(1);
    });
}

#[test]
fn a_lock_that_is_given_at_the_end_of_a_wait_is_taken_or_released() {
    model(|| {
        let (world, guard) = World::new();
        let waiter = world.queued();
        let given = world.gives(guard, &waiter);
        drop(waiter.looks());
        given.join().unwrap();
        world.is_released(1);
    });
}

/// The queue of the name ends with its last waiter, and another one may come.
#[test]
fn a_lock_that_is_given_to_a_waiter_that_leaves_is_nobody_elses() {
    model(|| {
        let (world, guard) = World::new();
        let waiter = world.queued();
        let given = world.gives(guard, &waiter);
        let leaves = spawn(move || drop(waiter));
        let next = world.queued();
        assert!(next.looks().is_none());
        given.join().unwrap();
        leaves.join().unwrap();
        world.is_released(2);
    });
}

#[test]
fn a_lock_is_given_beside_a_waiter_behind_that_leaves() {
    model(|| {
        let (world, guard) = World::new();
        let [first, behind] = [(); 2].map(|()| world.queued());
        let given = world.gives(guard, &first);
        let leaves = spawn(move || drop(behind));
        let guard = first.waits().unwrap();
        given.join().unwrap();
        leaves.join().unwrap();
        drop(guard);
        world.is_released(2);
    });
}

/// At every moment a shut-down sees the outstanding release.
#[test]
fn a_lock_that_is_given_beside_a_shut_down_is_released_before_its_end() {
    model(|| {
        let (world, guard) = World::new();
        let waiter = world.queued();
        let given = world.gives(guard, &waiter);
        let waits = spawn(move || waiter.waits());
        // As `ClientEngine::shut_down`.
        world.engine.stop_acquiring();
        for hold in world.engine.watchdog.holds() {
            hold.end(LostReason::ShutDown);
        }
        assert_ne!(world.engine.releases.undelivered().all, 0);
        given.join().unwrap();
        if let Some(guard) = waits.join().unwrap() {
            assert!(!guard.hold.is_valid());
        }
        assert_eq!(world.engine.watchdog.len(), 0);
        assert_ne!(world.engine.releases.undelivered().all, 0);
    });
}
