//! A semaphore on a server behind a proxy, and its keys.

use std::time::Duration;

use bytes::Bytes;
use redlock_rt::{Client, ClientBuilder, PermitExpirableSemaphore, Semaphore};
pub(crate) use tests::DEADLINE;
use tests::{Loss, Matcher, Proxy, World, eventually, shared_server};

/// A poll interval longer than any test: a waiter wakes by an announcement, or at the end of a lease.
pub(crate) const NEVER: Duration = Duration::from_secs(600);
/// The response time-out. Short, since each lost reply costs it.
const RESPONSE: Duration = Duration::from_millis(2400);

pub(crate) struct Stage {
    world: World,
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
}

tests::is_a_world!(Stage);

impl Stage {
    pub(crate) async fn open(what: &str) -> Self {
        Self::with(what, |builder| builder).await
    }

    pub(crate) async fn with(
        what: &str,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let server = shared_server();
        let (mut world, proxy) = (World::on(&server, what).await, Proxy::to(&server));
        world.clients_connect_to(proxy.url());
        let client = world.client_with(|_| options(world.builder()));
        Self {
            world,
            proxy,
            client,
        }
    }

    /// With a client whose response time-out is short.
    pub(crate) async fn hasty(what: &str) -> Self {
        Self::with(what, |builder| builder.response_timeout(RESPONSE)).await
    }

    pub(crate) fn other(&self) -> Client {
        let builder = Client::builder().url(&shared_server().url());
        let builder = builder.poll_interval(NEVER);
        builder.linger(Duration::from_millis(20)).build().unwrap()
    }

    /// The semaphore, with this many permits.
    pub(crate) async fn semaphore(&self, permits: u32) -> Semaphore {
        let semaphore = self.client.semaphore(&self.name);
        assert!(semaphore.try_set_permits(permits).await.unwrap());
        semaphore
    }

    /// The semaphore with leases, with this many permits.
    pub(crate) async fn permits(&self, permits: u32) -> PermitExpirableSemaphore {
        let semaphore = self.client.permit_expirable_semaphore(&self.name);
        assert!(semaphore.try_set_permits(permits).await.unwrap());
        semaphore
    }

    /// Loses the next `times` of these calls.
    pub(crate) fn lose(&self, loss: Loss, calls: &Matcher, times: usize) {
        let calls = calls.clone().mentioning(&self.name);
        self.proxy.lose(loss, calls, times);
    }

    /// Sends a command with the words of a frame.
    pub(crate) async fn redis_raw(&self, words: &[Bytes]) -> redis::Value {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(&word[..]);
        });
        self.world.query(&command).await
    }

    pub(crate) fn leases_key(&self) -> String {
        format!("{{{}}}:timeout", self.name)
    }

    pub(crate) fn holds_key(&self) -> String {
        format!("redlock_sem:{{{}}}", self.name)
    }

    pub(crate) fn channel(&self) -> String {
        format!("redisson_sc:{{{}}}", self.name)
    }

    /// The free permits in Redis.
    pub(crate) async fn free(&self) -> i64 {
        self.redis(&["GET", &self.name]).await
    }

    pub(crate) async fn free_is(&self, free: i64) {
        eventually(DEADLINE, async || match self.free().await {
            now if now == free => Ok(()),
            now => Err(format!("{now} are free, not {free}")),
        })
        .await;
    }

    pub(crate) async fn waiting(&self, tasks: usize) {
        eventually(DEADLINE, async || self.client.stats().waiting == tasks).await;
    }

    /// Waits until this many tasks wait and are subscribed.
    pub(crate) async fn listening(&self, tasks: usize) {
        self.waiting(tasks).await;
        self.subscribed_to(&self.channel(), 1).await;
    }

    /// Asserts that all permits are free and stay free, and that nothing is left but their number and
    /// notes that expire.
    pub(crate) async fn end(self, permits: i64) {
        self.free_is(permits).await;
        eventually(DEADLINE, async || self.client.stats().releases == 0).await;
        assert_eq!(self.free().await, permits);
        let pattern = format!("redlock_op:{{{}}}:*", self.name);
        let notes: Vec<String> = self.redis(&["KEYS", &pattern]).await;
        for note in notes {
            let ttl: i64 = self.redis(&["PTTL", &note]).await;
            assert!((1..=120_000).contains(&ttl), "{note}: {ttl}");
            let _: () = self.redis(&["DEL", &note]).await;
        }
        let _: () = self.redis(&["DEL", &self.name]).await;
        self.world.assert_clean().await;
    }
}
