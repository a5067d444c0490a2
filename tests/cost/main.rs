//! The commands that are sent to Redis are no more than promised.
//!
//! On a real server, request frames are counted at a proxy, and the server's MONITOR (without calls of
//! scripts) must agree. Commands that are sent as time passes are counted on in-process streams, with
//! a paused clock.

mod calls;
mod idle;
mod renewals;
mod waiters;
mod waiting;

use std::{collections::BTreeMap, time::Duration};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ClientBuilder, RLock};
use tests::{CALL, DEADLINE, LeakCheck, Monitor, Proxy, RedisServer, ask, eventually, unique};

/// The time that is given to events that must not happen.
const MOMENT: Duration = Duration::from_millis(100);
/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

type Counts = BTreeMap<String, usize>;

fn counts<const N: usize>(expected: [(&str, usize); N]) -> Counts {
    let expected = expected.into_iter().filter(|(_, count)| *count > 0);
    expected
        .map(|(command, count)| (command.to_owned(), count))
        .collect()
}

/// A separate server without other clients, and a client behind a proxy.
struct Counted {
    name: String,
    client: Client,
    proxy: Proxy,
    monitor: Monitor,
    /// A connection without the proxy.
    redis: MultiplexedConnection,
    /// The commands that were sent without the proxy since the mark.
    beside: Counts,
    leaks: LeakCheck,
    _server: RedisServer,
}

impl Counted {
    async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    async fn start_with(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::to(&server);
        let builder = Client::builder().url(&proxy.url()).poll_interval(NEVER);
        // Short, since each test waits for it at its end.
        let builder = builder.linger(Duration::from_millis(20));
        let client = options(builder).connect().await.unwrap();
        let name = unique("cost");
        let mut counted = Self {
            monitor: Monitor::start(&server).await,
            redis: server.connect().await.unwrap(),
            beside: Counts::new(),
            leaks: LeakCheck::on(&server, &name).await.client(&client),
            name,
            client,
            proxy,
            _server: server,
        };
        counted.warm_up().await;
        counted
    }

    /// Loads all scripts, and makes all connections.
    async fn warm_up(&mut self) {
        let lock = self.client.rlock(format!("{}:warm", self.name));
        let guard = lock.lock().await.unwrap();
        guard.reenter().await.unwrap().unlock().await.unwrap();
        assert!(lock.is_locked().await.unwrap());
        let waiter = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.unwrap().unlock().await })
        };
        self.proxy.wait_for_answer("SUBSCRIBE").await;
        assert!(lock.force_unlock().await.unwrap());
        guard.unlock().await.unwrap();
        waiter.await.unwrap().unwrap();
        // Else a name with the same place among those that were found taken, one in 1024, begins with the script.
        for _ in 0..8 {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        eventually(DEADLINE, async || {
            let stats = self.client.stats();
            (stats.subscriptions, stats.names) == (0, 0)
        })
        .await;
        self.mark().await;
    }

    fn lock(&self) -> RLock {
        self.client.rlock(&self.name)
    }

    async fn mark(&mut self) {
        self.proxy.mark();
        self.monitor.mark().await;
        self.beside.clear();
    }

    /// As [`commands`](Self::commands), where each call is one, by a script or by plain commands.
    async fn sent(&mut self) -> Counts {
        let mut sent = self.commands().await;
        let deleted = sent.remove("HDEL").unwrap_or_default();
        if let Some(published) = sent.remove("PUBLISH") {
            assert_eq!(published, deleted, "they go together");
        }
        let plain = deleted + sent.remove("RESTORE").unwrap_or_default();
        let calls = plain + sent.remove("EVALSHA").unwrap_or_default();
        sent.extend((calls > 0).then(|| (CALL.to_owned(), calls)));
        sent
    }

    /// The commands of the client since the mark, by the counts of the proxy and of the server.
    async fn commands(&mut self) -> Counts {
        // Waits a moment for commands that must not be sent.
        tokio::time::sleep(MOMENT).await;
        let sent = self.proxy.counts();
        let mut seen = self.monitor.counts().await;
        for (command, count) in &self.beside {
            *seen.get_mut(command).unwrap() -= count;
        }
        seen.retain(|_, count| *count > 0);
        assert_eq!(sent, seen, "{:#?}", self.proxy.frames());
        sent
    }

    /// Sends a command without the client.
    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        *self.beside.entry(words[0].to_owned()).or_insert(0) += 1;
        ask(&self.redis, words).await
    }

    /// Creates a lock of another owner.
    async fn occupy(&mut self) {
        let name = self.name.clone();
        let _: u8 = self.ask(&["HSET", &name, "somebody:1", "1"]).await;
        let _: u8 = self.ask(&["PEXPIRE", &name, "600000"]).await;
    }

    /// Releases it.
    async fn vacate(&mut self) {
        let name = self.name.clone();
        let _: u8 = self.ask(&["DEL", &name]).await;
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let _: u8 = self.ask(&["PUBLISH", &channel, "0"]).await;
    }

    async fn end(self) {
        self.leaks.assert_clean().await;
    }
}
