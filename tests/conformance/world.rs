//! What a behaviour of locks is given besides the [world](tests::World) that all are given.

use std::{
    cell::RefCell,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{Client, OwnerId};
use tests::{Backend, eventually, within};
use tokio::time::Instant;

use crate::subject::{Guard, Subject};

/// For what must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// How late what is due at a moment may come: threads that have to wait for a processor.
pub(crate) const LATE: Duration = Duration::from_millis(250);
/// A lease that a test can wait for.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// What the guard's local deadline is before the end of the lease: 1 % and 2 ms.
pub(crate) const MARGIN: Duration = Duration::from_millis(8);
/// Polling that does not come within a test, so that it is an announcement that wakes.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// Runs one behaviour and looks what it has left.
pub(crate) async fn run<B: Backend, S: Subject>(name: &str, behaviour: impl AsyncFnOnce(&World)) {
    let world = World {
        world: tests::World::open::<B>(name).await,
        beside: RefCell::default(),
    };
    within(2 * DEADLINE, behaviour(&world)).await;
    world.remove_what_stays::<S>().await;
    world.assert_clean().await;
}

pub(crate) struct World {
    world: tests::World,
    /// What stands in Redis besides the lock for somebody who is played.
    beside: RefCell<Vec<String>>,
}

impl Deref for World {
    type Target = tests::World;

    fn deref(&self) -> &tests::World {
        &self.world
    }
}

impl World {
    /// So that the leak check finds all else.
    async fn remove_what_stays<S: Subject>(&self) {
        let Some(prefix) = S::STAYS else {
            return;
        };
        let pattern = format!("{prefix}:{{{}*}}", self.name);
        let stays: Vec<String> = self.redis(&["KEYS", &pattern]).await;
        for key in stays {
            let ttl: i64 = self.redis(&["PTTL", &key]).await;
            assert_eq!(ttl, -1, "{key}");
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }

    /// What stands in Redis as the count of this guard's hold.
    pub(crate) async fn count<S: Subject>(&self, guard: &Guard<S>) -> Option<u32> {
        let field = S::field(guard.owner());
        self.redis(&["HGET", guard.name(), &field]).await
    }

    /// Takes the lock away under its holder, as an eviction does.
    pub(crate) async fn delete(&self) {
        let deleted: bool = self.redis(&["DEL", &self.name]).await;
        assert!(deleted, "there was no lock");
        for key in self.beside.take() {
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }

    /// The names of the fields of the lock, in order.
    pub(crate) async fn fields(&self) -> Vec<String> {
        let mut fields: Vec<String> = self.redis(&["HKEYS", &self.name]).await;
        fields.sort();
        fields
    }

    /// Puts a lock of somebody else there.
    pub(crate) async fn occupy<S: Subject>(&self, owner: &str, lease: Duration) {
        let millis = lease.as_millis().to_string();
        let script = "redis.call('DEL', KEYS[1]) \
                      redis.call('HSET', KEYS[1], unpack(ARGV, 2)) \
                      redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 1";
        let fields = S::fields(owner, 1);
        let mut words = vec!["EVAL", script, "1", &self.name, &millis];
        words.extend(fields.iter().flat_map(|(field, value)| [&**field, value]));
        let _: u8 = self.redis(&words).await;
        if let Some(key) = S::lease_key(&self.name, owner) {
            let _: () = self.redis(&["SET", &key, "1", "PX", &millis]).await;
            self.beside.borrow_mut().push(key);
        }
    }
}

/// The names of the fields of a lock that this owner alone holds, in order.
pub(crate) fn fields_of<S: Subject>(owner: &OwnerId) -> Vec<String> {
    let fields = S::fields(owner.as_str(), 1).into_iter();
    let mut fields: Vec<String> = fields.map(|(field, _)| field).collect();
    fields.sort();
    fields
}

/// Waits until so many tasks of the client wait.
pub(crate) async fn waits(client: &Client, count: usize) {
    eventually(DEADLINE, async || {
        let waiting = client.stats().waiting;
        if waiting == count {
            Ok(())
        } else {
            Err(format!("{waiting} wait"))
        }
    })
    .await;
}

/// Waits until a waiter of the client is subscribed and has looked since: from here on nothing but
/// an announcement or time wakes it. Of a kind that announces nothing, nobody ever subscribes.
pub(crate) async fn settles<S: Subject>(world: &World, client: &Client) {
    if S::LOOKS_EVERY.is_some() {
        assert_eq!(client.stats().subscriptions, 0);
        return;
    }
    let pattern = format!("*{}*", world.name);
    // Of a kind whose waiters have a channel each: a pattern, which is not listed.
    let waiter = format!(
        "redisson_lock__channel:{{{}}}:{}:0",
        world.name,
        client.uuid()
    );
    eventually(DEADLINE, async || {
        let channels: Vec<String> = world.redis(&["PUBSUB", "CHANNELS", &pattern]).await;
        let heard: usize = world.redis(&["PUBLISH", &waiter, "0"]).await;
        channels.len() + heard == 1 && client.stats().subscriptions == 1
    })
    .await;
}

/// Notes what happens in which order.
#[derive(Clone, Default)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Log<T> {
    pub(crate) fn add(&self, what: T) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Asserts that `from` is so long ago, and not much longer.
#[track_caller]
pub(crate) fn assert_passed(from: Instant, expected: Duration) {
    let passed = from.elapsed();
    assert!(
        passed >= expected && passed < expected + LATE,
        "{passed:?} passed, not {expected:?}"
    );
}
