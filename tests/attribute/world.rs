//! The common parts of the behaviours: clients, unique names, commands to Redis, the leak check.

use std::{sync::Arc, time::Duration};

use futures::future::LocalBoxFuture;
use redlock_rt::{Client, ClientBuilder, Error, LateLoss};
pub(crate) use tests::DEADLINE;
pub(crate) use tests::Log;
use tests::{Backend, Wires, unique, within};
use tokio::time::Instant;

/// The output of most functions here. (A value whose type may not be `Send` does not wait for the
/// release.)
pub(crate) type Done = Result<(), Error>;

/// How late an event may be if threads have to wait for a processor. Below the [span](SPAN), so
/// that a test can distinguish an event at once from one after the span.
pub(crate) const LATE: Duration = Duration::from_millis(1500);
/// A span that a test can wait for, and within which something may be due.
pub(crate) const SPAN: Duration = Duration::from_secs(2);
/// A renewal interval with which a guard soon notices the loss of its lock.
pub(crate) const OFTEN: Duration = Duration::from_millis(20);
/// A poll interval longer than any test, so that only an announcement wakes.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// Not a type of its own for each behaviour.
type Behaviour = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// Runs one behaviour and checks that it has left nothing.
pub(crate) fn run<B: Backend>(name: &str, behaviour: Behaviour) {
    let test = async {
        let backend = Arc::new(B::open(1));
        let world = World {
            world: tests::World::of(&backend, 0, &unique(name)).await,
            wires: Box::new(move || backend.wires(0)),
        };
        within(2 * DEADLINE, behaviour(&world)).await;
        world.assert_clean().await;
    };
    B::runtime().block_on(test);
}

pub(crate) struct World {
    world: tests::World,
    wires: Box<dyn Fn() -> Wires + Send + Sync>,
}

tests::is_a_world!(World);

impl World {
    /// A client with these options whose waiters are woken by announcements only.
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
        // Short, since each test waits for it at its end.
        let builder = wires.builder().linger(Duration::from_millis(20));
        let client = options(builder.poll_interval(NEVER)).build().unwrap();
        self.watch(&client);
        (client, wires)
    }

    /// A client, and the late losses that it reports.
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

    /// Removes keys that stay beside locks for ever.
    pub(crate) async fn forget(&self, keys: &str) {
        let keys: Vec<String> = self.redis(&["KEYS", keys]).await;
        for key in keys {
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }
}

/// Calls a function when it is dropped.
pub(crate) struct Witness<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for Witness<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Asserts that this much time has passed since `from`, and not much more.
#[track_caller]
pub(crate) fn assert_passed(from: Instant, expected: Duration) {
    let passed = from.elapsed();
    // The local deadline of a lock is up to 1 % and 2 ms before the end in Redis.
    let early = expected / 50 + Duration::from_millis(4);
    assert!(
        passed + early >= expected && passed < expected + LATE,
        "{passed:?} passed, not {expected:?}"
    );
}
