//! Waiters behind a hold of their own client, with the hub, the release and its announcement, in
//! every interleaving. Timers are left out: only events wake a waiter.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use ::loom::future::block_on;
use ::loom::thread;

use super::{WaiterGuard, Waits, Wake};
use crate::clock;
use crate::connection::Connector;
use crate::engine::announcement::News;
use crate::engine::hold::{Holders, LockQueue, Request, key_of};
use crate::engine::{ClientEngine, Config, HoldGuard, Terms};
use crate::name::LockName;
use crate::shim::model;
use crate::wire::{Announcement, RLockWire, Recipe};

const LEASE: Duration = Duration::from_secs(600);

/// A client that holds a lock, and whose subscribing connection is there.
struct World {
    engine: Arc<ClientEngine>,
    waiters: Arc<LockQueue>,
    recipe: Arc<dyn Recipe>,
}

impl World {
    fn new() -> (Self, HoldGuard) {
        let connect = |_: &str, _: u16| async {
            Err::<tokio::io::DuplexStream, _>(std::io::ErrorKind::Other.into())
        };
        let engine = ClientEngine::through(Connector::new(connect), Config::for_tests(LEASE));
        engine.hub.up();
        let recipe: Arc<dyn Recipe> = Arc::new(RLockWire::new(LockName::new(None, "n").unwrap()));
        let waiters = engine.locks.waiters(key_of(&*recipe));
        let terms = Terms {
            lease: LEASE,
            renew: None,
            max_hold: None,
            ..Terms::WITHOUT_LEASE
        };
        let now = clock::now();
        let request = Request::new(&engine, Arc::clone(&recipe), terms);
        let guard = HoldGuard::acquired(&request, None, now, now).0;
        (
            Self {
                engine,
                waiters,
                recipe,
            },
            guard,
        )
    }

    fn listen(&self) {
        let channel = self.recipe.channel().unwrap();
        self.waiters.listen(&self.engine.hub, channel);
    }

    fn enter(&self) -> WaiterGuard<Holders> {
        let retry_at = clock::after(clock::now(), LEASE);
        self.waiters
            .enter(&self.engine.hub, self.recipe.channel(), || retry_at, None)
    }

    /// As `acquire` without its timers, up to the first try.
    fn tries(&self, place: &WaiterGuard<Holders>) {
        block_on(poll_fn(|cx| {
            loop {
                let wake = place.poll(cx.waker());
                match wake {
                    std::task::Poll::Ready(Wake::Head) => {
                        self.listen();
                    }
                    wake => return wake.map(|wake| assert!(matches!(wake, Wake::Try))),
                }
            }
        }));
    }

    /// The guard ends, and the server frees the lock, publishes that, and answers. Message and
    /// answer come on two connections.
    fn release(&self, mut guard: HoldGuard) -> thread::JoinHandle<()> {
        let engine = Arc::clone(&self.engine);
        let channel = String::from(self.recipe.channel().unwrap());
        thread::spawn(move || {
            drop(guard.leave(clock::now()));
            let hub = Arc::clone(&engine.hub);
            let message = thread::spawn(move || hub.delivered(&channel));
            let announcement = Announcement {
                is_made: true,
                is_granted: false,
                receivers: 1,
                waiter: None,
            };
            guard
                .hold
                .settled(&News::Announced(announcement, clock::now()));
            message.join().unwrap();
        })
    }
}

/// The channel lingers from an earlier wait: a joining waiter listens at once, and sends nothing.
#[test]
fn a_waiter_that_joins_during_the_release_of_its_client_tries() {
    model(Some(3), || {
        let (world, guard) = World::new();
        drop({
            let place = world.enter();
            world.listen();
            world.engine.hub.sent()();
            place
        });
        let release = world.release(guard);
        let place = world.enter();
        world.tries(&place);
        drop(place);
        release.join().unwrap();
    });
}
