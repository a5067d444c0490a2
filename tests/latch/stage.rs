//! A latch on a server, and a look behind it.

use std::time::Duration;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, ClientBuilder, CountDownLatch, Error};
use tests::{LeakCheck, RedisServer, eventually, shared_server, trace_init, unique, within};
use tokio::task::JoinHandle;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Polling that does not come within a test: whoever wakes was told.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

pub(crate) struct Stage {
    pub(crate) name: String,
    /// Where its clients connect to.
    pub(crate) url: String,
    redis: MultiplexedConnection,
    leaks: Option<LeakCheck>,
}

impl Stage {
    pub(crate) async fn open(what: &str) -> Self {
        Self::on(&shared_server(), what).await
    }

    pub(crate) async fn on(server: &RedisServer, what: &str) -> Self {
        trace_init();
        let name = unique(what);
        Self {
            url: server.url(),
            redis: server.connect().await.unwrap(),
            leaks: Some(LeakCheck::on(server, &name).await),
            name,
        }
    }

    /// A client that is woken by announcements only.
    pub(crate) fn client(&mut self) -> Client {
        self.client_with(|builder| builder)
    }

    pub(crate) fn client_with(
        &mut self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        let builder = Client::builder()
            .url(&self.url)
            .poll_interval(NEVER)
            .linger(Duration::from_millis(20));
        let client = options(builder).build().unwrap();
        self.leaks = self.leaks.take().map(|leaks| leaks.client(&client));
        client
    }

    pub(crate) fn latch(&mut self) -> CountDownLatch {
        self.client().count_down_latch(&self.name)
    }

    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// What stands in Redis, as other clients see it.
    pub(crate) async fn count(&self) -> Option<i64> {
        self.redis(&["GET", &self.name]).await
    }

    pub(crate) fn channel(&self) -> String {
        format!("redisson_countdownlatch__channel__{{{}}}", self.name)
    }

    pub(crate) fn mark_key(&self) -> String {
        format!("redlock_latch_end:{{{}}}", self.name)
    }

    pub(crate) async fn mark(&self) -> Option<String> {
        self.redis(&["GET", &self.mark_key()]).await
    }

    pub(crate) async fn notes(&self) -> Vec<String> {
        let pattern = format!("redlock_op:{{{}}}:*", self.name);
        self.redis(&["KEYS", &pattern]).await
    }

    /// How many calls of scripts the server has carried out.
    pub(crate) async fn scripts_run(&self) -> usize {
        let info: String = self.redis(&["INFO", "commandstats"]).await;
        let calls = info.lines().find_map(|line| {
            let rest = line.strip_prefix("cmdstat_evalsha:calls=")?;
            rest.split(',').next()?.parse().ok()
        });
        calls.unwrap_or_default()
    }

    /// Waits until so many subscriptions to the channel are there.
    pub(crate) async fn subscribed(&self, count: usize) {
        eventually(DEADLINE, async || {
            let (_, there): (String, usize) =
                self.redis(&["PUBSUB", "NUMSUB", &self.channel()]).await;
            if there == count {
                Ok(())
            } else {
                Err(format!("{there} are subscribed"))
            }
        })
        .await;
    }

    /// Nothing is left but what goes by itself: notes of calls, and the mark of the last end.
    pub(crate) async fn assert_clean(mut self) {
        let mut left = self.notes().await;
        left.extend(self.mark().await.map(|_| self.mark_key()));
        for key in left {
            let ttl: i64 = self.redis(&["PTTL", &key]).await;
            assert!((1..=660_000).contains(&ttl), "{key} stays for {ttl} ms");
            let _: usize = self.redis(&["DEL", &key]).await;
        }
        self.leaks.take().unwrap().assert_clean().await;
    }
}

/// Waits in a task of its own.
pub(crate) fn wait(latch: &CountDownLatch) -> JoinHandle<Result<(), Error>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

pub(crate) async fn ended(waiting: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    within(DEADLINE, waiting).await.unwrap()
}

/// Waits until so many tasks of a client wait.
pub(crate) async fn waiting(client: &Client, count: usize) {
    eventually(DEADLINE, async || client.stats().waiting == count).await;
}
