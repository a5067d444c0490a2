//! Fencing tokens: they grow whatever becomes of the counter, and what compares them refuses who
//! comes late.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

mod counter;
mod failover;
mod paused;
mod tokens;
mod values;

use std::time::Duration;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, FencedLock};
use tests::{LeakCheck, shared_server, unique, within};

const DEADLINE: Duration = Duration::from_secs(10);

/// A lock on the shared server, and a look behind it.
struct Scene {
    name: String,
    client: Client,
    lock: FencedLock,
    redis: MultiplexedConnection,
    leaks: LeakCheck,
}

impl Scene {
    async fn open(what: &str) -> Self {
        Self::at(what, &shared_server().url()).await
    }

    /// The client at this address of the shared server.
    async fn at(what: &str, url: &str) -> Self {
        let name = unique(what);
        let builder = Client::builder().url(url).linger(Duration::from_millis(20));
        let client = builder.connect().await.unwrap();
        Self {
            lock: client.fenced_lock(&name),
            redis: shared_server().connect().await.unwrap(),
            leaks: LeakCheck::on(&shared_server(), &name).await.client(&client),
            client,
            name,
        }
    }

    fn counter(&self) -> String {
        format!("redisson_lock_token:{{{}}}", self.name)
    }

    async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// Takes and releases the lock.
    async fn token(&self) -> u64 {
        let guard = within(DEADLINE, self.lock.lock()).await.unwrap();
        let token = guard.token();
        guard.unlock().await.unwrap();
        token
    }

    /// Sets the counter as another client may have left it.
    async fn count(&self, value: &str) {
        let _: () = self.redis(&["SET", &self.counter(), value]).await;
    }

    async fn end(self) {
        let _: bool = self.redis(&["DEL", &self.counter()]).await;
        self.leaks.assert_clean().await;
    }
}
