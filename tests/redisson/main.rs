//! Redisson's objects beside ours in one Redis: each waits for the other, and finds what it expects.
//!
//! The Redisson player shares nothing with this crate. Unless a test says so, neither side polls here:
//! a waiter wakes by the other side's message.

mod fenced;
mod latch;
mod multi;
mod rlock;
mod rw;
mod semaphore;
mod spin;

use std::{
    ops::Deref,
    time::{Duration, Instant},
};

use futures::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redlock_rt::{Client, ClientBuilder};
use tests::{DEADLINE, RedissonClient, World, ask, shared_server, unique, within};

const LEASE: Duration = Duration::from_millis(300);
/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a lease of 30 s, or never.
const LATE: Duration = Duration::from_secs(5);

/// One object, seen from both sides.
struct Both<O, T> {
    world: World,
    client: Client,
    ours: O,
    java: RedissonClient,
    theirs: T,
}

impl<O, T> Deref for Both<O, T> {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl<O, T> Both<O, T> {
    /// The object of the test `what`.
    async fn of(
        what: &str,
        ours: impl FnOnce(&Client, &str) -> O,
        theirs: impl FnOnce(&RedissonClient, &str) -> T,
    ) -> Self {
        let name = unique(what);
        Self::shared(&name, &name, ours, theirs).await
    }

    /// The object of this name, which has this prefix.
    async fn shared(
        prefix: &str,
        name: &str,
        ours: impl FnOnce(&Client, &str) -> O,
        theirs: impl FnOnce(&RedissonClient, &str) -> T,
    ) -> Self {
        let java = RedissonClient::connect(&shared_server().url()).await;
        let (names, options) = ([name, name], |ours| ours);
        Self::with(prefix, names, options, java.unwrap(), ours, theirs).await
    }

    /// An object that has these names on our side and on theirs, which have this prefix in common.
    async fn with(
        prefix: &str,
        names: [&str; 2],
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
        java: RedissonClient,
        ours: impl FnOnce(&Client, &str) -> O,
        theirs: impl FnOnce(&RedissonClient, &str) -> T,
    ) -> Self {
        let mut world = World::named(&shared_server(), prefix).await;
        let client = options(world.builder()).connect().await.unwrap();
        world.watch(&client);
        names[1].clone_into(&mut world.name);
        Self {
            ours: ours(&client, names[0]),
            theirs: theirs(&java, names[1]),
            world,
            client,
            java,
        }
    }

    async fn end(self) {
        assert!(self.java.channels().is_empty());
        self.world.assert_clean().await;
    }
}

#[track_caller]
fn assert_soon(woke: Instant, freed: Instant) {
    let late = woke.saturating_duration_since(freed);
    assert!(late < LATE, "{late:?}");
}

/// Receives all messages about a lock.
struct Listener {
    heard: PubSub,
    redis: MultiplexedConnection,
    end: String,
}

impl Listener {
    async fn on(name: &str) -> Self {
        let client = redis::Client::open(shared_server().url()).unwrap();
        let mut heard = client.get_async_pubsub().await.unwrap();
        heard.psubscribe(format!("*{name}*")).await.unwrap();
        Self {
            heard,
            redis: client.get_multiplexed_async_connection().await.unwrap(),
            end: format!("end:{name}"),
        }
    }

    /// The channels and texts of the messages since the last call.
    async fn all(&mut self) -> Vec<(String, String)> {
        let receivers: usize = ask(&self.redis, &["PUBLISH", &self.end, ""]).await;
        assert_eq!(receivers, 1);
        let mut messages = Vec::new();
        let mut stream = self.heard.on_message();
        loop {
            let message = within(DEADLINE, stream.next()).await.unwrap();
            let channel = message.get_channel_name().to_owned();
            if channel == self.end {
                return messages;
            }
            messages.push((channel, message.get_payload().unwrap()));
        }
    }
}

/// A place for one holder at a time.
#[derive(Clone)]
struct Room {
    redis: MultiplexedConnection,
    counter: String,
}

impl Room {
    async fn at(name: &str) -> Self {
        Self {
            redis: shared_server().connect().await.unwrap(),
            counter: format!("{name}:inside"),
        }
    }

    async fn enter_and_leave(&mut self) {
        for (step, expected) in [("INCR", 1), ("DECR", 0)] {
            let inside: i64 = ask(&self.redis, &[step, &self.counter]).await;
            assert_eq!(inside, expected, "two holders");
        }
    }

    async fn close(self) {
        let left: i64 = ask(&self.redis, &["GETDEL", &self.counter]).await;
        assert_eq!(left, 0);
    }
}
