//! The common parts of a test: clients, a unique name, commands to Redis, the leak check. On any
//! backend or server, also through a proxy.

use std::{cell::RefCell, fmt, sync::Arc, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, ClientBuilder};

use crate::{Backend, DEADLINE, LeakCheck, RedisServer, ask, eventually, trace_init, unique};

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

/// Of a type with a field `world`: it is used as that [`World`].
#[macro_export]
macro_rules! is_a_world {
    ($stage:ty) => {
        impl std::ops::Deref for $stage {
            type Target = $crate::World;

            fn deref(&self) -> &$crate::World {
                &self.world
            }
        }

        impl std::ops::DerefMut for $stage {
            fn deref_mut(&mut self) -> &mut $crate::World {
                &mut self.world
            }
        }
    };
}

/// See the module.
pub struct World {
    client: Box<dyn Fn() -> ClientBuilder + Send + Sync>,
    /// The name of the lock under test, and the prefix of all other names.
    pub name: String,
    redis: MultiplexedConnection,
    leaks: RefCell<Option<LeakCheck>>,
}

impl World {
    /// A world of the test `what`.
    pub async fn open<B: Backend>(what: &str) -> Self {
        Self::of(&Arc::new(B::open(1)), 0, &unique(what)).await
    }

    /// A world on this server of a backend, for keys that have this name.
    pub async fn of<B: Backend>(backend: &Arc<B>, server: usize, name: &str) -> Self {
        let connections = [backend.connect(server).await, backend.connect(server).await];
        let backend = Arc::clone(backend);
        Self::over(connections, name.to_owned(), move || backend.client(server))
    }

    /// A world of the test `what` on this server.
    pub async fn on(server: &RedisServer, what: &str) -> Self {
        Self::named(server, &unique(what)).await
    }

    /// A world on this server, for an existing name.
    pub async fn named(server: &RedisServer, name: &str) -> Self {
        let mut connections = Vec::new();
        for _ in 0..2 {
            connections.push(server.connect().await.expect("the server accepts it"));
        }
        let connections = connections.try_into().expect("there are two");
        let url = server.url();
        Self::over(connections, name.to_owned(), move || {
            Client::builder().url(&url)
        })
    }

    fn over(
        [redis, looks]: [MultiplexedConnection; 2],
        name: String,
        client: impl Fn() -> ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        trace_init();
        Self {
            client: Box::new(client),
            leaks: RefCell::new(Some(LeakCheck::over(looks, &name))),
            name,
            redis,
        }
    }

    /// Clients connect to this URL from now on, such as that of a proxy.
    pub fn clients_connect_to(&mut self, url: String) {
        self.clients_are(Client::builder().url(&url));
    }

    /// Clients are made of this from now on.
    pub fn clients_are(&mut self, builder: ClientBuilder) {
        self.client = Box::new(move || builder.clone());
    }

    /// A client whose waiters are woken by announcements only.
    pub fn client(&self) -> Client {
        self.client_with(|_| self.builder())
    }

    /// A client with these options, [watched](Self::watch).
    pub fn client_with(&self, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let client = options(self.lingering()).build();
        let client = client.expect("the options are right");
        self.watch(&client);
        client
    }

    /// The builder of a client whose waiters are woken by announcements only. The client is to be
    /// [watched](Self::watch).
    pub fn builder(&self) -> ClientBuilder {
        self.lingering().poll_interval(NEVER)
    }

    /// Short, since each test waits for it at its end.
    fn lingering(&self) -> ClientBuilder {
        (self.client)().linger(Duration::from_millis(20))
    }

    /// The leak check covers this client.
    pub fn watch(&self, client: &Client) {
        let mut leaks = self.leaks.borrow_mut();
        *leaks = leaks.take().map(|check| check.client(client));
    }

    /// Sends a command to Redis.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    /// Sends a command whose words are not all text.
    pub async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let answer = command.query_async(&mut self.redis.clone()).await;
        answer.expect("redis does it")
    }

    /// The TTL of the key `name`; `None` without a key or without a TTL.
    pub async fn ttl(&self) -> Option<Duration> {
        let millis: i64 = self.redis(&["PTTL", &self.name]).await;
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// Removes the notes for holders whose lock was stolen, which expire, and the counter of tokens, which
    /// stays.
    pub async fn forget_thefts(&self) {
        let notes = format!("redlock_stolen:*{}*", self.name);
        let notes: Vec<String> = self.redis(&["KEYS", &notes]).await;
        for note in notes {
            assert!(
                self.redis::<i64>(&["PTTL", &note]).await > 0,
                "{note} stays"
            );
            let _: bool = self.redis(&["DEL", &note]).await;
        }
        let tokens = format!("redisson_lock_token:{{{}}}", self.name);
        let _: bool = self.redis(&["DEL", &tokens]).await;
    }

    /// Whether the key `name` exists.
    pub async fn is_there(&self) -> bool {
        self.redis(&["EXISTS", &self.name]).await
    }

    /// The channels that match this pattern and have subscribers, of both sorts.
    pub async fn channels(&self, pattern: &str) -> Vec<String> {
        let mut channels: Vec<String> = self.redis(&["PUBSUB", "CHANNELS", pattern]).await;
        let mut sharded = redis::cmd("PUBSUB");
        sharded.arg("SHARDCHANNELS").arg(pattern);
        // Servers below 7.0 have none.
        let sharded = sharded.query_async(&mut self.redis.clone()).await;
        channels.extend(sharded.unwrap_or_else(|_| Vec::<String>::new()));
        channels
    }

    /// Waits until this many connections are subscribed to a channel, which may be sharded.
    pub async fn subscribed_to(&self, channel: &str, count: usize) {
        let sharded = async || {
            let mut sharded = redis::cmd("PUBSUB");
            sharded.arg("SHARDNUMSUB").arg(channel);
            // Servers below 7.0 have none.
            let there = sharded.query_async(&mut self.redis.clone()).await;
            there.map_or(0, |(_, there): (String, usize)| there)
        };
        eventually(DEADLINE, async || {
            let (_, plain): (String, usize) = self.redis(&["PUBSUB", "NUMSUB", channel]).await;
            let there = plain + sharded().await;
            if there == count {
                Ok(())
            } else {
                Err(format!("{there} are subscribed"))
            }
        })
        .await;
    }

    /// Removes notes of operations and marks of latches, after a check that each of them would
    /// expire within minutes.
    pub async fn remove_notes(&self) {
        let mut left = Vec::new();
        for prefix in ["redlock_op", "redlock_latch_end"] {
            let pattern = format!("{prefix}:*{}*", self.name);
            let found: Vec<String> = self.redis(&["KEYS", &pattern]).await;
            left.extend(found);
        }
        for key in left {
            let ttl: i64 = self.redis(&["PTTL", &key]).await;
            assert!((1..=660_000).contains(&ttl), "{key} stays for {ttl} ms");
            let _: bool = self.redis(&["DEL", &key]).await;
        }
    }

    /// Panics if anything is left.
    pub async fn assert_clean(&self) {
        let leaks = self.leaks.take().expect("it is asked for once");
        leaks.assert_clean().await;
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
