//! What a behaviour is given: clients, names of its own, a look into Redis, the leak check.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{Client, ClientBuilder, Error, LateLoss};
use tests::{Backend, Wires, unique, within};
use tokio::time::Instant;

/// What most functions here return. (The value of a function whose type may not be `Send` does not
/// wait for the release.)
pub(crate) type Done = Result<(), Error>;

/// For what must happen. Below the lease of 30 s of a client that sets none: what was missed would
/// come with the end of that.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How late what is due at a moment may come: threads that have to wait for a processor. Below the
/// [span](SPAN), so that what is to come at once and what waits for it are told apart.
pub(crate) const LATE: Duration = Duration::from_millis(1500);
/// A span that a test can wait for, and within which something may be due.
pub(crate) const SPAN: Duration = Duration::from_secs(2);
/// Renewal that soon finds that a lock is gone.
pub(crate) const OFTEN: Duration = Duration::from_millis(20);
/// Polling that does not come within a test, so that it is an announcement that wakes.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// Runs one behaviour and looks what it has left.
pub(crate) async fn run<B: Backend>(name: &str, behaviour: impl AsyncFnOnce(&World)) {
    let backend = Arc::new(B::open(1));
    let world = World {
        world: tests::World::of(&backend, 0, &unique(name)).await,
        wires: Box::new(move || backend.wires(0)),
    };
    within(2 * DEADLINE, behaviour(&world)).await;
    world.assert_clean().await;
}

pub(crate) struct World {
    world: tests::World,
    wires: Box<dyn Fn() -> Wires + Send + Sync>,
}

impl Deref for World {
    type Target = tests::World;

    fn deref(&self) -> &tests::World {
        &self.world
    }
}

impl World {
    /// A client of these options that is woken by announcements only.
    pub(crate) fn client_with(
        &self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        self.world.client_with(|_| options(self.builder()))
    }

    /// As [`client_with`](Self::client_with), and the connections of the client.
    pub(crate) fn wired(
        &self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> (Client, Wires) {
        let wires = (self.wires)();
        // Short, since the end of each test waits for it.
        let builder = wires.builder().linger(Duration::from_millis(20));
        let client = options(builder.poll_interval(NEVER)).build().unwrap();
        self.watch(&client);
        (client, wires)
    }

    /// A client, and the late losses that it tells.
    pub(crate) fn telling(&self) -> (Client, Log<LateLoss>) {
        let told = Log::default();
        let log = told.clone();
        let client =
            self.client_with(|builder| builder.on_late_loss(move |loss| log.add(loss.clone())));
        (client, told)
    }

    /// Another name of this test.
    pub(crate) fn named(&self, what: &str) -> String {
        format!("{}:{what}", self.name)
    }

    pub(crate) async fn is_there(&self, name: &str) -> bool {
        self.redis(&["EXISTS", name]).await
    }

    /// Takes the lock away under its holder, as an eviction does.
    pub(crate) async fn delete(&self) {
        let deleted: bool = self.redis(&["DEL", &self.name]).await;
        assert!(deleted, "there was no lock");
    }

    /// Removes what stays beside locks for good.
    pub(crate) async fn forget(&self, keys: &str) {
        let keys: Vec<String> = self.redis(&["KEYS", keys]).await;
        for key in keys {
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }
}

/// Notes what happens in which order.
#[derive(Clone)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn add(&self, what: T) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Notes its end.
pub(crate) struct Witness<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for Witness<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Asserts that `from` is so long ago, and not much longer.
#[track_caller]
pub(crate) fn assert_passed(from: Instant, expected: Duration) {
    let passed = from.elapsed();
    // A deadline of the lock is up to 1 % and 2 ms before that of Redis.
    let early = expected / 50 + Duration::from_millis(4);
    assert!(
        passed + early >= expected && passed < expected + LATE,
        "{passed:?} passed, not {expected:?}"
    );
}
