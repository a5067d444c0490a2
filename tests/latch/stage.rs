//! A latch on a server, and its keys.

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, CountDownLatch, Error};
pub(crate) use tests::{DEADLINE, waits as waiting};
use tests::{Proxy, RedisServer, World, shared_server, within};
use tokio::task::JoinHandle;

/// A poll interval longer than any test: a waiter wakes by an announcement.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

pub(crate) struct Stage {
    world: World,
}

tests::is_a_world!(Stage);

impl Stage {
    pub(crate) async fn open(what: &str) -> Self {
        Self::on(&shared_server(), what).await
    }

    pub(crate) async fn on(server: &RedisServer, what: &str) -> Self {
        let world = World::on(server, what).await;
        Self { world }
    }

    /// A latch that is to be counted down once, by a client beside the proxy; later clients are behind it.
    pub(crate) async fn behind_a_proxy(what: &str) -> (Self, Proxy, CountDownLatch) {
        let proxy = Proxy::to(&shared_server());
        let mut stage = Self::open(what).await;
        let latch = stage.latch();
        latch.try_set_count(1).await.unwrap();
        stage.clients_connect_to(proxy.url());
        (stage, proxy, latch)
    }

    /// A client whose waiters are woken by announcements only.
    pub(crate) fn client_with(
        &self,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        self.world.client_with(|_| options(self.world.builder()))
    }

    pub(crate) fn latch(&self) -> CountDownLatch {
        self.client().count_down_latch(&self.name)
    }

    /// The count in Redis, as other clients see it.
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

    /// Waits until this many connections are subscribed to the channel.
    pub(crate) async fn subscribed(&self, count: usize) {
        self.subscribed_to(&self.channel(), count).await;
    }

    /// Asserts that nothing is left but keys that expire: notes of calls, and the mark of the last end.
    pub(crate) async fn assert_clean(self) {
        self.remove_notes().await;
        self.world.assert_clean().await;
    }
}

/// Waits in a separate task.
pub(crate) fn wait(latch: &CountDownLatch) -> JoinHandle<Result<(), Error>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

pub(crate) async fn ended(waiting: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    within(DEADLINE, waiting).await.unwrap()
}
