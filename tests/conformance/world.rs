//! The common parts of the behaviours: clients, a unique name, commands to Redis, the leak check.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use redis::FromRedisValue;
use redlock_rt::{ClientBuilder, GuardState, HoldId};
use tests::{Backend, eventually, unique, within};
use tokio::time::Instant;

use crate::{
    locks::Guards,
    party::Party,
    subject::{Guard, Subject},
};

/// The limit for events that must happen. Below the [standard](STANDARD) lease, with whose end a
/// missed event would come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a [standard](STANDARD) lease, or [never](NEVER).
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// The lease of a client that sets none.
pub(crate) const STANDARD: Duration = Duration::from_secs(30);
/// A lease whose end a test waits for. Too short for events that must come before its end, since
/// threads may have to wait for a processor.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// A lease long enough for something that must happen before its end.
pub(crate) const HELD: Duration = Duration::from_secs(3);
/// A renewal that a test can wait for; far more often than a lease asks for.
pub(crate) const OFTEN: Duration = Duration::from_millis(200);
/// What the guard's local deadline is before the end of the lease: 1 % and 2 ms.
pub(crate) const MARGIN: Duration = Duration::from_millis(8);
/// A poll interval longer than any test, so that only an announcement wakes.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// Runs one behaviour and checks that it has left nothing.
pub(crate) async fn run<B: Backend, S: Subject>(name: &str, behaviour: impl AsyncFnOnce(&World)) {
    let (backend, name) = (Arc::new(B::open(S::SERVERS)), unique(name));
    let mut servers = Vec::new();
    for server in 0..S::SERVERS {
        servers.push(tests::World::of(&backend, server, &name).await);
    }
    let places = S::places(&name);
    let world = World {
        servers,
        need: S::need(places.len()),
        places,
        name,
        beside: RefCell::default(),
    };
    within(6 * DEADLINE, behaviour(&world)).await;
    world.remove_what_stays::<S>().await;
    for server in world.servers {
        server.assert_clean().await;
    }
}

pub(crate) struct World {
    servers: Vec<tests::World>,
    /// The name of the lock, and the prefix of all others.
    pub(crate) name: String,
    /// The keys that are the lock, each on its server.
    places: Vec<(usize, String)>,
    /// Whoever has so many of them has the lock.
    need: usize,
    /// What stands in Redis besides the lock for somebody who is played.
    beside: RefCell<Vec<String>>,
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

    /// A client that is woken by announcements only.
    pub(crate) fn client(&self) -> Party {
        self.client_with(|builder| builder.poll_interval(NEVER))
    }

    /// A client of these options; it must have nothing left in the end.
    pub(crate) fn client_with(&self, options: impl Fn(ClientBuilder) -> ClientBuilder) -> Party {
        let servers = self.servers.iter();
        Party::new(servers.map(|server| server.client_with(&options)).collect())
    }

    /// Sends a command to Redis, of several servers to the first.
    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.servers[0].redis(words).await
    }

    /// Sends a command of these words about each key that is the lock; the key is the second.
    pub(crate) async fn each<T: FromRedisValue>(&self, command: &str, words: &[&str]) -> Vec<T> {
        let answers = self.places.iter().map(async |(server, key)| {
            let words = [&[command, key], words].concat();
            self.servers[*server].redis(&words).await
        });
        // At the same time: one that is found gone may have the others released.
        join_all(answers).await
    }

    /// What stands in Redis as the count of this guard's hold, in as many places as are needed;
    /// [`DIFFER`] where it does not stand in so many.
    pub(crate) async fn count<S: Subject>(&self, guard: &Guard<S>) -> Option<u32> {
        let (owners, mut counts) = (guard.hold_ids(), Vec::new());
        for (server, key) in S::places(&guard.name()) {
            let mut found = None;
            for field in owners.iter().map(S::field) {
                let words = ["HGET", &key, &field];
                let count = self.servers[server].redis(&words).await;
                found = found.or(count);
            }
            counts.push(found);
        }
        let often = |count: &Option<u32>| counts.iter().filter(|other| *other == count).count();
        let agreed = counts.iter().find(|count| often(count) >= self.need);
        agreed.copied().unwrap_or(DIFFER)
    }

    /// The TTL of the lock; `None` where there is none.
    pub(crate) async fn ttl(&self) -> Option<Duration> {
        let mut ttls: Vec<i64> = self.each("PTTL", &[]).await;
        ttls.sort_unstable();
        // Until then there are as many as are needed.
        let millis = ttls[ttls.len() - self.need];
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// Whether anybody may have it: not enough places are free for somebody else.
    pub(crate) async fn is_there(&self) -> bool {
        let there: Vec<bool> = self.each("EXISTS", &[]).await;
        let there = there.into_iter().filter(|there| *there).count();
        there > self.places.len() - self.need
    }

    /// Takes the lock away under its holder, as an eviction does.
    pub(crate) async fn delete(&self) {
        let deleted: Vec<bool> = self.each("DEL", &[]).await;
        assert!(deleted.contains(&true), "there was no lock");
        for key in self.beside.take() {
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }

    /// Asserts that these owners have the lock, and nobody else.
    pub(crate) async fn assert_held_by<S: Subject>(&self, owners: &[HoldId]) {
        let fields: Vec<Vec<String>> = self.each("HKEYS", &[]).await;
        let expected: Vec<_> = owners.iter().map(fields_of::<S>).collect();
        let held = fields.iter().filter(|fields| {
            let mut fields = (*fields).clone();
            fields.sort();
            expected.contains(&fields)
        });
        assert!(held.count() >= self.need, "{fields:?}, not {expected:?}");
    }

    /// Asserts that so many holds of a client are one of the lock.
    #[track_caller]
    pub(crate) fn assert_one_hold(&self, holds: usize) {
        let one = self.need..=self.places.len();
        assert!(one.contains(&holds), "{holds} holds, not one");
    }

    /// Creates a lock of another owner.
    pub(crate) async fn occupy<S: Subject>(&self, owner: &str, lease: Duration) {
        self.occupy_as::<S>(&vec![owner.to_owned(); self.places.len()], lease)
            .await;
    }

    /// Likewise, of one owner for each place.
    pub(crate) async fn occupy_as<S: Subject>(&self, owners: &[String], lease: Duration) {
        let millis = lease.as_millis().to_string();
        let script = "redis.call('DEL', KEYS[1]) \
                      redis.call('HSET', KEYS[1], unpack(ARGV, 2)) \
                      redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 1";
        for ((server, key), owner) in self.places.iter().zip(owners) {
            let fields = S::fields(owner, 1);
            let mut words = vec!["EVAL", script, "1", key, &millis];
            words.extend(fields.iter().flat_map(|(field, value)| [&**field, value]));
            let _: u8 = self.servers[*server].redis(&words).await;
        }
        if let Some(key) = S::lease_key(&self.name, &owners[0]) {
            let _: () = self.redis(&["SET", &key, "1", "PX", &millis]).await;
            self.beside.borrow_mut().push(key);
        }
    }
}

/// What no hold has as its count.
const DIFFER: Option<u32> = Some(u32::MAX);

/// The names of the fields of a lock that this owner alone holds, in order.
fn fields_of<S: Subject>(owner: &HoldId) -> Vec<String> {
    let fields = S::fields(owner.as_str(), 1).into_iter();
    let mut fields: Vec<String> = fields.map(|(field, _)| field).collect();
    fields.sort();
    fields
}

/// Waits until this many tasks of the client wait.
pub(crate) async fn waits(client: &Party, count: usize) {
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
pub(crate) async fn settles<S: Subject>(world: &World, client: &Party) {
    if S::LOOKS_EVERY.is_some() {
        assert_eq!(client.stats().subscriptions, 0);
        return;
    }
    let pattern = format!("*{}*", world.name);
    // Of a kind whose waiters are called one by one: the channel of the client, and where the holder is
    // of another kind of client, that of the waiter too.
    let own = format!("redlock_wake:{}", client.uuid());
    eventually(DEADLINE, async || {
        let channels: Vec<String> = world.redis(&["PUBSUB", "CHANNELS", &pattern]).await;
        let heard: usize = world.redis(&["PUBLISH", &own, "0"]).await;
        channels.len() + heard > 0 && client.stats().subscriptions == channels.len() + heard
    })
    .await;
}

/// The local deadline of a guard that is held.
#[track_caller]
pub(crate) fn until<G: Guards>(guard: &G) -> std::time::Instant {
    match guard.state() {
        GuardState::Held { until } => until,
        state => panic!("{state:?}"),
    }
}

/// Waits until the guard was renewed: it is held for longer than it is now.
pub(crate) async fn is_renewed<G: Guards>(guard: &G) {
    let now = until(guard);
    eventually(DEADLINE, async || until(guard) > now).await;
}

/// A list of events in their order.
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

/// Asserts that this much time has passed since `from`, and not much more.
#[track_caller]
pub(crate) fn assert_passed(from: Instant, expected: Duration) {
    let passed = from.elapsed();
    assert!(
        passed >= expected && passed < expected + LATE,
        "{passed:?} passed, not {expected:?}"
    );
}
