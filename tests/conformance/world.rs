//! The common parts of the behaviours: clients, a unique name, commands to Redis, the leak check.

use std::{cell::RefCell, sync::Arc, time::Duration};

use futures::future::{LocalBoxFuture, join_all};
use redis::FromRedisValue;
use redlock_rt::{ClientBuilder, GuardState, HoldId};
pub(crate) use tests::Log;
use tests::{Backend, eventually, unique, within};
use tokio::time::Instant;

use crate::{
    kind::Kind,
    locks::{Guard, Lock},
    party::Party,
};
pub(crate) use tests::DEADLINE;

/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a [standard](STANDARD) lease, or [never](NEVER).
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// The default lease of a client.
pub(crate) const STANDARD: Duration = Duration::from_secs(30);
/// A lease whose end a test waits for. Too short for events that must come before its end, since
/// threads may have to wait for a processor.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// A lease long enough for something that must happen before its end.
pub(crate) const HELD: Duration = Duration::from_secs(3);
/// A renewal interval that a test can wait for, far shorter than the lease requires.
pub(crate) const OFTEN: Duration = Duration::from_millis(200);
/// The distance of the guard's local deadline to the end of the lease: 1 % and 2 ms.
pub(crate) const MARGIN: Duration = Duration::from_millis(8);
/// A poll interval longer than any test, so that only an announcement wakes.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// Not a type of its own for each behaviour, since there are thousands of tests.
type Behaviour = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// Runs one behaviour and checks that it has left nothing.
pub(crate) fn run<B: Backend>(kind: &'static Kind, name: &str, behaviour: Behaviour) {
    B::runtime().block_on(async {
        let (backend, name) = (Arc::new(B::open(kind.servers)), unique(name));
        let mut servers = Vec::new();
        for server in 0..kind.servers {
            servers.push(tests::World::of(&backend, server, &name).await);
        }
        let places = (kind.places)(&name);
        let world = World {
            servers,
            need: (kind.need)(places.len()),
            places,
            name,
            kind,
            beside: RefCell::default(),
        };
        within(6 * DEADLINE, behaviour(&world)).await;
        world.remove_what_stays().await;
        for server in world.servers {
            server.assert_clean().await;
        }
    });
}

pub(crate) struct World {
    servers: Vec<tests::World>,
    /// The name of the lock, and the prefix of all others.
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    /// The keys of the lock, each with its server.
    places: Vec<(usize, String)>,
    /// The number of places that make an owner the holder.
    need: usize,
    /// Further keys in Redis of a played owner.
    beside: RefCell<Vec<String>>,
}

impl World {
    /// Removes keys that stay, so that the leak check finds only leftovers.
    async fn remove_what_stays(&self) {
        let Some(prefix) = self.kind.stays else {
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

    /// The lock.
    pub(crate) fn open(&self, client: &Party) -> Lock {
        self.open_as(client, &self.name)
    }

    /// A lock of the same kind, and another name.
    pub(crate) fn open_as(&self, client: &Party, name: &str) -> Lock {
        (self.kind.open)(client, name)
    }

    /// A lock of the same name that excludes this one, and is excluded by it.
    pub(crate) fn rival(&self, client: &Party) -> Lock {
        (self.kind.rival().open)(client, &self.name)
    }

    /// A client whose waiters are woken by announcements only.
    pub(crate) fn client(&self) -> Party {
        self.client_with(|builder| builder.poll_interval(NEVER))
    }

    /// A client with these options, which the leak check covers.
    pub(crate) fn client_with(&self, options: impl Fn(ClientBuilder) -> ClientBuilder) -> Party {
        let servers = self.servers.iter();
        Party::new(servers.map(|server| server.client_with(&options)).collect())
    }

    /// Sends a command to Redis, to the first of several servers.
    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.servers[0].redis(words).await
    }

    /// The channels that match this pattern, at the first of several servers.
    pub(crate) async fn channels(&self, pattern: &str) -> Vec<String> {
        self.servers[0].channels(pattern).await
    }

    /// Sends a command with these words for each key of the lock; the key is the second word.
    pub(crate) async fn each<T: FromRedisValue>(&self, command: &str, words: &[&str]) -> Vec<T> {
        let answers = self.places.iter().map(async |(server, key)| {
            let words = [&[command, key], words].concat();
            self.servers[*server].redis(&words).await
        });
        // At the same time: when one key is found missing, the others may be released.
        join_all(answers).await
    }

    /// The hold count of this guard in Redis, in as many places as are needed; [`DIFFER`] if fewer
    /// places agree.
    pub(crate) async fn count(&self, guard: &dyn Guard) -> Option<u32> {
        let (owners, mut counts) = (guard.hold_ids(), Vec::new());
        for (server, key) in (self.kind.places)(&guard.name()) {
            let mut found = None;
            for field in owners.iter().map(self.kind.field) {
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

    /// The TTL of the lock; `None` without a key or without a TTL.
    pub(crate) async fn ttl(&self) -> Option<Duration> {
        let mut ttls: Vec<i64> = self.each("PTTL", &[]).await;
        ttls.sort_unstable();
        // Until then, enough places exist.
        let millis = ttls[ttls.len() - self.need];
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// Whether an owner may have the lock: too few places are free for another owner.
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

    /// Asserts that exactly these owners have the lock.
    pub(crate) async fn assert_held_by(&self, owners: &[HoldId]) {
        let fields: Vec<Vec<String>> = self.each("HKEYS", &[]).await;
        let expected: Vec<_> = owners.iter().map(|owner| self.fields_of(owner)).collect();
        let held = fields.iter().filter(|fields| {
            let mut fields = (*fields).clone();
            fields.sort();
            expected.contains(&fields)
        });
        assert!(held.count() >= self.need, "{fields:?}, not {expected:?}");
    }

    /// Asserts that this number of a client's holds is one hold of the lock.
    #[track_caller]
    pub(crate) fn assert_one_hold(&self, holds: usize) {
        let one = self.need..=self.places.len();
        assert!(one.contains(&holds), "{holds} holds, not one");
    }

    /// The names of the fields of a lock that this owner alone holds, in order.
    fn fields_of(&self, owner: &HoldId) -> Vec<String> {
        let fields = (self.kind.fields)(owner.as_str(), 1).into_iter();
        let mut fields: Vec<String> = fields.map(|(field, _)| field).collect();
        fields.sort();
        fields
    }

    /// Creates a lock of another owner.
    pub(crate) async fn occupy(&self, kind: &Kind, owner: &str, lease: Duration) {
        self.occupy_as(kind, &vec![owner.to_owned(); self.places.len()], lease)
            .await;
    }

    /// Likewise, with one owner for each place.
    pub(crate) async fn occupy_as(&self, kind: &Kind, owners: &[String], lease: Duration) {
        let millis = lease.as_millis().to_string();
        let script = "redis.call('DEL', KEYS[1]) \
                      redis.call('HSET', KEYS[1], unpack(ARGV, 2)) \
                      redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 1";
        for ((server, key), owner) in self.places.iter().zip(owners) {
            let fields = (kind.fields)(owner, 1);
            let mut words = vec!["EVAL", script, "1", key, &millis];
            words.extend(fields.iter().flat_map(|(field, value)| [&**field, value]));
            let _: u8 = self.servers[*server].redis(&words).await;
        }
        if let Some(key) = (kind.lease_key)(&self.name, &owners[0]) {
            let _: () = self.redis(&["SET", &key, "1", "PX", &millis]).await;
            self.beside.borrow_mut().push(key);
        }
    }
}

/// A count that no hold has.
const DIFFER: Option<u32> = Some(u32::MAX);

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

/// Waits until a waiter of the client is subscribed and has tried since, so that only an announcement
/// or time wakes it. For a kind without announcements, no waiter subscribes.
pub(crate) async fn settles(world: &World, client: &Party) {
    if world.kind.looks_every.is_some() {
        assert_eq!(client.stats().subscriptions, 0);
        return;
    }
    let pattern = format!("*{}*", world.name);
    // If waiters are notified one by one: the channel of the client and, if the holder is another kind
    // of client, also the channel of the waiter.
    let own = format!("redlock_wake:{}", client.uuid());
    eventually(DEADLINE, async || {
        // The channel of a waiter ends with its owner, that of a lock with its name.
        let is_own = |channel: &String| match channel.rsplit_once('}') {
            Some((_, owner)) => owner.is_empty() || owner.contains(client.uuid()),
            None => true,
        };
        let channels = world.channels(&pattern).await;
        let channels: Vec<_> = channels.into_iter().filter(is_own).collect();
        let heard: usize = world.redis(&["PUBLISH", &own, "0"]).await;
        channels.len() + heard > 0 && client.stats().subscriptions == channels.len() + heard
    })
    .await;
}

/// The local deadline of a valid guard.
#[track_caller]
pub(crate) fn until(guard: &dyn Guard) -> std::time::Instant {
    match guard.state() {
        GuardState::Held { until } => until,
        state => panic!("{state:?}"),
    }
}

/// Waits until the guard is renewed: its local deadline moves.
pub(crate) async fn is_renewed(guard: &dyn Guard) {
    let now = until(guard);
    eventually(DEADLINE, async || until(guard) > now).await;
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
