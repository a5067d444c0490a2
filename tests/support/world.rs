//! What a behaviour is given on any backend: clients, a name of its own, a look into Redis, the leak
//! check.

use std::{cell::RefCell, fmt, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, ClientBuilder};

use crate::{Backend, LeakCheck, trace_init, unique};

/// Polling that does not come within a test.
const NEVER: Duration = Duration::from_secs(600);

/// See the module.
pub struct World {
    client: Box<dyn Fn() -> ClientBuilder + Send + Sync>,
    /// The name of what is tested, and the prefix of all others.
    pub name: String,
    redis: MultiplexedConnection,
    leaks: RefCell<Option<LeakCheck>>,
}

impl World {
    /// A world of the test `what`.
    pub async fn open<B: Backend>(what: &str) -> Self {
        trace_init();
        let backend = B::open(1);
        let name = unique(what);
        let leaks = LeakCheck::over(backend.connect(0).await, &name);
        Self {
            redis: backend.connect(0).await,
            client: Box::new(move || backend.client(0)),
            leaks: RefCell::new(Some(leaks)),
            name,
        }
    }

    /// A client that is woken by announcements only.
    pub fn client(&self) -> Client {
        self.client_with(|builder| builder.poll_interval(NEVER))
    }

    /// A client of these options; it must have nothing left in the end.
    pub fn client_with(&self, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        // Short, since the end of each test waits for it.
        let builder = (self.client)().linger(Duration::from_millis(20));
        let client = options(builder).build().expect("the options are right");
        let mut leaks = self.leaks.borrow_mut();
        *leaks = leaks.take().map(|check| check.client(&client));
        client
    }

    /// Sends a command to Redis.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query_async(&mut self.redis.clone()).await;
        answer.expect("redis does it")
    }

    /// The TTL of the key of that name; `None` where there is none.
    pub async fn ttl(&self) -> Option<Duration> {
        let millis: i64 = self.redis(&["PTTL", &self.name]).await;
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// Whether there is a key of that name.
    pub async fn is_there(&self) -> bool {
        self.redis(&["EXISTS", &self.name]).await
    }

    /// Removes what goes by itself within minutes, after a look that it will: notes of operations,
    /// and marks of latches.
    pub async fn remove_notes(&self) {
        let mut left = Vec::new();
        for prefix in ["redlock_op", "redlock_latch_end"] {
            let pattern = format!("{prefix}:{{{}*}}*", self.name);
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
